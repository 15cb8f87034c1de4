"""Intervals of acceptance: those of scipy where the rounds are independent, wider where they are not."""

import random

import pytest
from scipy.stats import binomtest

from analysis.wiring.estimate import (
    ASSUMED_CLUSTERING,
    Estimate,
    by_position,
    clustered,
    share_of_depth,
    wilson,
)
from analysis.wiring.replies import Reply
from results.records import SpecCounters

HEALTHY = SpecCounters(733, 2199, 802, (403, 267, 132))


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (3, 10), (10, 10), (403, 733), (1, 1000)])
def test_wilsons_interval_is_scipys(successes: int, trials: int) -> None:
    theirs = binomtest(successes, trials).proportion_ci(0.95, "wilson")
    ours = wilson(successes / trials, trials)
    assert ours.low == pytest.approx(theirs.low, abs=1e-12)
    assert ours.high == pytest.approx(theirs.high, abs=1e-12)


def replies(accepted: list[int], rounds: int, k: int = 1) -> list[Reply]:
    """One position, so many rounds each."""
    return [Reply(counters=SpecCounters(rounds, rounds * k, n, (n,))) for n in accepted]


def test_replies_that_differ_widen_the_interval() -> None:
    """Half of the replies accept all and half nothing: there are 20 observations, not 2000."""
    alike = clustered([50] * 10 + [51] * 10, [100] * 20)
    apart = clustered([100] * 10 + [0] * 10, [100] * 20)
    assert apart.value == 0.5
    assert apart.high - apart.low > 10 * (alike.high - alike.low)
    assert 0.2 < apart.low < 0.3


def test_the_interval_by_reply_covers_the_truth_as_often_as_it_says() -> None:
    """Replies of different difficulty: an interval by round is wrong far too often."""
    draw = random.Random(7)
    hits = by_round = 0
    for _ in range(300):
        shares = [draw.betavariate(3, 3) for _ in range(16)]  # mean 0.5
        counts = [sum(draw.random() < share for _ in range(40)) for share in shares]
        found = clustered(counts, [40] * 16)
        naive = wilson(sum(counts) / 640, 640)
        hits += found.low <= 0.5 <= found.high
        by_round += naive.low <= 0.5 <= naive.high
    assert hits >= 0.92 * 300
    assert by_round < 0.6 * 300


def test_one_reply_is_no_sample() -> None:
    with pytest.raises(ValueError, match="at least two"):
        clustered([5, 0], [10, 0])


def test_nothing_accepted_anywhere_is_no_certainty() -> None:
    found = clustered([0] * 10, [20] * 10)
    assert found.value == found.low == 0
    assert found.high > wilson(0, 200).high


def test_a_share_by_round_assumes_that_rounds_of_a_reply_are_alike() -> None:
    """The spread over rounds follows from the positions; without them the widest one is taken."""
    told, untold = (share_of_depth(c, (), 3) for c in (HEALTHY, SpecCounters(HEALTHY.drafts, 2199, 802)))
    assert told.value == untold.value == pytest.approx(802 / 2199)
    widest = wilson(802 / 2199, 733 / ASSUMED_CLUSTERING)
    assert (untold.low, untold.high) == (widest.low, widest.high)
    assert untold.low < told.low < told.value < told.high < untold.high
    # Accepted tokens of each round: 330 x 0, 136 x 1, 135 x 2, 132 x 3.
    rounds = [0] * 330 + [1] * 136 + [2] * 135 + [3] * 132
    mean = sum(rounds) / 733
    deviation = (sum((n - mean) ** 2 for n in rounds) / 733) ** 0.5
    half = 1.96 * deviation / 3 / 733**0.5 * ASSUMED_CLUSTERING**0.5
    assert told.high - told.low == pytest.approx(2 * half, rel=0.01)


def test_enough_replies_are_the_unit() -> None:
    few, many = replies([5, 15] * 3, 20), replies([5, 15] * 8, 20)
    for some in (few, many):
        whole = SpecCounters(20 * len(some), 20 * len(some), 10 * len(some), (10 * len(some),))
        found = share_of_depth(whole, some, 1)
        by_reply = clustered([r.counters.accepted_tokens for r in some if r.counters], [20] * len(some))
        assert (found == by_reply) is (some is many)


def test_positions_that_few_drafts_reached_say_nothing() -> None:
    first, second = by_position(SpecCounters(100, 200, 30, (20, 10)), ())
    assert first is not None and first.value == 0.2
    assert second is None


def test_positions_by_reply_only_if_every_reply_tells_them() -> None:
    told = replies([5, 15] * 8, 20)
    whole = SpecCounters(320, 320, 160, (160,))
    (by_reply,) = by_position(whole, told)
    assert by_reply == clustered([5, 15] * 8, [20] * 16)
    silent = [*told[:-1], Reply(counters=SpecCounters(20, 20, 15))]
    (by_round,) = by_position(whole, silent)
    assert by_round == wilson(0.5, 320 / ASSUMED_CLUSTERING)


def test_no_round_no_share() -> None:
    with pytest.raises(ValueError, match="no round"):
        share_of_depth(SpecCounters(0, 0, 0), (), 3)


def test_an_interval_goes_through_an_increasing_function() -> None:
    assert Estimate(0.5, 0.4, 0.7).through(lambda x: 2 * x) == Estimate(1.0, 0.8, 1.4)
