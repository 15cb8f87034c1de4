"""A canned server of paced event streams: what the load client calibrates and tests itself against.

It answers any POST with `max_tokens` events at `chunks_per_s` (a field of the body, default 50), one
write per event. The text of an event is the server's monotonic clock when it was written, so a client
on the same machine can tell how late it saw it.
"""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import uvloop

STAMP = "%017.6f"
DEFAULT_CHUNKS_PER_S = 50.0

_ROOT = Path(__file__).resolve().parent.parent


def _event(choice: str, more: str = "") -> str:
    return (
        'data: {"id":"chatcmpl-7f3d0c5a9be14d0f","object":"chat.completion.chunk","created":1764460800,'
        f'"model":"canned","choices":[{choice}]{more}}}\n\n'
    )


def _chunk(event: str) -> bytes:
    """One HTTP chunk. The length is that of the event with its stamp filled in."""
    size = len(event.replace(STAMP, STAMP % 0.0))
    return f"{size:x}\r\n{event}\r\n".encode()


_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    + _chunk(_event('{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}'))
)
_TEXT = _chunk(
    _event('{"index":0,"delta":{"content":"' + STAMP + ' "},"logprobs":null,"finish_reason":null}')
)


def _tail(chunks: int) -> bytes:
    usage = f',"usage":{{"prompt_tokens":1,"completion_tokens":{chunks},"total_tokens":{chunks + 1}}}'
    finish = _chunk(_event('{"index":0,"delta":{},"finish_reason":"length"}'))
    return finish + _chunk(_event("", usage)) + _chunk("data: [DONE]\n\n") + b"0\r\n\r\n"


class _Stream(asyncio.Protocol):
    """One connection: a request in, a paced stream out, and again."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if end and len(body) >= _content_length(head):
            self._received = b""
            self._answer(json.loads(body))

    def _answer(self, asked: dict[str, float]) -> None:
        self._chunks = self._left = int(asked["max_tokens"])
        self._gap_s = 1 / asked.get("chunks_per_s", DEFAULT_CHUNKS_PER_S)
        self._next_at = self._loop.time() + self._gap_s
        self._transport.write(_HEAD)
        self._timer = self._loop.call_at(self._next_at, self._write_chunk)

    def _write_chunk(self) -> None:
        self._transport.write(_TEXT % time.monotonic())
        self._left -= 1
        if self._left:
            self._next_at += self._gap_s
            self._timer = self._loop.call_at(self._next_at, self._write_chunk)
        else:
            self._transport.write(_tail(self._chunks))


def _content_length(head: bytes) -> int:
    lines = (line.partition(b":") for line in head.split(b"\r\n"))
    return next(int(value) for name, _, value in lines if name.lower() == b"content-length")


@contextmanager
def canned_server() -> Iterator[str]:
    """Run the server in a process of its own; gives its base URL. It ends with the context or the caller."""
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        descriptor = listener.fileno()
        port = listener.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "sweeps.canned", str(descriptor)],
            stdin=subprocess.PIPE,
            pass_fds=(descriptor,),
            cwd=_ROOT,
        )
    with process:  # leaving closes its standard input, the sign to end, and waits
        yield f"http://127.0.0.1:{port}"


def main() -> None:
    """Serve on the listening socket inherited as the descriptor argv[1] until standard input ends."""
    loop = uvloop.new_event_loop()
    listener = socket.socket(fileno=int(sys.argv[1]))
    loop.run_until_complete(loop.create_server(lambda: _Stream(loop), sock=listener, backlog=2048))
    loop.add_reader(sys.stdin.fileno(), loop.stop)
    loop.run_forever()


if __name__ == "__main__":
    main()
