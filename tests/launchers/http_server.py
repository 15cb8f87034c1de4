"""A server of canned answers, for what an engine reads over HTTP."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Canned:
    """An Endpoint whose paths answer what they are given; any other path is 404."""

    def __init__(self, base_url: str, log_path: Path, owner: bool) -> None:
        self.base_url = base_url
        self.log_path = log_path
        self._owner = owner

    def exit_code(self) -> int | None:
        return None

    def owns_port(self) -> bool:
        return self._owner

    def pids(self) -> tuple[int, ...]:
        return ()

    def environment(self) -> None:
        return None

    def killed_for_memory(self) -> None:
        return None

    def ended_from_outside(self) -> None:
        return None

    def part_ended(self) -> str:
        return ""


@contextmanager
def canned(
    answers: Mapping[str, object], log_path: Path, log: str = "", owner: bool = True
) -> Iterator[Canned]:
    """Text answers as they are, everything else as JSON; the query of a path is ignored."""
    log_path.write_text(log)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Canned(f"http://127.0.0.1:{server.server_port}", log_path, owner)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
