"""The HTTP side of the stand-in: a thread that streams scripted tokens over real HTTP/1.1 and SSE."""

import json
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from launchers.launcher import Launch
from launchers.port import LOOPBACK
from results.records import Point

START_S = "FAKE_START_S"  # variable of a server: seconds until it is ready
WORDS = ("the", "one", "river", "stone", "light", "runs", "over", "under", "green", "cold", "old", "far")


class Fault(StrEnum):
    """What goes wrong with a Point."""

    REFUSES_TO_START = "refuses to start"
    DIES_UNDER_LOAD = "dies under load"
    HANGS = "hangs"
    IGNORES_SETTING = "ignores a setting"
    DOES_NOT_SPECULATE = "does not speculate"
    GARBAGE = "garbage"
    ERROR_EVENT = "error event"
    ONLY_REASONS = "only reasons"


def class_before_colon(prompt: str) -> str:
    """Workload class of a test prompt: `code: write ...` is of the class `code`."""
    return prompt.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Script:
    """How the stand-in behaves."""

    speed: Callable[[Point, str], float]  # (point, workload class) -> tokens per second of one stream
    fault: Callable[[Point], Fault | None]
    class_of: Callable[[str], str]  # text of the last message -> workload class
    answer: Callable[[Point, str], str | None] = lambda point, prompt: None  # what it says; None = words
    pinned: Callable[[tuple[int, ...]], float] = lambda cores: (
        1.0
    )  # what being pinned there does to the speed


class FakeEndpoint:
    """The running stand-in; its thread is in this process, so it has no pids of its own."""

    def __init__(self, launch: Launch, script: Script) -> None:
        self.base_url = f"http://{LOOPBACK}:{launch.port}"
        self.log_path = launch.log_path
        self.script = script
        self._env = launch.env
        self.cores = launch.cores
        self._ready_at = time.monotonic() + float(launch.env.get(START_S) or 0)
        self.point = Point(*json.loads(launch.argv[1]))
        self.fault = script.fault(self.point)
        self.counts = {"drafts": 0, "draft_tokens": 0, "accepted": 0}
        self.lock = threading.Lock()
        self.ending = threading.Event()
        self._exit_code: int | None = None
        self._server: ThreadingHTTPServer | None = None
        if self.fault is Fault.REFUSES_TO_START:
            self.die(1, "error: this combination of settings is refused")
        else:
            self._serve(launch.port)

    @property
    def speculating(self) -> bool:
        return not self.point.is_baseline and self.fault is not Fault.DOES_NOT_SPECULATE

    @property
    def is_up(self) -> bool:
        return time.monotonic() >= self._ready_at

    def exit_code(self) -> int | None:
        return self._exit_code

    def owns_port(self) -> bool:
        return self._exit_code is None

    def pids(self) -> tuple[int, ...]:
        return ()

    def environment(self) -> dict[str, str]:
        return {k: v for k, v in self._env.items() if v is not None}

    def killed_for_memory(self) -> str | None:
        return None

    def ended_from_outside(self) -> str | None:
        return None

    def part_ended(self) -> str:
        return ""

    def die(self, exit_code: int, last_line: str) -> None:
        with self.log_path.open("a") as log:
            log.write(f"{last_line}\n")
        self._exit_code = exit_code
        self.end()

    def end(self) -> None:
        """Close the listener and cut what is still streaming."""
        self.ending.set()
        with self.lock:
            server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def _serve(self, port: int) -> None:
        handler = type("Handler", (_Stream,), {"endpoint": self})
        server = _Server((LOOPBACK, port), handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self._server = server


class _Server(ThreadingHTTPServer):
    block_on_close = False
    request_queue_size = 128


class _Stream(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a chunk must not wait for the one before it to be acknowledged
    endpoint: FakeEndpoint

    def parse_request(self) -> bool:
        """A dead server does not answer on connections that were opened while it lived."""
        self.close_connection = True
        return not self.endpoint.ending.is_set() and super().parse_request()

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_GET(self) -> None:
        endpoint = self.endpoint
        if self.path == "/health" and not endpoint.is_up:
            return self.send_error(503, "starting")
        if self.path == "/metrics":
            lines = [f"# TYPE fake:{k} counter\nfake:{k}_total {v}" for k, v in endpoint.counts.items()]
            return self._answer("\n".join(lines) + "\n")
        if self.path == "/v1/models":
            return self._answer(json.dumps({"object": "list", "data": [{"id": "fake-model"}]}))
        knobs = dict(endpoint.point.knobs)
        if endpoint.fault is Fault.IGNORES_SETTING:
            knobs = dict.fromkeys(knobs, 1_000)
        return self._answer(json.dumps({"knobs": knobs, "speculating": endpoint.speculating}))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if not self.path.startswith("/v1/"):
            return self._answer("{}")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(ConnectionError):
            self._stream(json.loads(body), chat="chat" in self.path)
        return None

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def _stream(self, body: Mapping[str, Any], *, chat: bool) -> None:
        prompt = body["messages"][-1]["content"] if chat else body["prompt"]
        point, fault, script = self.endpoint.point, self.endpoint.fault, self.endpoint.script
        tokens_per_s = script.speed(point, script.class_of(prompt)) * script.pinned(self.endpoint.cores)
        said = script.answer(point, prompt)
        pieces = [] if said is None else re.findall(r"\s*\S+", said)
        limit = int(body.get("max_tokens") or 32)
        tokens, sent, start = limit if said is None else min(limit, len(pieces)), 0, time.perf_counter()
        words, vocabulary = random.Random(prompt), ("!",) if fault is Fault.GARBAGE else WORDS
        while sent < tokens:
            step = min(self._step(), tokens - sent)
            self._count(step)
            sent += step
            late_s = time.perf_counter() - start - sent / tokens_per_s
            if self.endpoint.ending.wait(max(-late_s, 0)) or (sent > step and self._fails(fault)):
                return
            text = "".join(f"{words.choice(vocabulary)} " for _ in range(step))
            text = text if said is None else "".join(pieces[sent - step : sent])
            if fault is Fault.ONLY_REASONS:
                self._event({"choices": [{"index": 0, "delta": {"reasoning_content": text}}]})
            else:
                self._event({"choices": [_choice(text, None, chat)]})
        self._event({"choices": [_choice("", "length" if tokens == limit else "stop", chat)]})
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": tokens}
        self._event({"choices": [], "usage": usage})
        self._finish()

    def _step(self) -> int:
        """Tokens of one chunk: a speculating server emits what was accepted at once."""
        return 1 + min(int(self.endpoint.point.knobs["m"]), 3) if self.endpoint.speculating else 1

    def _count(self, emitted: int) -> None:
        if self.endpoint.speculating:
            with self.endpoint.lock:
                self.endpoint.counts["drafts"] += 1
                self.endpoint.counts["draft_tokens"] += int(self.endpoint.point.knobs["m"])
                self.endpoint.counts["accepted"] += emitted - 1

    def _fails(self, fault: Fault | None) -> bool:
        """Play the fault after the first chunk; True = the stream is over."""
        if fault is Fault.HANGS:
            self.endpoint.ending.wait()
        elif fault is Fault.DIES_UNDER_LOAD:
            self.endpoint.die(-9, "killed")
        elif fault is Fault.ERROR_EVENT:
            self._event({"error": {"code": 500, "message": "scripted failure", "type": "server_error"}})
            self._finish()
        self.close_connection = fault in (Fault.HANGS, Fault.DIES_UNDER_LOAD)
        return fault in (Fault.HANGS, Fault.DIES_UNDER_LOAD, Fault.ERROR_EVENT)

    def _event(self, event: Mapping[str, object]) -> None:
        self._chunk(f"data: {json.dumps(event)}\n\n")

    def _finish(self) -> None:
        self._chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, text: str) -> None:
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())


def _choice(text: str, finish: str | None, chat: bool) -> dict[str, object]:
    content = {"delta": {"content": text}} if chat else {"text": text}
    return {"index": 0, **content, "finish_reason": finish}
