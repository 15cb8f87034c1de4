"""The load client against servers that answer well, badly or not at all."""

import gc
import json
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from results.errors import UsageError
from results.records import Request
from sweeps.canned import canned_server
from sweeps.exchange import Exchange
from sweeps.load import Job, LoadResult, Target, drive, job
from sweeps.pace import Closed, Pace, Poisson, Replay
from sweeps.workload import Prompt
from tests.sweeps.scripted_server import SSE_HEAD, Answer, End, chunked, scripted_server

PATH = "/v1/chat/completions"
TEXT = b'data: {"choices":[{"delta":{"content":"ab"}}]}\n\n'
FINISH = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\n'
DONE = b"data: [DONE]\n\n"
BODY = TEXT + TEXT + FINISH + USAGE + DONE
CHUNKED_HEAD = SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
SIZED_HEAD = SSE_HEAD + b"Content-Length: %d\r\n\r\n"
GOOD = Answer([CHUNKED_HEAD + chunked(BODY)], End.KEEP)


def jobs(count: int = 1) -> list[Job]:
    return [Job(f"p{number}", "chat", b"{}") for number in range(count)]


def refusal(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


def ask(*answers: Answer, count: int = 1, pace: Pace | None = None) -> LoadResult:
    with scripted_server(*answers) as server:
        return drive(Target(server.url, PATH), jobs(count), pace or Closed(1), stall_timeout_s=20)


def ask_one(*parts: bytes, end: End = End.CLOSE) -> Request:
    (request,) = ask(Answer(parts, end)).requests
    return request


FRAMINGS = {
    "chunked": [CHUNKED_HEAD, chunked(TEXT, TEXT, FINISH, USAGE, DONE)],
    "chunked, one write": [CHUNKED_HEAD + chunked(BODY)],
    "chunked, byte by byte": [bytes([b]) for b in CHUNKED_HEAD + chunked(BODY)],
    "chunked, events across chunks": [CHUNKED_HEAD, chunked(BODY[:60], BODY[60:61], BODY[61:])],
    "chunked, with extension and trailer": [
        CHUNKED_HEAD, b"%x;name=value\r\n%b\r\n0\r\nx-checksum: 1\r\n\r\n" % (len(BODY), BODY)
    ],
    "content length": [SIZED_HEAD % len(BODY), BODY],
    "interim response first": [b"HTTP/1.1 100 Continue\r\n\r\n", CHUNKED_HEAD, chunked(BODY)],
}  # fmt: skip


@pytest.mark.parametrize("end", [End.CLOSE, End.KEEP, End.HOLD])
@pytest.mark.parametrize("parts", FRAMINGS.values(), ids=FRAMINGS.keys())
def test_a_marked_end_is_seen_whatever_happens_to_the_connection(parts: list[bytes], end: End) -> None:
    request = ask_one(*parts, end=end)
    assert (request.error, request.text, request.output_tokens) == (None, "abab", 4)
    assert (request.prompt_id, request.workload_class, request.finish_reason) == ("p0", "chat", "stop")
    assert len(request.chunk_s) == 2


@pytest.mark.parametrize(
    "head", [SSE_HEAD, SSE_HEAD + b"Connection: close\r\n", SSE_HEAD.replace(b"1.1", b"1.0")]
)
def test_a_body_may_end_with_the_connection(head: bytes) -> None:
    request = ask_one(head + b"\r\n", TEXT, TEXT + FINISH, USAGE)
    assert (request.error, request.text, request.output_tokens) == (None, "abab", 4)


def test_done_ends_a_body_without_a_marked_end() -> None:
    result = ask(Answer([SSE_HEAD + b"\r\n", BODY], End.HOLD))
    assert (result.stalled, result.requests[0].error) == (False, None)
    assert result.wall_s < 20  # the stall timeout was not what ended it


def test_times_are_in_order() -> None:
    request = ask_one(*FRAMINGS["chunked"])
    assert request.first_byte_s is not None
    moments = [request.scheduled_s, request.sent_s, request.first_byte_s, *request.chunk_s, request.ended_s]
    assert moments == sorted(moments)


@pytest.mark.parametrize(
    ("parts", "end", "error"),
    [
        ([], End.CLOSE, "connection closed without a response"),
        ([], End.RESET, "connection reset"),
        ([b"HTTP/1.1 2"], End.CLOSE, "stream cut"),
        ([CHUNKED_HEAD], End.CLOSE, "stream cut"),
        ([CHUNKED_HEAD, chunked(TEXT, end=False)], End.CLOSE, "stream cut"),
        ([CHUNKED_HEAD, chunked(TEXT, end=False)[:-9]], End.CLOSE, "stream cut"),
        ([SIZED_HEAD % len(BODY), TEXT], End.CLOSE, "stream cut"),
        ([SSE_HEAD + b"\r\n", TEXT], End.CLOSE, "stream cut"),
        ([CHUNKED_HEAD, chunked(TEXT)], End.KEEP, "stream cut"),
        ([CHUNKED_HEAD, chunked()], End.KEEP, "no text in the response and no end of the stream"),
        ([b"hello\r\n\r\n"], End.HOLD, "malformed HTTP response: "),
        ([CHUNKED_HEAD, b"zz\r\n"], End.HOLD, "malformed HTTP response: "),
        ([SIZED_HEAD % 9, b"<html> \n\n"], End.KEEP, "malformed line: <html>"),
        ([CHUNKED_HEAD, chunked(b"data: {oops\n\n", DONE)], End.KEEP, "malformed event: {oops"),
        (
            [CHUNKED_HEAD, chunked(TEXT, b'data: {"error": {"message": "dead"}}\n\n', DONE)],
            End.KEEP,
            "server error: dead",
        ),
        ([refusal(503, b"busy")], End.KEEP, "HTTP 503: busy"),
        ([b"HTTP/1.1 204 No\r\n\r\n"], End.KEEP, "HTTP 204: no message"),
        ([refusal(400, b'{"error":{"message":"too\\n  long"}}')], End.KEEP, "HTTP 400: too long"),
        ([b"HTTP/1.1 500 No\r\n\r\n", b"x" * 9000], End.CLOSE, "HTTP 500: xxx"),
    ],
)
def test_what_goes_wrong_is_one_line_of_the_request(parts: list[bytes], end: End, error: str) -> None:
    request = ask_one(*parts, end=end)
    assert request.error is not None
    assert request.error.startswith(error)
    assert request.error.isprintable()
    assert len(request.error) <= 300


def test_a_reset_in_mid_stream_is_a_cut_and_keeps_what_came() -> None:
    request = ask_one(CHUNKED_HEAD, chunked(TEXT, end=False), end=End.RESET)
    assert str(request.error).startswith(("stream cut", "connection reset"))  # a reset may overtake the text


def test_a_whole_answer_is_no_error_though_the_connection_is_cut_after_it() -> None:
    assert ask_one(CHUNKED_HEAD, chunked(BODY, end=False)).error is None


def test_usage_that_never_came_is_unknown() -> None:
    request = ask_one(CHUNKED_HEAD, chunked(TEXT, FINISH, DONE))
    assert (request.error, request.output_tokens, request.prompt_tokens) == (None, None, None)


def test_nobody_listening_is_connection_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    result = drive(Target(url, PATH), jobs(3), Closed(2))
    assert [r.error for r in result.requests] == ["connection refused"] * 3


def test_a_connection_is_reused_until_the_server_closes_it() -> None:
    with scripted_server(GOOD) as server:
        assert not failures(drive(Target(server.url, PATH), jobs(20), Closed(1)))
        assert server.connections == 1
    closing = Answer([CHUNKED_HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + chunked(BODY)])
    with scripted_server(closing) as server:
        assert not failures(drive(Target(server.url, PATH), jobs(20), Closed(1)))
        assert server.connections == 20


def test_a_connection_closed_while_idle_costs_no_request() -> None:
    silent_close = Answer(GOOD.parts, End.CLOSE)  # promises to keep the connection and closes it
    assert not failures(ask(silent_close, count=30))


@pytest.mark.parametrize("parts", [[*GOOD.parts, b"HTTP"], [GOOD.parts[0] + b"HTTP/1.1 200 OK\r\n"]])
def test_bytes_that_nobody_asked_for_spoil_the_connection_and_no_request(parts: list[bytes]) -> None:
    with scripted_server(Answer(parts, End.KEEP)) as server:
        result = drive(Target(server.url, PATH), jobs(2), Replay([0.0, 0.5]))
        assert server.connections == 2
    assert not failures(result)


def failures(result: LoadResult) -> list[str]:
    return [request.error for request in result.requests if request.error]


def test_a_closed_loop_has_its_concurrency_in_flight_and_no_more() -> None:
    with canned_server() as url:
        body = b'{"max_tokens": 10, "chunks_per_s": 200}'
        result = drive(Target(url, PATH), [Job(f"p{n}", "c", body) for n in range(32)], Closed(8))
    edges = [(r.sent_s, 1) for r in result.requests] + [(r.ended_s, -1) for r in result.requests]
    in_flight, seen = 0, []
    for _, step in sorted(edges):
        in_flight += step
        seen.append(in_flight)
    assert max(seen) == 8
    assert not failures(result)
    assert [r.prompt_id for r in result.requests] == [f"p{n}" for n in range(32)]


def test_an_open_loop_sends_on_schedule_though_nothing_is_answered() -> None:
    silent = Answer([], End.HOLD)
    with scripted_server(silent) as server:
        target = Target(server.url, PATH)
        result = drive(target, jobs(20), Replay([0.01 * n for n in range(20)]), stall_timeout_s=0.5)
        assert len(server.requests) == 20
    assert [r.scheduled_s for r in result.requests] == pytest.approx([0.01 * n for n in range(20)])
    assert all(r.sent_s >= r.scheduled_s for r in result.requests)


def test_an_open_loop_keeps_scheduled_and_sent_apart() -> None:
    pace = Poisson(500, seed=2)
    result = ask(GOOD, count=20, pace=pace)
    expected = [pace.next_s(number, 0) for number in range(20)]
    assert [r.scheduled_s for r in result.requests] == pytest.approx(expected)
    assert not failures(result)


def test_a_replay_that_is_shorter_than_the_jobs_ends() -> None:
    assert len(ask(GOOD, count=5, pace=Replay([0.0, 0.0])).requests) == 2


def test_no_token_on_any_stream_is_a_stall() -> None:
    hanging = Answer([CHUNKED_HEAD, chunked(TEXT, end=False), chunked(b": ping\n\n", end=False)], End.HOLD)
    with scripted_server(GOOD, hanging) as server:
        result = drive(Target(server.url, PATH), jobs(3), Closed(2), stall_timeout_s=0.5)
    assert (result.stalled, result.stopped_early) == (True, False)
    errors = {r.prompt_id: r.error for r in result.requests}
    assert list(errors.values()).count("stalled: no token for 0.5 s") == 2
    assert list(errors.values()).count(None) == 1


def test_a_stream_that_said_done_is_whole_though_the_server_hangs_then() -> None:
    with scripted_server(Answer([CHUNKED_HEAD, chunked(BODY, end=False)], End.HOLD)) as server:
        result = drive(Target(server.url, PATH), jobs(), Closed(1), stall_timeout_s=0.2)
    assert not failures(result)


def canned_job(tokens: int, per_s: float) -> Job:
    return Job("p", "c", json.dumps({"max_tokens": tokens, "chunks_per_s": per_s}).encode())


def test_slow_tokens_are_no_stall() -> None:
    with canned_server() as url:
        drive(Target(url, PATH), [canned_job(1, 100)], Closed(1))  # until the server is up
        result = drive(Target(url, PATH), [canned_job(13, 10)], Closed(1), stall_timeout_s=1.0)
    assert (result.stalled, failures(result)) == (False, [])


def test_tokens_of_any_stream_put_the_stall_off() -> None:
    silent, short = canned_job(1, 0.01), canned_job(1, 3)
    with canned_server() as url:
        drive(Target(url, PATH), [canned_job(1, 100)], Closed(1))
        result = drive(Target(url, PATH), [silent, *[short] * 4], Closed(2), stall_timeout_s=0.9)
    assert [r.error for r in result.requests] == ["stalled: no token for 0.9 s", None, None, None, None]


def test_a_pause_without_requests_is_no_stall() -> None:
    with canned_server() as url:
        drive(Target(url, PATH), [canned_job(1, 100)], Closed(1))
        pace = Replay([0.0, 1.7])
        result = drive(Target(url, PATH), [canned_job(1, 5)] * 2, pace, stall_timeout_s=0.9)
    assert (result.stalled, failures(result)) == (False, [])


def test_time_that_the_client_itself_lost_is_no_stall() -> None:
    def slow(request: Request) -> bool:
        time.sleep(0.8)
        return True

    with canned_server() as url:
        drive(Target(url, PATH), [canned_job(1, 100)], Closed(1))
        load = [canned_job(1, 100), canned_job(60, 40)]
        result = drive(Target(url, PATH), load, Closed(2), stall_timeout_s=0.7, on_request=slow)
    assert (result.stalled, failures(result)) == (False, [])


def test_saying_no_stops_the_load_and_drops_what_is_in_flight() -> None:
    seen: list[Request] = []

    def enough(request: Request) -> bool:
        seen.append(request)
        return len(seen) < 3

    with scripted_server(GOOD, GOOD, GOOD, Answer([], End.HOLD)) as server:
        result = drive(Target(server.url, PATH), jobs(50), Closed(2), on_request=enough)
    assert (result.stopped_early, result.stalled) == (True, False)
    assert sorted(r.prompt_id for r in seen) == sorted(r.prompt_id for r in result.requests)
    assert len(seen) == 3


def test_the_deadline_stops_the_load() -> None:
    with scripted_server(GOOD, Answer([], End.HOLD)) as server:
        result = drive(Target(server.url, PATH), jobs(3), Closed(1), deadline_s=1.0)
    assert result.stopped_early
    assert len(result.requests) == 1


def test_an_exception_of_the_caller_comes_out() -> None:
    def broken(request: Request) -> bool:
        raise KeyError(request.prompt_id)

    with scripted_server(GOOD) as server, pytest.raises(KeyError):
        drive(Target(server.url, PATH), jobs(3), Closed(1), on_request=broken)


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C interrupts, also where a shell started the tests in the background, which ignores it."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_it_and_closes_the_sockets() -> None:
    with canned_server() as url:  # the first load of a process opens files that stay
        drive(Target(url, PATH), jobs(1), Closed(1))
    interrupt = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    with scripted_server(Answer([], End.HOLD)) as server:
        before = open_files()
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            drive(Target(server.url, PATH), jobs(4), Closed(4))
        assert server.connections == 4
        assert open_files() == before + 4  # the ends of the server, in this process too


def test_a_thousand_streams_are_seen_whole() -> None:
    body = b'{"max_tokens": 10, "chunks_per_s": 20}'
    with canned_server() as url:
        result = drive(Target(url, PATH), [Job(f"p{n}", "c", body) for n in range(1000)], Closed(1000))
    assert not failures(result)
    assert sum(len(r.chunk_s) for r in result.requests) == 10_000
    assert {r.output_tokens for r in result.requests} == {10}


def test_more_streams_than_the_soft_limit_on_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with canned_server() as url:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
        try:
            result = drive(Target(url, PATH), [canned_job(2, 20)] * 150, Closed(150))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not failures(result)


def test_what_a_request_needed_is_freed_when_it_has_ended() -> None:
    alive: list[int] = []

    def count(request: Request) -> bool:
        alive.append(sum(isinstance(thing, Exchange) for thing in gc.get_objects()))
        return True

    gc.collect()
    gc.disable()  # freed by reference counts alone
    try:
        with scripted_server(GOOD) as server:
            drive(Target(server.url, PATH), jobs(40), Closed(1), on_request=count)
    finally:
        gc.enable()
    assert len(alive) == 40
    assert max(alive) <= 2


SECRET = "sk-very-secret-key"


@pytest.mark.parametrize(
    "answer",
    [
        refusal(401, b'{"error":{"message":"bad key sk-very-secret-key"}}'),
        CHUNKED_HEAD + chunked(b'data: {"error": "bad key sk-very-secret-key"}\n\n'),
        CHUNKED_HEAD + chunked(b"data: bad key sk-very-secret-key\n\n"),
        CHUNKED_HEAD + chunked(b"data: " + b"x" * 275 + b" sk-very-secret-key\n\n"),
    ],
)
def test_a_key_is_sent_and_shown_nowhere(answer: bytes) -> None:
    with scripted_server(Answer([answer])) as server:
        target = Target(server.url, PATH, {"Authorization": f"Bearer {SECRET}"})
        (request,) = drive(target, jobs(), Closed(1)).requests
        assert f"Authorization: Bearer {SECRET}\r\n".encode() in server.requests[0]
    assert request.error is not None
    assert "sk-very" not in request.error
    assert SECRET not in repr(target)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Target("ftp://127.0.0.1:1", PATH),
        lambda: Target("127.0.0.1:8000", PATH),
        lambda: Target("http://127.0.0.1:x", PATH),
        lambda: Target("http://", PATH),
        lambda: Target(f"http://user:{SECRET}@127.0.0.1:1", PATH),
        lambda: Target("http://127.0.0.1:1", PATH, {"Authorization": f"{SECRET}\r\nx: y"}),
    ],
)
def test_a_target_that_cannot_be_asked_is_a_usage_error(make: Callable[[], Target]) -> None:
    with pytest.raises(UsageError) as raised:
        drive(make(), jobs(), Closed(1))
    assert SECRET not in str(raised.value)


def test_the_request_is_plain_http() -> None:
    with scripted_server(GOOD) as server:
        drive(Target(server.url + "/prefix/", PATH, {"X-Team": "a"}), [Job("p", "c", b'{"a":1}')], Closed(1))
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /prefix/v1/chat/completions HTTP/1.1"
    assert {b"X-Team: a", b"Content-Type: application/json", b"Content-Length: 7"} < set(lines)
    assert body == b'{"a":1}'


def test_a_job_asks_for_a_stream_with_usage() -> None:
    chat = Prompt("p1", "code", messages=({"role": "user", "content": "é"},))
    made = job(
        chat, model="m", max_tokens=9, sampling={"temperature": 0}, extra={"stream": False, "x": 1}, chat=True
    )
    assert (made.prompt_id, made.workload_class) == ("p1", "code")
    assert json.loads(made.body) == {
        "model": "m",
        "messages": [{"role": "user", "content": "é"}],
        "max_tokens": 9,
        "temperature": 0,
        "x": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_plain_prompt_goes_to_either_endpoint() -> None:
    plain = Prompt("p1", "code", text="def f")
    fields = {"model": "m", "max_tokens": 9, "sampling": {}, "extra": {}}
    completion = json.loads(job(plain, chat=False, **fields).body)  # type: ignore[arg-type]
    assert (completion["prompt"], completion["max_tokens"]) == ("def f", 9)
    assert "messages" not in completion
    chat = json.loads(job(plain, chat=True, **fields).body)  # type: ignore[arg-type]
    assert chat["messages"] == [{"role": "user", "content": "def f"}]


def test_chat_messages_cannot_go_to_the_completions_endpoint() -> None:
    chat = Prompt("p1", "code", messages=({"role": "user", "content": "hi"},))
    with pytest.raises(UsageError, match="p1"):
        job(chat, model="m", max_tokens=9, sampling={}, extra={}, chat=False)
