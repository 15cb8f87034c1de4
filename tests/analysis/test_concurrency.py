"""What a Point is worth at each number of requests in flight, and for which batch sizes that stands."""

from dataclasses import replace
from itertools import pairwise
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.concurrency import figures, nearest_sizes
from analysis.findings import eligible
from results.reasons import Reason
from results.records import BASELINE, Cell, Failure, Phase, Point, Weights
from tests.records import arm, block, trial

POINT = Point("m", {"k": 3})
ONE, FOUR, CHAT = Cell("code", "closed(1)"), Cell("code", "closed(4)"), Cell("chat", "closed(4)")
OPEN = Cell("code", "poisson(2/s)")
BASE = arm(BASELINE, dict.fromkeys((ONE, FOUR, CHAT, OPEN), 100.0))


def test_the_mean_over_the_cells_of_a_pace() -> None:
    found = figures(
        trial(1, POINT, 0.1),
        [block(1, Phase.SEARCH, [BASE, arm(POINT, {ONE: 200.0, FOUR: 100.0, CHAT: 400.0, OPEN: 900.0})])],
    )
    assert {n: round(f.log_speedup, 9) for n, f in found.items()} == {
        1: round(log(2), 9),
        4: round(log(2), 9),
    }
    assert not any(f.confirmed for f in found.values())


def test_cells_count_by_their_weights_and_each_pace_for_itself() -> None:
    search = block(1, Phase.SEARCH, [BASE, arm(POINT, {ONE: 200.0, FOUR: 100.0, CHAT: 400.0})])
    weights = Weights(classes={"chat": 3.0}, paces={"closed(1)": 0.0})
    found = figures(trial(1, POINT, 0.1), [search], weights=weights)
    assert found[1].log_speedup == pytest.approx(log(2))
    assert found[4].log_speedup == pytest.approx(log(4) * 3 / 4)


def test_context_lengths_are_cells_of_one_pace() -> None:
    long = Cell("code", "closed(1)", 8192)
    search = block(
        1, Phase.SEARCH, [arm(BASELINE, {ONE: 100.0, long: 100.0}), arm(POINT, {ONE: 200.0, long: 50.0})]
    )
    assert figures(trial(1, POINT, 0.1), [search])[1].log_speedup == pytest.approx(0.0)


def test_the_confirmation_counts_before_the_search() -> None:
    search = block(1, Phase.SEARCH, [BASE, arm(POINT, {ONE: 300.0, FOUR: 300.0})])
    confirm = [block(n, Phase.CONFIRM, [BASE, arm(POINT, {ONE: 120.0})]) for n in (2, 3)]
    found = figures(trial(1, POINT, 0.1), [search, *confirm])
    assert (found[1].confirmed, found[1].blocks) == (True, 2)
    assert found[1].log_speedup == pytest.approx(log(1.2))
    assert (found[4].confirmed, found[4].blocks) == (False, 1)


def test_unusable_blocks_and_failed_arms_count_nothing() -> None:
    good, failure = arm(POINT, {ONE: 300.0}), Failure(Reason.HANG, "no token")
    blocks = [
        block(1, Phase.CONFIRM, [BASE, good], invalid=failure),
        block(2, Phase.CONFIRM, [BASE, replace(good, failure=failure)]),
        block(3, Phase.CONFIRM, [BASE, replace(good, stopped_at_ratio=0.4)]),
        block(4, Phase.CONFIRM, [good]),
    ]
    assert figures(trial(1, POINT, 0.1), blocks) == {}


def test_a_point_that_the_server_rewrote_is_found_as_it_was_launched() -> None:
    asked = Point("m", {"k": 9})
    search = block(1, Phase.SEARCH, [BASE, arm(asked, {ONE: 200.0})])
    assert figures(trial(1, POINT, 0.1, asked=asked), [search])[1].log_speedup == pytest.approx(log(2))


def test_a_latency_is_better_when_it_is_smaller() -> None:
    search = block(1, Phase.SEARCH, [BASE, arm(POINT, {ONE: 200.0})])
    assert figures(trial(1, POINT, 0.1), [search], "ttft_p50_s")[1].log_speedup == 0.0


def test_what_may_be_chosen() -> None:
    good = trial(1, POINT, 0.1, limits={"ttft_p95_s": -0.1})
    others = [
        trial(2, POINT, None),
        replace(good, lossy="guesses"),
        replace(good, limits={"ttft_p95_s": 0.1}),
    ]
    assert eligible([good, *others]) == [good]


def test_sizes_belong_to_the_nearest_measured_one() -> None:
    assert nearest_sizes([8, 1, 32]) == [(1, 2), (3, 16), (17, None)]
    assert nearest_sizes([4]) == [(1, None)]


@given(st.sets(st.integers(1, 1024), min_size=1))
def test_every_size_has_one_range_and_every_measured_one_its_own(measured: set[int]) -> None:
    found = nearest_sizes(sorted(measured))
    assert found[0][0] == 1
    assert found[-1][1] is None
    for n, (first, last) in zip(sorted(measured), found, strict=True):
        assert first <= n
        assert last is None or n <= last
    assert all(last == after - 1 for (_, last), (after, _) in pairwise(found))


def test_a_search_block_without_a_baseline_is_compared_with_the_nearest_launch_of_it() -> None:
    far, near = arm(BASELINE, {ONE: 400.0}), arm(BASELINE, {ONE: 100.0})
    alone = block(5, Phase.SEARCH, [arm(POINT, {ONE: 200.0})])
    blocks = [block(1, Phase.SEARCH, [far]), block(4, Phase.SEARCH, [near]), alone]
    assert figures(trial(1, POINT, 0.1), blocks)[1].log_speedup == pytest.approx(log(2))
