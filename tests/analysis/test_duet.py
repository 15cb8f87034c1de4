"""Whether two sets are alike: the rule by simulation and against scipy, the bias against least squares."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from analysis.block import mean_log_speedup
from analysis.duet import ALPHA, LOOKS, Sets, check_sets, said_of, set_effect, set_ratio
from results.reasons import Reason
from results.records import BASELINE, Block, Failure, Phase, Point
from tests.records import CELL, arm, block

MARGIN = math.log(1.02)
POINT = Point("fake-ngram", {"n": 4, "m": 8})
OTHER = Point("fake-ngram", {"n": 2, "m": 8})


def outcome(draw: random.Random, bias: float, sd: float) -> Sets:
    """What the check says in the end, looked at after every Block as a run does."""
    ratios: list[float] = []
    while (state := check_sets(ratios, MARGIN)[0]) is Sets.OPEN:
        ratios.append(draw.gauss(bias, sd))
    return state


def share(wanted: Sets, bias: float, sd: float, runs: int = 1500) -> float:
    draw = random.Random(20)
    return sum(outcome(draw, bias, sd) is wanted for _ in range(runs)) / runs


@pytest.mark.parametrize("sd", [0.002, 0.01, 0.05])
def test_equal_sets_are_seldom_called_biased(sd: float) -> None:
    assert share(Sets.BIASED, 0.0, sd) <= ALPHA


def test_equal_and_quiet_sets_are_used() -> None:
    assert share(Sets.EQUAL, 0.0, 0.008) >= 0.9


@pytest.mark.parametrize("bias", [0.03, -0.03])
def test_a_real_bias_of_three_percent_is_found_and_never_passed(bias: float) -> None:
    assert share(Sets.BIASED, bias, 0.008) >= 0.97
    for sd in (0.004, 0.02, 0.06):
        assert share(Sets.EQUAL, bias, sd) <= ALPHA / 2


def test_too_much_noise_is_no_proof_of_equality() -> None:
    assert share(Sets.NOISY, 0.0, 0.1) >= 0.9
    assert share(Sets.EQUAL, 0.0, 0.1) <= 0.01


def test_the_interval_is_the_one_of_scipy() -> None:
    ratios = [0.004, -0.006, 0.01, 0.001]
    state, effect = check_sets(ratios, MARGIN)
    theirs = stats.ttest_1samp(ratios, 0).confidence_interval(1 - ALPHA / len(LOOKS))
    assert effect is not None
    assert (effect.low, effect.high) == pytest.approx((theirs.low, theirs.high))
    assert state is (Sets.EQUAL if theirs.low > -MARGIN and theirs.high < MARGIN else Sets.OPEN)


def test_blocks_behind_the_look_that_settled_it_are_not_consumed() -> None:
    quiet = [0.001, -0.001, 0.001, -0.001]
    assert check_sets([*quiet, 5.0, -3.0], MARGIN) == check_sets(quiet, MARGIN)
    assert check_sets(quiet[:3], MARGIN) == (Sets.OPEN, None)


def test_eight_blocks_bear_a_noise_of_1_8_percent() -> None:
    """As the documentation says."""
    pattern = np.array([1.0, -1.0] * (LOOKS[-1] // 2))
    pattern /= pattern.std(ddof=1)
    assert check_sets([*(pattern * 0.0175)], MARGIN)[0] is Sets.EQUAL
    assert check_sets([*(pattern * 0.0185)], MARGIN)[0] is Sets.NOISY


def test_what_was_seen_is_said() -> None:
    ratios = [0.05, -0.04, 0.05, -0.06, 0.07, -0.05, 0.04, -0.06]
    state, effect = check_sets(ratios, MARGIN)
    assert state is Sets.NOISY
    said = said_of(effect, MARGIN)
    assert "8 Blocks" in said
    assert "within -2.0 % to +2.0 %" in said
    assert said_of(None, MARGIN) == "the two sets were not compared to the end"


def duet(number: int, point: Point, candidate: float, baseline: float, on: int, node: str = "") -> Block:
    arms = [
        replace(arm(point, {CELL: candidate}), on_set=on),
        replace(arm(BASELINE, {CELL: baseline}), on_set=1 - on),
    ]
    return replace(block(number, Phase.CONFIRM, arms), node=node)


def test_the_ratio_of_a_block_is_set_0_over_set_1() -> None:
    assert set_ratio(duet(0, POINT, 120.0, 100.0, on=0), "tokens_per_s") == pytest.approx(math.log(1.2))
    assert set_ratio(duet(0, POINT, 120.0, 100.0, on=1), "tokens_per_s") == pytest.approx(-math.log(1.2))


def test_a_block_that_is_no_valid_duet_has_no_ratio() -> None:
    good = duet(0, POINT, 120.0, 100.0, on=0)
    beside = block(0, Phase.CONFIRM, [replace(a, on_set=None) for a in good.arms])
    adjacent = block(0, Phase.CONFIRM, [replace(a, on_set=0) for a in good.arms])
    failed = replace(good, arms=(replace(good.arms[0], failure=Failure(Reason.HANG, "")), good.arms[1]))
    for none in (beside, adjacent, failed, replace(good, invalid=Failure(Reason.HOST_PRESSURE, ""))):
        assert set_ratio(none, "tokens_per_s") is None


def simulated(
    draw: random.Random, bias: float, sd: float, gains: Sequence[tuple[Point, float]], each: int
) -> list[Block]:
    """Duets of several candidates with swapped sides."""
    found: list[Block] = []
    for point, gain in gains:
        for i in range(each):
            on = i % 2
            log = gain + (bias if on == 0 else -bias) + draw.gauss(0, sd)
            found.append(duet(len(found), point, 100 * math.exp(log), 100.0, on))
    return found


def test_the_bias_is_that_of_least_squares() -> None:
    blocks = simulated(random.Random(3), 0.04, 0.01, [(POINT, 0.2), (OTHER, -0.1)], 5)
    effect = set_effect(blocks, "tokens_per_s")
    candidates = [b.arms[0] for b in blocks]
    x = np.array(
        [[a.point == POINT, a.point == OTHER, 1.0 if a.on_set == 0 else -1.0] for a in candidates],
        dtype=float,
    )
    y = np.array([mean_log_speedup(b.arms[1], b.arms[0]) for b in blocks], dtype=float)
    solution, residual, _, _ = np.linalg.lstsq(x, y, rcond=None)
    error = math.sqrt(residual[0] / (len(y) - 3) * np.linalg.inv(x.T @ x)[2, 2])
    half = stats.t.ppf(0.975, len(y) - 3) * error
    assert effect is not None
    assert (effect.log_ratio, effect.low, effect.high) == pytest.approx(
        (solution[2], solution[2] - half, solution[2] + half)
    )
    assert effect.signs_are_certain


def test_a_bias_is_reported_as_often_as_it_should_be() -> None:
    draw = random.Random(4)

    def certain(bias: float, runs: int) -> float:
        found = [
            set_effect(simulated(draw, bias, 0.01, [(POINT, 0.3), (OTHER, 0.0)], 4), "tokens_per_s")
            for _ in range(runs)
        ]
        return sum(e is not None and e.signs_are_certain for e in found) / runs

    assert certain(0.0, 400) == pytest.approx(ALPHA, abs=0.03)
    assert certain(0.03, 100) >= 0.97


def test_speedups_are_no_bias() -> None:
    """Candidates that were on one set only, as in a search, say nothing."""
    one_each = [duet(i, Point("fake-ngram", {"n": i, "m": 8}), 100 + 20 * i, 100.0, i % 2) for i in range(8)]
    assert set_effect(one_each, "tokens_per_s") is None
    assert set_effect([], "tokens_per_s") is None


def test_an_effect_without_noise_is_exact() -> None:
    blocks = simulated(random.Random(1), 0.05, 0.0, [(POINT, 0.2)], 6)
    effect = set_effect(blocks, "tokens_per_s")
    assert effect is not None
    assert (effect.log_ratio, effect.low, effect.high) == pytest.approx((0.05, 0.05, 0.05))
    assert effect.blocks == 6
