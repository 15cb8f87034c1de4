"""The best of many estimates, with its luck taken off: checked by hand and by simulation."""

import math
import random
from dataclasses import replace
from statistics import fmean

import pytest

from analysis.noise import BlockNoise
from analysis.shrinkage import expected, of_trials, shrinkage
from results.reasons import Reason
from results.records import BASELINE, Failure, Point, TrialState
from tests.records import trial

NOISE = 0.03
KNOWN = BlockNoise(NOISE, 10, "told")


def test_the_share_of_noise_is_taken_off() -> None:
    """Squares around 0.1: 2 x 0.09^2 + 2 x 0.03^2 = 0.018; 1 - 1 x 0.0009 / 0.018 = 0.95."""
    found = shrinkage([0.01, 0.07, 0.13, 0.19], NOISE)
    assert found is not None
    assert (found.centre, found.kept) == pytest.approx((0.1, 0.95))
    assert found(0.19) == pytest.approx(0.1 + 0.95 * 0.09)


def test_nothing_but_noise_leaves_the_mean() -> None:
    found = shrinkage([0.10, 0.11, 0.09, 0.10, 0.12], NOISE)
    assert found is not None
    assert found(0.12) == pytest.approx(found.centre)
    assert shrinkage([0.1] * 4, NOISE) is not None


def test_too_few_estimates_or_unknown_noise_tell_nothing() -> None:
    assert shrinkage([0.1, 0.2, 0.3], NOISE) is None
    trials = [trial(n, Point("a", {"n": n}), 0.1 * n) for n in range(1, 9)]
    assert of_trials(trials, None) is None
    assert expected(trials[0], None) is None


def test_only_whole_measurements_of_speculation_count() -> None:
    whole = [trial(n, Point("a", {"n": n}), 0.1 * n) for n in range(1, 6)]
    others = [
        trial(0, BASELINE, 0.0, blocks=()),
        trial(6, Point("none", {"--batch": 8}), 5.0),
        trial(7, Point("a", {"n": 7}), -5.0, state=TrialState.HOPELESS),
        trial(8, Point("a", {"n": 8}), None),
        trial(9, Point("a", {"n": 9}), 9.0, failure=Failure(Reason.LIMIT_EXCEEDED, "slow")),
    ]
    found = of_trials([*others, *whole], KNOWN)
    assert found == of_trials(whole, KNOWN)
    assert all(expected(t, found) is None for t in others)
    assert expected(whole[-1], found) == pytest.approx(0.3 + (found.kept if found else 0) * 0.2)


@pytest.mark.parametrize("spread", [0.0, 0.03, 0.1])
@pytest.mark.parametrize("trials", [8, 14, 40])
def test_the_best_of_many_is_told_without_its_luck(spread: float, trials: int) -> None:
    """The raw figure of the best is optimistic by 1 to 6 %; two thirds of that and more are taken off."""
    draw, raw, shrunken = random.Random(trials), [], []
    for _ in range(3000):
        truths = [draw.gauss(0.1, spread) for _ in range(trials)]
        seen = [truth + draw.gauss(0, NOISE) for truth in truths]
        found = shrinkage(seen, NOISE)
        assert found is not None
        best = max(range(trials), key=seen.__getitem__)
        raw.append(seen[best] - truths[best])
        shrunken.append(found(seen[best]) - truths[best])
    assert fmean(raw) > 0.009
    assert abs(fmean(shrunken)) < fmean(raw) / 3


def test_a_shrunken_estimate_is_nearer_to_the_truth_for_most() -> None:
    draw, raw, shrunken = random.Random(5), 0.0, 0.0
    for _ in range(500):
        truths = [draw.gauss(0.1, 0.04) for _ in range(14)]
        seen = [truth + draw.gauss(0, NOISE) for truth in truths]
        found = shrinkage(seen, NOISE)
        assert found is not None
        raw += sum((s - t) ** 2 for s, t in zip(seen, truths, strict=True))
        shrunken += sum((found(s) - t) ** 2 for s, t in zip(seen, truths, strict=True))
    assert math.sqrt(shrunken / raw) < 0.9


def test_an_estimate_that_is_no_number_is_left_out() -> None:
    trials = [trial(n, Point("a", {"n": n}), 0.1 * n) for n in range(1, 9)]
    broken = replace(trials[0], log_speedup=math.nan)
    assert of_trials([broken, *trials[1:]], KNOWN) == of_trials(trials[1:], KNOWN)
