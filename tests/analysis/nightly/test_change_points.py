"""Change points: exact against brute force, blind to outliers, quiet on noise, right where a step is."""

import math
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean

import pytest

from analysis.nightly.change_points import SHORTEST, best_cuts, change_points


def _all_cuts(length: int, begin: int = 0) -> Iterator[list[int]]:
    """Every way to cut what follows `begin` into pieces of SHORTEST or more."""
    if length - begin >= SHORTEST:
        yield []
    for cut in range(begin + SHORTEST, length - SHORTEST + 1):
        for rest in _all_cuts(length, cut):
            yield [cut, *rest]


def _cost(values: Sequence[float], cuts: Sequence[int], penalty: float) -> float:
    pieces = [values[a:b] for a, b in pairwise([0, *cuts, len(values)])]
    return sum(sum((v - fmean(p)) ** 2 for v in p) for p in pieces) + penalty * len(cuts)


@pytest.mark.parametrize("seed", range(12))
def test_the_cuts_are_the_cheapest_of_all(seed: int) -> None:
    rng = random.Random(seed)
    levels = [rng.choice([0, 1, 3, -2]) for _ in range(5)]
    values = [levels[i // 5] + rng.gauss(0, 0.7) for i in range(24)]
    penalty = rng.uniform(0.5, 8)
    cheapest = min(_all_cuts(len(values)), key=lambda cuts: _cost(values, cuts, penalty))
    assert best_cuts(values, penalty) == cheapest


def _nights(rng: random.Random, count: int, level: float, noise: float, alike: float = 0.0) -> list[float]:
    """A level with noise of which each night keeps a share of the night before."""
    found, carried = [], 0.0
    for _ in range(count):
        carried = alike * carried + rng.gauss(0, noise * math.sqrt(1 - alike**2))
        found.append(level * (1 + carried))
    return found


@pytest.mark.parametrize(("alike", "most"), [(0.0, 2), (0.4, 12)])
def test_noise_alone_has_one_level(alike: float, most: int) -> None:
    rng = random.Random(1)
    drawn = [change_points(_nights(rng, 100, 1.6, 0.02, alike)) for _ in range(100)]
    assert sum(map(bool, drawn)) <= most


@pytest.mark.parametrize("loss", [0.04, 0.05, 0.2])
def test_a_step_is_found_where_it_is(loss: float) -> None:
    rng = random.Random(2)
    for _ in range(20):
        values = _nights(rng, 30, 1.6, 0.01) + _nights(rng, 12, 1.6 * (1 - loss), 0.01)
        (found,) = change_points(values)
        assert abs(found - 30) <= 1


def test_two_steps_are_two() -> None:
    rng = random.Random(3)
    values = [v for level in (40.0, 44.0, 41.0) for v in _nights(rng, 20, level, 0.01)]
    assert change_points(values) == [20, 40]


@pytest.mark.parametrize("outlier", [0.2, 0.8, 1.9])
@pytest.mark.parametrize("at", [0, 1, 17, 38, 39])
def test_one_night_alone_is_no_level(outlier: float, at: int) -> None:
    values = _nights(random.Random(4), 40, 1.6, 0.01)
    values[at] = outlier
    assert change_points(values) == []


def test_an_outlier_does_not_hide_a_step() -> None:
    rng = random.Random(5)
    values = _nights(rng, 20, 1.6, 0.01) + _nights(rng, 20, 1.5, 0.01)
    values[10], values[30] = 0.4, 1.9
    assert change_points(values) == [20]


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 4 + [2.0] * 5, [0.0] * 40, [3.5] * 40])
def test_too_few_nights_and_constant_ones_have_one_level(values: list[float]) -> None:
    assert change_points(values) == []


def test_a_series_without_noise_has_its_step() -> None:
    assert change_points([3.0] * 10 + [1.0] * 10) == [10]
