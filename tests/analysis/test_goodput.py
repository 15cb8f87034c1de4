"""Goodput: which requests count, over which window, and that a count of none stays a finite ratio."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.block import log_speedup, mean_log_speedup
from analysis.goodput import goodput, within
from analysis.summary import summarise
from analysis.verdict import conclude
from results.records import BASELINE, Block, Cell, Measurement, Phase, Request, Telemetry, VerdictKind
from tests.analysis.build import CHAT, CODE, FAST, UNKNOWN, arm, block, measurement, request

BOUNDS = {"ttft_s": 0.5, "tpot_s": 0.1, "end_to_end_s": 2.0}


def answered(ttft_s: float = 0.4, last_s: float = 1.2, **changes: Any) -> Request:
    """Ten tokens from `ttft_s` to `last_s`, scheduled at 0."""
    return request(end=last_s, chunks=(ttft_s, last_s), tokens=10, **changes)


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (answered(), True),
        (answered(ttft_s=0.5), True),  # a limit is an upper bound, not a rate to stay below
        (answered(ttft_s=0.51), False),
        (answered(last_s=1.4), False),  # 0.11 s per token
        (request(end=2.1, chunks=(0.4, 1.2), tokens=10), False),  # the end came late
        (answered(error="HTTP 500"), False),
        (answered(sent_s=0.3, scheduled_s=-0.2), False),  # from when it was due, not from when it was sent
        (request(end=0.4, chunks=(0.4,), tokens=1), True),  # one token has no time per token
        (request(end=0.4, chunks=(0.4,), tokens=9), True),  # nor has an answer in one piece
        (request(end=0.4, chunks=(), tokens=1), False),  # no text: no first token that was in time
    ],
)
def test_a_request_keeps_every_limit_or_does_not_count(found: Request, kept: bool) -> None:
    assert within(found, BOUNDS) is kept


def test_only_what_is_limited_matters() -> None:
    assert within(answered(ttft_s=9.0, last_s=9.5), {"tpot_s": 0.1})
    assert within(request(end=0.4, chunks=(), tokens=1), {"end_to_end_s": 1})


def test_requests_count_where_they_ended() -> None:
    ended = [request(start=at - 0.1, end=at) for at in (1.0, 2.0, 3.0, 4.0)]
    late = request(start=0.0, end=2.5)
    bounds = {"end_to_end_s": 0.2}
    assert goodput([*ended, late], (1.0, 3.0), bounds) == pytest.approx((1.0, 2 / 3))
    assert goodput([late], (1.0, 3.0), bounds) == (0.0, 0.0)
    assert goodput([], (1.0, 3.0), bounds) == (0.0, None)
    assert goodput(ended, (1.0, 1.0), bounds) == (None, None)
    assert goodput(ended, (1.0, 3.0), {}) == (None, None)


def summary(requests: list[Request], wall_s: float, pace: str) -> Measurement:
    return summarise(
        Cell("chat", pace),
        requests,
        wall_s,
        UNKNOWN,
        Telemetry(wall_s),
        max_tokens=10,
        bounds={"end_to_end_s": 1.0},
    )


def test_one_stream_counts_over_the_whole_window() -> None:
    found = summary(
        [request("a", 0, 1), request("b", 1, 3), request("c", 3, 4, error="cut")], 4.0, "closed(1)"
    )
    assert (found.goodput_per_s, found.within_limits_share) == pytest.approx((0.25, 1 / 3))


def test_an_open_loop_counts_between_its_first_end_and_its_last_start() -> None:
    """One request a second, each answered in half a second: one a second, not one more for the edge."""
    requests = [request(f"p{i}", i, i + 0.5) for i in range(11)]
    found = summary(requests, 10.5, "poisson(1/s)")
    assert found.wall_s == 9.5
    assert found.goodput_per_s == pytest.approx(9 / 9.5)
    assert found.within_limits_share == 1


def test_ramp_and_drain_of_several_streams_do_not_count() -> None:
    requests = [request("a", 0, 1), request("b", 0.5, 1.5), request("c", 1, 2), request("d", 1.5, 5)]
    found = summary(requests, 5.0, "closed(2)")
    assert found.wall_s == 1.5  # from 0.5, when two are in flight, to 2, when one is
    assert found.goodput_per_s == pytest.approx(3 / 1.5)


def counted(cell: Cell, good: int, wall_s: float) -> Measurement:
    return measurement(cell, wall_s=wall_s, goodput_per_s=good / wall_s, within_limits_share=good / 8)


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [
        ((4, 2.0), (8, 2.0), 2.0),
        ((0, 2.0), (4, 2.0), 8.0),  # against half a request
        ((4, 2.0), (0, 2.0), 1 / 8),
        ((0, 2.0), (0, 1.0), 1.0),  # nothing against nothing, however fast
    ],
)
def test_none_counts_as_half_a_request(
    before: tuple[int, float], after: tuple[int, float], ratio: float
) -> None:
    arms = arm(BASELINE, counted(CHAT, *before)), arm(FAST, counted(CHAT, *after))
    assert log_speedup(*arms, "goodput_per_s") == {CHAT.label: pytest.approx(math.log(ratio))}


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(1e-3, 1e3)), min_size=4, max_size=4))
def test_no_count_makes_an_infinite_ratio(counts: list[tuple[int, float]]) -> None:
    ours = [counted(cell, *count) for cell, count in zip((CHAT, CODE), counts[:2], strict=True)]
    theirs = [counted(cell, *count) for cell, count in zip((CHAT, CODE), counts[2:], strict=True)]
    found = mean_log_speedup(arm(BASELINE, *theirs), arm(FAST, *ours), "goodput_per_s")
    assert found is not None and math.isfinite(found)


def test_goodput_that_was_not_counted_is_no_number() -> None:
    arms = arm(BASELINE, counted(CHAT, 4, 2.0)), arm(FAST, measurement(CHAT))
    assert mean_log_speedup(*arms, "goodput_per_s") is None


def confirmed(before: int, after: int) -> list[Block]:
    made = []
    for number, wobble in enumerate((0.0, 0.01, 0.02, 0.03)):
        runs = (
            arm(BASELINE, counted(CHAT, before, 2.0)),
            arm(FAST, counted(CHAT, after, 2.0 + wobble)),
        )
        made.append(replace(block(number, phase=Phase.CONFIRM), arms=runs))
    return made


def test_a_verdict_on_a_count_of_none_says_so() -> None:
    (found,) = conclude(confirmed(0, 6), [FAST], objective="goodput_per_s")
    assert found.kind is VerdictKind.BETTER
    assert found.effect is not None and math.isfinite(found.effect.high)
    assert "no request kept its limits: of the baseline in chat @ closed(1)" in found.warnings[-1]
    (found,) = conclude(confirmed(6, 0), [FAST], objective="goodput_per_s")
    assert found.kind is VerdictKind.WORSE
    assert "of this configuration in chat @ closed(1)" in found.warnings[-1]
    (found,) = conclude(confirmed(0, 0), [FAST], objective="goodput_per_s")
    assert found.kind is VerdictKind.SAME
    (found,) = conclude(confirmed(4, 6), [FAST], objective="goodput_per_s")
    assert (found.kind, found.warnings) == (VerdictKind.BETTER, ())
