"""What the rules promise, checked by simulation: the design does the work, not the test."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from analysis.statistics import LOOKS, t_quantile
from analysis.verdict import decide
from results.records import VerdictKind

Noise = Callable[[np.random.Generator, int, int], NDArray[np.float64]]

NOISE = 0.02  # of one launch, as log throughput


def wandering(rng: np.random.Generator, runs: int, launches: int) -> NDArray[np.float64]:
    """Launches on a machine whose speed wanders: correlation 0.9 from one to the next, sd 2 %."""
    level = rng.normal(0, 1, runs)
    drift = np.empty((runs, launches))
    for i in range(launches):
        drift[:, i] = level
        level = 0.9 * level + math.sqrt(1 - 0.81) * rng.normal(0, 1, runs)
    return 0.02 * drift + rng.normal(0, NOISE, (runs, launches))


def warming(rng: np.random.Generator, runs: int, launches: int) -> NDArray[np.float64]:
    """Launches on a machine that slows by 4 % while it warms up."""
    slowdown = 0.04 * (1 - np.exp(-np.arange(launches) / 5))
    return rng.normal(0, NOISE, (runs, launches)) - slowdown


def blocks_in_random_order(
    rng: np.random.Generator, noise: Noise, runs: int, blocks: int, gains: list[float]
) -> NDArray[np.float64]:
    """Log ratios [runs, blocks, finalists]: per Block one launch of the baseline and of each finalist."""
    arms = len(gains) + 1
    launches = noise(rng, runs, blocks * arms).reshape(runs, blocks, arms)
    order = rng.random((runs, blocks, arms)).argsort(axis=2)
    by_arm = np.take_along_axis(launches, order, axis=2)
    ratios: NDArray[np.float64] = by_arm[:, :, 1:] - by_arm[:, :, :1] + np.array(gains)
    return ratios


def called_better(ratios: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which [run, finalist] the real decision calls BETTER."""
    finalists = ratios.shape[2]
    return np.array(
        [
            [decide(list(run[:, f]), finalists=finalists)[0] is VerdictKind.BETTER for f in range(finalists)]
            for run in ratios
        ]
    )


@pytest.mark.parametrize("noise", [wandering, warming])
def test_three_useless_finalists_are_rarely_called_better(noise: Noise) -> None:
    ratios = blocks_in_random_order(np.random.default_rng(11), noise, 3000, 20, [0.0, 0.0, 0.0])
    assert called_better(ratios).any(axis=1).mean() <= 0.05


def test_a_gain_of_three_percent_is_found_within_twenty_blocks() -> None:
    ratios = np.random.default_rng(12).normal(math.log(1.03), 0.02, (1000, 20, 1))
    assert called_better(ratios).mean() >= 0.8


def test_a_gain_of_three_percent_is_found_among_useless_finalists_under_drift() -> None:
    rng = np.random.default_rng(13)
    ratios = blocks_in_random_order(rng, wandering, 1000, 20, [math.log(1.03), 0.0, 0.0])
    assert called_better(ratios)[:, 0].mean() >= 0.8


@pytest.mark.parametrize("noise", [wandering, warming])
def test_all_a_then_all_b_fools_the_same_test_that_paired_blocks_do_not(noise: Noise) -> None:
    """Twelve launches of each arm at a nominal 5 %, no true difference."""
    launches = noise(np.random.default_rng(14), 3000, 24)
    one_after_the_other = stats.ttest_ind(launches[:, :12], launches[:, 12:], axis=1).pvalue < 0.05
    paired = blocks_in_random_order(np.random.default_rng(15), noise, 3000, 12, [0.0])[:, :, 0]
    in_blocks = stats.ttest_1samp(paired, 0.0, axis=1).pvalue < 0.05
    assert one_after_the_other.mean() > 0.2
    assert in_blocks.mean() == pytest.approx(0.05, abs=0.015)


def false_positives(looks: tuple[int, ...], alpha: float) -> float:
    """Share of 20-Block confirmations without a gain whose interval excludes 0 at any look."""
    ratios = np.random.default_rng(16).normal(0, NOISE, (20_000, 20))
    hit = np.zeros(len(ratios), dtype=bool)
    for n in looks:
        error = ratios[:, :n].std(axis=1, ddof=1) / math.sqrt(n)
        hit |= np.abs(ratios[:, :n].mean(axis=1)) > t_quantile(n - 1, 1 - alpha / 2) * error
    return float(hit.mean())


def test_planned_looks_keep_the_level_and_looking_all_the_time_does_not() -> None:
    assert false_positives(LOOKS, 0.05 / len(LOOKS)) == pytest.approx(0.041, abs=0.004)
    assert false_positives(tuple(range(3, 21)), 0.05) == pytest.approx(0.23, abs=0.015)
