"""Streams that other benchmarks misread, and what must be read from them."""

import json

import pytest

from results.records import Request
from sweeps.exchange import Exchange, Job
from tests.sweeps.scripted_server import SSE_HEAD, chunked

CREATED = {"id": "c1", "object": "chat.completion.chunk"}


def event(finish_reason: str | None = None, **delta: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: " + json.dumps({**CREATED, "choices": [choice]}).encode() + b"\n\n"


def usage(completion: int, prompt: int | None = None) -> bytes:
    counted = {"completion_tokens": completion} | ({} if prompt is None else {"prompt_tokens": prompt})
    return b"data: " + json.dumps({**CREATED, "choices": [], "usage": counted}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def received(*events: bytes, arrival_ms: tuple[int, ...] = ()) -> Request:
    """The record of a request sent at 0 whose events arrived one by one."""
    exchange = Exchange(Job("p", "c", b"{}"), scheduled_s=0.0, sent_s=0.0)
    times_ms = arrival_ms or tuple(range(1, len(events) + 1))
    exchange.feed(times_ms[0] / 1000, SSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    for at_ms, one in zip(times_ms, events, strict=True):
        exchange.feed(at_ms / 1000, chunked(one, end=one is events[-1]))
    assert exchange.over
    return exchange.request(0.0, str)


def test_25_tokens_come_from_usage_and_times_from_the_text_events() -> None:
    request = received(
        event(role="assistant", content=""),
        event(content="one"),
        event(content=" two three four"),
        event(content=" five"),
        event(content=" six seven eight nine"),
        event(content=" ten eleven twelve"),
        event("length"),
        usage(12, 5),
        DONE,
        arrival_ms=(40, 60, 80, 100, 120, 140, 140, 141, 141),
    )
    assert (request.output_tokens, len(request.chunk_s)) == (12, 5)
    assert request.first_byte_s == pytest.approx(0.040)
    assert request.ttft_s == pytest.approx(0.060)
    assert request.tpot_s == pytest.approx((0.140 - 0.060) / 11)
    gaps_s = [b - a for a, b in zip(request.chunk_s, request.chunk_s[1:], strict=False)]
    assert gaps_s == pytest.approx([0.020] * 4)


def test_25_without_usage_tokens_are_unknown_and_never_counted() -> None:
    request = received(event(content="one two"), event("stop"), DONE)
    assert (request.output_tokens, request.tpot_s, request.error) == (None, None, None)


def test_27_reasoning_and_content_are_both_text() -> None:
    request = received(
        event(role="assistant"),
        event(reasoning="think a"),
        event(reasoning=" b c"),
        event(content="ans"),
        event("stop"),
        usage(6),
        DONE,
    )
    assert request.ttft_s is not None
    assert set(request.text_channels) == {"reasoning", "content"}
    assert (request.reasoning_text, request.text, request.output_tokens) == ("think a b c", "ans", 6)


def test_27_a_stream_of_reasoning_only_has_a_first_token() -> None:
    request = received(
        event(role="assistant"),
        event(reasoning_content="think a"),
        event(reasoning_content=" b c"),
        event("length"),
        usage(500),
        DONE,
    )
    assert request.ttft_s is not None
    assert request.text_channels == ("reasoning_content",)
    assert (request.text, request.output_tokens) == ("", 500)


def test_27_tokens_under_a_key_nobody_knows_leave_no_text_but_the_usage() -> None:
    request = received(event(pondering="hm"), event("stop"), usage(500), DONE)
    assert (request.chunk_s, request.text_channels, request.output_tokens) == ((), (), 500)


def test_24_degenerate_text_is_kept_as_it_is() -> None:
    request = received(
        event(role="assistant"),
        event(content=" the!!!!"),
        *[event(content="!!!!")] * 5,
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}],
                                "usage": {"prompt_tokens": 6, "completion_tokens": 32}}).encode() + b"\n\n",
        DONE,
    )  # fmt: skip
    assert (request.output_tokens, request.text) == (32, " the" + "!" * 24)


@pytest.mark.parametrize(
    ("content", "reasoning", "finish_reason", "tokens"),
    [("", "long", "length", 300), ("42", "", "stop", 12), ("text", "", "length", 300)],
)
def test_28_channels_and_finish_reason_tell_whether_there_is_an_answer(
    content: str, reasoning: str, finish_reason: str, tokens: int
) -> None:
    request = received(
        event(role="assistant", content=""),
        event(content=content, reasoning_content=reasoning),
        event(finish_reason),
        usage(tokens),
        DONE,
    )
    assert (request.text, request.reasoning_text) == (content, reasoning)
    assert (request.finish_reason, request.output_tokens) == (finish_reason, tokens)
    assert request.text_channels == (("content",) if content else ("reasoning_content",))
