"""A server that answers each request with a script: bytes as they are, and how the connection ends."""

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


class End(Enum):
    """What happens after the bytes of an answer."""

    KEEP = "wait for another request on the connection"
    CLOSE = "close the connection"
    RESET = "reset the connection"
    HOLD = "send nothing more and keep the connection open"


@dataclass(frozen=True)
class Answer:
    parts: Sequence[bytes]  # one write each
    end: End = End.CLOSE


@dataclass
class ScriptedServer:
    """Request number i of all connections gets answer i; the last answer is for all that follow."""

    answers: Sequence[Answer]
    url: str = ""
    requests: list[bytes] = field(default_factory=list)  # as received, head and body
    connections: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def accept_all(self, listener: socket.socket) -> None:
        while not self._over.is_set():
            connection, _ = listener.accept()
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while (request := _read_request(connection)) and self._answer(connection, request) is End.KEEP:
                pass

    def _answer(self, connection: socket.socket, request: bytes) -> End:
        with self._lock:
            answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
            self.requests.append(request)
        for part in answer.parts:
            connection.sendall(part)
        if answer.end is End.RESET:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif answer.end is End.HOLD:
            self._over.wait()
        return answer.end


def _read_request(connection: socket.socket) -> bytes:
    """Head and body of the next request; empty if the client has gone."""
    received = b""
    while not _is_whole(received):
        try:
            data = connection.recv(65536)
        except OSError:
            return b""
        if not data:
            return b""
        received += data
    return received


def _is_whole(received: bytes) -> bool:
    head, end, body = received.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    return bool(end) and len(body) >= int(fields[b"content-length"])


@contextmanager
def scripted_server(*answers: Answer) -> Iterator[ScriptedServer]:
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        port = listener.getsockname()[1]
        server = ScriptedServer(answers, f"http://127.0.0.1:{port}")
        thread = threading.Thread(target=server.accept_all, args=(listener,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            socket.create_connection(("127.0.0.1", port)).close()  # wakes accept
            thread.join()


def chunked(*pieces: bytes, end: bool = True) -> bytes:
    """Pieces as HTTP chunks."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return body + (b"0\r\n\r\n" if end else b"")
