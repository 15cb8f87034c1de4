"""The stream parser: every awkward but legal form, and whatever else a server may send."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.stream import StreamParser, error_text, one_line

USAGE = {"prompt_tokens": 5, "completion_tokens": 12, "total_tokens": 17}


def parse(*pieces: bytes) -> StreamParser:
    """Feed each piece; it arrives at the time of its index."""
    parser = StreamParser()
    for at_s, piece in enumerate(pieces):
        parser.feed(float(at_s), piece)
    parser.finish()
    return parser


def data(event: object) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def delta(finish_reason: str | None = None, **fields: object) -> dict[str, object]:
    return {"id": "c1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


def snapshot(parser: StreamParser) -> tuple[object, ...]:
    """All that is read from a stream, without the times."""
    return (
        len(parser.chunk_s),
        parser.text,
        parser.reasoning_text,
        parser.text_channels,
        parser.prompt_tokens,
        parser.output_tokens,
        parser.finish_reason,
        parser.error,
        parser.done,
        parser.complete,
        parser.engine_stats,
    )


CHAT = (
    data(delta(role="assistant", content=""))
    + data(delta(content="one"))
    + data(delta(content=" two"))
    + data(delta("stop"))
    + data({"id": "c1", "choices": [], "usage": USAGE})
    + b"data: [DONE]\n\n"
)


def test_a_chat_stream_gives_text_usage_and_finish() -> None:
    parser = parse(CHAT)
    assert (parser.text, parser.text_channels) == ("one two", ("content",))
    assert (parser.prompt_tokens, parser.output_tokens) == (5, 12)
    assert (parser.finish_reason, parser.error, parser.complete) == ("stop", None, True)
    assert len(parser.chunk_s) == 2  # the event with the role only is no text


def test_a_completions_stream_gives_text() -> None:
    parser = parse(data({"choices": [{"text": "a", "index": 0}]}), data({"choices": [{"text": "b"}]}))
    assert (parser.text, parser.text_channels, parser.chunk_s) == ("ab", ("text",), [0.0, 1.0])


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_is_text_of_its_own_channel(key: str) -> None:
    parser = parse(data(delta(**{key: "hm"})), data(delta(content="42")))
    assert (parser.reasoning_text, parser.text) == ("hm", "42")
    assert parser.text_channels == (key, "content")
    assert parser.chunk_s == [0.0, 1.0]


def test_the_same_reasoning_under_both_keys_counts_once() -> None:
    parser = parse(data(delta(reasoning="hm", reasoning_content="hm")))
    assert (parser.reasoning_text, len(parser.chunk_s)) == ("hm", 1)
    assert parser.text_channels == ("reasoning_content", "reasoning")


def test_tool_calls_carry_text_and_empty_ones_do_not() -> None:
    call = {"index": 0, "function": {"name": "f", "arguments": ""}}
    parser = parse(data(delta(tool_calls=[])), data(delta(tool_calls=None)), data(delta(tool_calls=[call])))
    assert (parser.chunk_s, parser.text_channels) == ([2.0], ("tool_calls",))


VARIANTS: dict[str, Callable[[bytes], bytes]] = {
    "crlf": lambda s: s.replace(b"\n", b"\r\n"),
    "cr": lambda s: s.replace(b"\n", b"\r"),
    "no space after the colon": lambda s: s.replace(b"data: ", b"data:"),
    "comments": lambda s: b": ping\n\n" + s.replace(b"\n\n", b"\n: ping\n\n:\n\n"),
    "byte order mark": lambda s: b"\xef\xbb\xbf" + s,
    "other fields": lambda s: s.replace(b"data: ", b"id: 7\nretry: 10\nevent: message\nx-y: z\ndata: "),
    "extra blank lines": lambda s: s.replace(b"\n\n", b"\n\n\n\n"),
    "empty data": lambda s: b"data:\n\n" + s,
    "data in several lines": lambda s: s.replace(b', "', b',\ndata: "'),
    "data in several lines, crlf": lambda s: s.replace(b', "', b',\ndata: "').replace(b"\n", b"\r\n"),
    "data in several lines, cr": lambda s: s.replace(b', "', b',\rdata: "').replace(b"\n", b"\r"),
    "spaces in the JSON": lambda s: s.replace(b"{", b"{  ").replace(b"}", b" \t}"),
    "no final blank line": lambda s: s[:-1],
    "no final line end": lambda s: s[:-2],
    "usage null in every event": lambda s: s.replace(b'{"id"', b'{"usage": null, "id"', 4),
    "error null in every event": lambda s: s.replace(b'{"id"', b'{"error": null, "id"'),
    "trailing garbage after [DONE]": lambda s: s + b"data: nonsense\n\n",
}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_legal_variants_read_the_same(variant: Callable[[bytes], bytes]) -> None:
    assert variant(CHAT) != CHAT
    assert snapshot(parse(variant(CHAT))) == snapshot(parse(CHAT))


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_a_split_anywhere_changes_nothing(variant: Callable[[bytes], bytes]) -> None:
    body, expected = variant(CHAT), snapshot(parse(CHAT))
    assert all(snapshot(parse(body[:at], body[at:])) == expected for at in range(len(body)))


@pytest.mark.parametrize("pending", [b": ping ", b"data: [1,\n", b"event: error\n"])
def test_a_whole_event_in_one_read_still_belongs_to_what_came_before(pending: bytes) -> None:
    event = data(delta(content="a"))
    assert snapshot(parse(pending, event)) == snapshot(parse(pending + event))
    assert parse(pending, event).text == ""


def test_without_done_the_finish_reason_or_the_usage_event_ends_the_stream() -> None:
    assert parse(data(delta("length", content="a"))).complete
    assert parse(data(delta(content="a")), data({"choices": [], "usage": USAGE})).complete
    assert not parse(data(delta(content="a"))).complete


def test_usage_in_every_event_is_no_end_and_its_last_value_counts() -> None:
    events = [data({**delta(content="a"), "usage": {"completion_tokens": n}}) for n in (1, 2, 3)]
    parser = parse(*events)
    assert (parser.output_tokens, parser.prompt_tokens, parser.complete) == (3, None, False)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [({"completion_tokens": 6.0}, 6), ({"completion_tokens": "6"}, None), ({"completion_tokens": -1}, None),
     ({"completion_tokens": True}, None), ({"completion_tokens": None}, None), ({}, None), ([], None),
     ({"completion_tokens": 1e400}, None)],
)  # fmt: skip
def test_only_a_whole_number_of_tokens_is_believed(usage: object, tokens: int | None) -> None:
    assert parse(data({"choices": [], "usage": usage})).output_tokens == tokens


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error": {"message": "engine died", "code": 500}}\n\n',
        b'data: {"error": "engine died"}\n\n',
        b'data: {"choices": [], "error": {"message": "engine died"}}\n\n',
        b'data: {"object": "error", "message": "engine died", "code": 500}\n\n',
        b'error: {"code": 500, "message": "engine died"}\n\n',
        b'event: error\ndata: {"message": "engine died"}\n\n',
        b"event: error\ndata: engine died\n\n",
        b'data: {"error": {"message": "engine died"}, "choices": [{"finish_reason": "error"}]}\n\n',
    ],
)
def test_an_error_in_the_stream_is_the_error(event: bytes) -> None:
    parser = parse(data(delta(content="a")), event, b"data: [DONE]\n\n")
    assert parser.error in ("server error: engine died", "server ended the request: error")
    assert parser.text == "a"


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_a_request_that_the_server_gave_up_is_an_error(reason: str) -> None:
    assert parse(data(delta(reason))).error == f"server ended the request: {reason}"


@pytest.mark.parametrize("garbage", [b"{", b"nope", b"42", b"[1]", b'"text"', b"[" * 100_000, b'{"a": tru}'])
def test_data_that_is_no_event_is_recorded(garbage: bytes) -> None:
    parser = parse(b"data: " + garbage + b"\n\n", CHAT)
    assert parser.error is not None
    assert parser.error.startswith("malformed event: ")
    assert parser.text == "one two"


def test_a_body_that_is_no_stream_is_recorded() -> None:
    assert parse(b"<html>busy</html>").error == "malformed line: <html>busy</html>"
    assert str(parse(b'{"choices": []}').error).startswith("malformed line")


def test_a_cut_last_event_is_dropped() -> None:
    parser = parse(data(delta(content="a")), data(delta(content="b"))[:-9])
    assert (parser.text, parser.error, parser.complete) == ("a", None, False)


def test_content_of_unexpected_type_is_read_as_far_as_possible() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, 3]
    parser = parse(data(delta(content=parts)), data(delta(content=7)), data({"choices": [None, "x"]}))
    assert (parser.text, parser.chunk_s, parser.error) == ("a", [0.0], None)


def test_broken_utf8_and_lone_surrogates_give_text_that_can_be_written() -> None:
    parser = parse(b'data: {"choices":[{"delta":{"content":"a\xff"}}]}\n\n', data(delta(content="\ud83d")))
    assert parser.text.encode()
    assert len(parser.chunk_s) == 2


def test_timings_of_the_last_event_are_engine_stats() -> None:
    timings = {"draft_n": 8, "draft_n_accepted": 6, "predicted_ms": 1.5, "name": "x", "ok": True, "v": [1]}
    parser = parse(data({**delta(content="a"), "timings": {"draft_n": 1}}), data({"timings": timings}))
    assert parser.engine_stats == {"draft_n": 8.0, "draft_n_accepted": 6.0, "predicted_ms": 1.5, "v.0": 1.0}


def test_what_sglang_and_vllm_say_of_a_request_is_kept_by_its_path() -> None:
    sglext = {"spec_tokens_details": {"verify_ct": 22, "histogram": [3, 19], "rate": None}}
    metrics = {"speculative_decoding": {"num_drafts": 5, "acceptance_rate": 0.5}}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
    parser = parse(
        data({**delta(content="a"), "sglext": None}),
        data({"choices": [], "sglext": sglext, "metrics": metrics, "usage": usage}),
    )
    assert parser.engine_stats == {
        "cache_n": 3.0,
        "sglext.spec_tokens_details.verify_ct": 22.0,
        "sglext.spec_tokens_details.histogram.0": 3.0,
        "sglext.spec_tokens_details.histogram.1": 19.0,
        "metrics.speculative_decoding.num_drafts": 5.0,
        "metrics.speculative_decoding.acceptance_rate": 0.5,
    }
    assert parser.error is None


def test_error_text_finds_the_message_and_one_line_is_one_line() -> None:
    assert error_text(b'{"error": {"message": "too long", "type": "x"}}') == "too long"
    assert error_text(b'{"error": "too long"}') == "too long"
    assert error_text(b'{"detail": "Not Found"}') == "Not Found"
    assert error_text(b"Bad Gateway") == "Bad Gateway"
    assert error_text(b"") == "no message"
    assert one_line("a\r\n b\x1b[0m") == "a b\ufffd[0m"
    assert len(one_line("x" * 10_000)) == 300


# Properties


@dataclass(frozen=True)
class Written:
    """A stream as a server writes it: its bytes, and where each event with text is complete."""

    body: bytes
    complete_at: tuple[int, ...]  # index of the byte that ends the event
    text: str


@st.composite
def streams(draw: st.DrawFn) -> Written:
    body, complete_at, text = b"", [], ""
    end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    for part in draw(st.lists(st.text(max_size=12), max_size=12)):
        fields = draw(st.permutations([*delta(content=part).items(), ("usage", None), ("created", 1)]))
        payload = json.dumps(dict(fields), ensure_ascii=draw(st.booleans())).encode()
        body += draw(st.sampled_from([b"", b": ping" + end, b"id: 1" + end, b": ping" + end + end]))
        body += draw(st.sampled_from([b"data: ", b"data:"])) + payload + end
        complete_at += [len(body)] if part else []
        body += end
        text += part
    return Written(body, tuple(complete_at), text)


def cut(body: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(c % (len(body) + 1) for c in cuts), len(body)]
    return [body[a:b] for a, b in pairwise(edges)]


CUTS = st.lists(st.integers(min_value=0, max_value=10_000), max_size=20)


@given(streams(), CUTS)
def test_splits_change_nothing_and_an_event_arrives_with_the_read_that_completes_it(
    written: Written, cuts: list[int]
) -> None:
    pieces = cut(written.body, cuts)
    parser = parse(*pieces)
    ends = [sum(map(len, pieces[: i + 1])) for i in range(len(pieces))]
    assert parser.text == written.text
    assert parser.chunk_s == [next(i for i, e in enumerate(ends) if e > at) for at in written.complete_at]
    assert snapshot(parser) == snapshot(parse(written.body))


FRAGMENTS = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [b"data: ", b"data", b"error: ", b"event: error", b"\n", b"\r", b"\r\n", b"\n\n", b"[DONE]", b": x",
         b'{"choices":[{"delta":{"content":"a"}}]}', b'{"choices":', b'"usage":{"completion_tokens":1}', b"}"]
    ),
)  # fmt: skip


@given(st.lists(FRAGMENTS, max_size=30), CUTS)
def test_arbitrary_bytes_never_raise_and_read_the_same_however_split(
    fragments: list[bytes], cuts: list[int]
) -> None:
    body = b"".join(fragments)
    assert snapshot(parse(*cut(body, cuts))) == snapshot(parse(body))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "reasoning", "tool_calls", "text", "usage", "error", "type",
                 "completion_tokens", "prompt_tokens", "finish_reason", "timings", "object", "message"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.lists(JSON, max_size=5))
def test_any_json_never_raises(events: list[object]) -> None:
    parser = parse(*map(data, events))
    assert parser.error is None or one_line(parser.error)
    assert parser.text.encode() is not None
