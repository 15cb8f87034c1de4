"""The sockets of the load client: every read is stamped first and parsed after all ready ones were read."""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import SplitResult, urlsplit

from results.errors import UsageError
from sweeps.exchange import Exchange

clock = time.monotonic

_SECRET_CHARS = 5  # a shorter word of a header is no key


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go. Headers may carry a key: they are shown nowhere."""

    base_url: str  # http://host:port, https too
    path: str  # "/v1/chat/completions" or "/v1/completions"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def address(self) -> SplitResult:
        """The parts of the URL. Raises UsageError if no request can be sent to it."""
        try:
            url = urlsplit(self.base_url)
            usable = url.scheme in ("http", "https") and url.hostname and url.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise UsageError(f"not an http:// or https:// address: {self.base_url!r}")
        if "@" in url.netloc:
            raise UsageError("give credentials as a header, not in the address of the server")
        return url

    def head(self) -> bytes:
        """The constant part of the request head, up to the length of the body."""
        host = self.address.netloc
        lines = [f"POST {self.address.path.rstrip('/')}{self.path} HTTP/1.1", f"Host: {host}"]
        lines += ["Accept: text/event-stream", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        head = "\r\n".join([*lines, "Content-Length: "])
        if not head.isascii() or head.count("\n") != len(lines) or head.count("\r") != len(lines):
            raise UsageError("the address or a header has a line break or a character outside ASCII")
        return head.encode()

    def without_secrets(self, text: str) -> str:
        """The text with every header value, and every word of one, masked."""
        for value in self.headers.values():
            for secret in (value, *value.split()):
                text = text.replace(secret, "***") if len(secret) >= _SECRET_CHARS else text
        return text


class Pool:
    """Connections to one Target, one Exchange each at a time, reused when the server allows it.

    `open` are the exchanges under way; those that are over are moved to `ended` and `on_end` is called.
    """

    def __init__(self, target: Target, on_end: Callable[[], None]) -> None:
        self.open: set[Exchange] = set()
        self.ended: deque[Exchange] = deque()
        self.idle: list[_Connection] = []
        self.connections: set[_Connection] = set()
        self.reads: list[tuple[float, _Connection, bytes]] = []
        self.closed = False
        self.head = target.head()
        self._host = target.address.hostname or ""
        self._tls = ssl.create_default_context() if target.address.scheme == "https" else None
        self._port = target.address.port or (443 if self._tls else 80)
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()

    def send(self, exchange: Exchange) -> None:
        """Send the request on an idle connection, or on a new one."""
        self.open.add(exchange)
        if self.idle:
            self.idle.pop().start(exchange, reused=True)
        else:
            self.send_on_new_connection(exchange)

    def send_on_new_connection(self, exchange: Exchange) -> None:
        task = self._loop.create_task(self._connect(exchange))
        self._connecting.add(task)
        task.add_done_callback(self._connected)

    def drain(self) -> None:
        """Parse what was read."""
        reads, self.reads = self.reads, []
        for at_s, connection, data in reads:
            connection.parse(at_s, data)

    def end(self, exchange: Exchange) -> None:
        """Take an exchange that is over out of those under way."""
        if exchange in self.open:
            self.open.remove(exchange)
            self.ended.append(exchange)
            self._on_end()

    def fail_open(self, error: str) -> None:
        for exchange in tuple(self.open):
            exchange.fail(clock(), error)
            self.end(exchange)

    def close(self) -> None:
        """Drop every connection at once."""
        self.closed = True
        self.reads.clear()
        for task in self._connecting:
            task.cancel()
        for connection in self.connections:
            connection.abort()

    async def _connect(self, exchange: Exchange) -> None:
        try:
            _, connection = await self._loop.create_connection(
                lambda: _Connection(self), self._host, self._port, ssl=self._tls
            )
        except OSError as error:
            exchange.fail(clock(), _connect_failure(error))
            self.end(exchange)
        else:
            connection.start(exchange, reused=False)

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        if not task.cancelled():
            task.result()  # a defect of ours must not stay in the task


class _Connection(asyncio.Protocol):
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._soon = asyncio.get_running_loop().call_soon
        self._exchange: Exchange | None = None
        self._reused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._pool.connections.add(self)

    def start(self, exchange: Exchange, *, reused: bool) -> None:
        self._exchange, self._reused = exchange, reused
        body = exchange.job.body
        self._transport.write(b"%b%d\r\n\r\n%b" % (self._pool.head, len(body), body))

    def data_received(self, data: bytes) -> None:
        # The hot path: stamp, keep, and parse once the loop has read every socket that is ready.
        reads = self._pool.reads
        if not reads:
            self._soon(self._pool.drain)
        reads.append((clock(), self, data))

    def parse(self, at_s: float, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:  # bytes that nobody asked for
            self._retire()
            return
        exchange.feed(at_s, data)
        if exchange.over:
            self._exchange = None
            if exchange.reusable:
                self._pool.idle.append(self)
            else:
                self.abort()
            self._pool.end(exchange)

    def connection_lost(self, exc: Exception | None) -> None:
        lost_s = clock()
        self._pool.drain()  # what was read before counts before
        self._pool.connections.discard(self)
        exchange, self._exchange = self._exchange, None
        if self._pool.closed:
            return
        if exchange is None:
            self._retire()
        elif self._reused and exchange.first_byte_s is None:  # closed while idle, as our request went out
            self._pool.send_on_new_connection(exchange)
        else:
            exchange.connection_lost(lost_s, exc)
            self._pool.end(exchange)

    def abort(self) -> None:
        self._transport.abort()

    def _retire(self) -> None:
        if self in self._pool.idle:
            self._pool.idle.remove(self)
        self.abort()


def _connect_failure(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return f"cannot connect: {error.strerror or error}"
