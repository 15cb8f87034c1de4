"""Traces are read one event at a time, in whatever pieces they come."""

import json

import pytest

from analysis.trace_events import TraceDamaged, events

EVENTS = [{"ph": "X", "name": 'a "quoted" ] } name \u00e9', "args": {"x": [1, {"y": "]}"}]}}, {"ph": "M"}]
TRACE = json.dumps({"deviceProperties": [{"id": 0}], "traceEvents": EVENTS, "traceName": "t"}, indent=1)


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
@pytest.mark.parametrize("text", [TRACE, json.dumps(EVENTS), " " + TRACE])
def test_the_same_events_in_any_pieces(text: str, size: int) -> None:
    content = text.encode()
    assert [*events(content[i : i + size] for i in range(0, len(content), size))] == EVENTS


def test_control_characters_in_a_name_are_taken() -> None:
    assert [*events([b'[{"name": "a\x01\nb"}]'])] == [{"name": "a\x01\nb"}]


@pytest.mark.parametrize("cut", [0, 5, 60, len(TRACE) // 2])
def test_a_trace_that_ends_too_early(cut: int) -> None:
    with pytest.raises(TraceDamaged, match="ends before"):
        [*events([TRACE[:cut].encode()])]


def test_what_is_no_json_is_not_read_into_memory_whole() -> None:
    pieces = iter([b'{"traceEvents": [nonsense', *[b"x" * (1 << 20)] * 40])
    with pytest.raises(TraceDamaged, match="no JSON"):
        [*events(pieces)]
    assert next(pieces, None) is not None
