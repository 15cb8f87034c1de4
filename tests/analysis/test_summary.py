import math
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.summary import (
    achieved_concurrency,
    capacity_limited,
    max_in_flight,
    requested_concurrency,
    steady_window,
    summarise,
    tokens_by_prompt,
    tokens_within,
    total_output_tokens,
)
from results.reasons import Reason
from results.records import Cell, Measurement, Quantiles, Request, Telemetry
from tests.analysis.build import CHAT, UNKNOWN, request

LOOP = "and again and again " * 20


def summary(
    requests: list[Request], wall_s: float = 10.0, cell: Cell = CHAT, max_tokens: int | None = 10
) -> Measurement:
    return summarise(cell, requests, wall_s, UNKNOWN, Telemetry(wall_s), max_tokens=max_tokens)


def test_throughput_is_the_sum_of_tokens_over_the_whole_window_of_one_stream() -> None:
    found = summary([request("a", 0, 4, tokens=100), request("b", 5, 10, tokens=50)])
    assert (found.output_tokens, found.wall_s, found.tokens_per_s) == (150, 10.0, 15.0)
    assert found.mean_request_tokens_per_s == pytest.approx((100 / 4 + 50 / 5) / 2)
    assert found.tokens_by_prompt == {"a": 100, "b": 50}


def test_tokens_come_from_usage_never_from_chunks() -> None:
    found = summary([request("a", 0, 10, tokens=300, chunks=[1, 2, 3])])
    assert found.tokens_per_s == 30.0


def test_one_reply_without_usage_and_there_is_no_token_figure() -> None:
    found = summary([request("a", 0, 4), request("b", 5, 10, tokens=None)])
    assert (found.output_tokens, found.tokens_per_s, found.mean_request_tokens_per_s) == (None, None, None)


def test_failed_requests_are_counted_and_give_no_figures() -> None:
    good, bad = request("a", 0, 4), request("b", 5, 9, tokens=None, error="HTTP 500: oops")
    found = summary([good, bad])
    assert (found.requests, found.failed, found.first_error) == (2, 1, "HTTP 500: oops")
    assert found.tokens_per_s == 1.0
    assert found.end_to_end_s == Quantiles(4, 4, 4)


def test_latencies_count_from_the_scheduled_time() -> None:
    late = request("a", 1.0, 9.0, tokens=5, chunks=[3, 5, 9], scheduled_s=0.5, sent_s=2.0)
    found = summary([late])
    assert found.ttft_s == Quantiles(2.5, 2.5, 2.5)
    assert found.end_to_end_s == Quantiles(8.5, 8.5, 8.5)
    assert found.tpot_s == Quantiles(1.5, 1.5, 1.5)  # (9 - 3) / 4
    assert found.chunk_gap_s is not None and found.chunk_gap_s.p50 == 3.0  # of 2 and 4


def test_shares_of_answers() -> None:
    found = summary(
        [
            request("a", finish_reason="length"),
            request("b", finish_reason=None, tokens=10),
            request("c", text=" ", reasoning_text="hm"),
            request("d", text=LOOP),
        ]
    )
    assert (found.truncated_share, found.empty_share, found.degenerate_share) == (0.5, 0.25, 0.25)


def test_nothing_sent_gives_no_number_and_no_error() -> None:
    found = summary([], wall_s=0.0)
    assert (found.tokens_per_s, found.ttft_s, found.output_tokens, found.concurrency) == (
        None,
        None,
        None,
        0.0,
    )


def test_a_prompt_sent_twice_keeps_both_counts() -> None:
    visits = [request("a", 5, 6, tokens=7), request("a", 0, 1, tokens=3), request("b", 0, 1, tokens=1)]
    assert tokens_by_prompt(visits) == {"a": 3, "b": 1, "a#2": 7}


def test_pace_names_its_concurrency() -> None:
    assert requested_concurrency(Cell("chat", "closed(16)")) == 16
    assert requested_concurrency(Cell("chat", "poisson(2.5)")) is None


def staircase() -> list[Request]:
    """Two streams: 0 to 4 and 1 to 3, then 3 to 8 alone from 4 on."""
    return [
        request("a", 0, 4, tokens=40, chunks=[1, 2, 3, 4]),
        request("b", 1, 3, tokens=20, chunks=[2, 3]),
        request("c", 3, 8, tokens=50, chunks=[4, 5, 6, 7, 8]),
    ]


def test_ramp_and_drain_are_dropped() -> None:
    assert steady_window(staircase(), 2, 8.0) == (1, 4)
    # a: chunks at 1, 2, 3, 4 of 10 tokens; b: both; c: the chunk at 4 only
    assert tokens_within(staircase(), (1, 4)) == pytest.approx(40 + 20 + 10)
    found = summary(staircase(), 8.0, Cell("chat", "closed(2)"))
    assert (found.wall_s, found.output_tokens) == (3, 70)
    assert found.tokens_per_s == pytest.approx(70 / 3)
    assert found.concurrency == pytest.approx(2.0)


def test_a_short_dip_while_the_next_is_sent_stays_inside() -> None:
    requests = [request("a", 0, 10), request("b", 0, 4), request("c", 4.5, 9)]
    assert steady_window(requests, 2, 10.0) == (0, 9)
    assert achieved_concurrency(requests, (0, 9)) == pytest.approx(2 - 0.5 / 9)


def test_the_whole_window_stays_if_the_concurrency_was_never_reached() -> None:
    assert steady_window([request("a", 0, 4)], 2, 6.0) == (0.0, 6.0)
    assert steady_window([request("a", 0, 4)], 1, 6.0) == (0.0, 6.0)


def test_an_open_loop_counts_from_the_first_reply_to_the_last_request() -> None:
    requests = [request("a", 0, 2), request("b", 1, 5), request("c", 4, 9)]
    assert steady_window(requests, None, 9.0) == (2, 4)
    assert steady_window(requests[:1], None, 9.0) == (0.0, 9.0)


def test_a_reply_in_one_piece_counts_when_it_ended() -> None:
    whole = request("a", 0, 5, tokens=9, chunks=[])
    assert tokens_within([whole], (0, 4)) == 0
    assert tokens_within([whole], (0, 5)) == 9


def test_total_counts_every_successful_request() -> None:
    assert total_output_tokens([request(tokens=3), request(tokens=4), request(tokens=None, error="x")]) == 7
    assert total_output_tokens([request(tokens=3), request(tokens=None)]) is None
    assert total_output_tokens([]) is None


def test_requests_in_flight() -> None:
    assert max_in_flight([]) == 0
    assert max_in_flight([request("a", 0, 2), request("b", 1, 3), request("c", 2, 4)]) == 2
    assert achieved_concurrency([]) == 0.0
    assert achieved_concurrency([request("a", 0, 4), request("b", 2, 4)]) == pytest.approx(1.5)


def test_a_server_that_lets_requests_wait_is_capacity_limited() -> None:
    assert capacity_limited([4.0] * 100, [1.0] * 5 + [0.0] * 95, 4) is None
    found = capacity_limited([4.0] * 100, [1.0] * 6 + [0.0] * 94, 4)
    assert found is not None and found.reason is Reason.CAPACITY_LIMITED
    assert "6.0%" in found.evidence


def test_without_a_waiting_gauge_the_running_one_decides() -> None:
    assert capacity_limited([3.9, 3.9], [], 4) is None
    assert capacity_limited([3.7, 3.8], [], 4) is not None
    assert capacity_limited([], [], 4) is None


seconds = st.floats(0, 100, allow_nan=False)
anything = st.builds(
    lambda start, length, tokens, share, error: request(
        "p",
        start,
        start + length,
        tokens=tokens,
        chunks=[start + s * length for s in sorted(share)],
        error=error,
    ),
    seconds,
    seconds,
    st.none() | st.integers(0, 5000),
    st.lists(st.floats(0, 1), max_size=4),
    st.none() | st.just("boom"),
)


@given(st.lists(anything, max_size=6), seconds, st.sampled_from(["closed(1)", "closed(3)", "poisson(1)"]))
def test_no_figure_is_ever_nan_or_infinite(requests: list[Request], wall_s: float, pace: str) -> None:
    found = summary(requests, wall_s, Cell("chat", pace))
    for field in fields(found):
        value = getattr(found, field.name)
        numbers = (value.p50, value.p95, value.p99) if isinstance(value, Quantiles) else (value,)
        assert all(math.isfinite(n) for n in numbers if isinstance(n, float))


def test_prompt_tokens_are_the_median_of_what_the_server_counted() -> None:
    sizes = (100, 130, 400, None)
    requests = [request(str(i), 2.0 * i, 2.0 * i + 1, prompt_tokens=n) for i, n in enumerate(sizes)]
    failed = request("x", 9.0, 9.5, prompt_tokens=9000, error="reset")
    assert summary([*requests, failed]).prompt_tokens == 130.0
    assert summary([replace(r, prompt_tokens=None) for r in requests]).prompt_tokens is None
