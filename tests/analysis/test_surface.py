"""The surface goes through what was measured, is unsure far away, and places alike Points near each other."""

import math
import random

import numpy as np
import pytest

from analysis.costmodel.places import places, squared_distances
from analysis.surface import fit_surface
from results.records import Point


def point(n: int, kind: str = "plain", method: str = "lookup") -> Point:
    return Point(method, {"n": n, "kind": kind})


def test_numbers_lie_by_rank_and_names_in_corners() -> None:
    where = places([point(1), point(2), point(64), point(1, "fuzzy"), point(1, method="tree")])
    apart = np.sqrt(squared_distances(where, where))
    assert apart[0, 1] == pytest.approx(0.5)
    assert apart[0, 2] == pytest.approx(1.0)
    assert apart[0, 3] == pytest.approx(1.0)
    assert apart[0, 4] > 1.0


def test_a_dead_knob_is_in_the_middle() -> None:
    where = places([point(1), point(9), Point("lookup", {"kind": "plain"})])
    apart = squared_distances(where, where)
    assert apart[0, 2] == pytest.approx(apart[1, 2])


def test_a_shared_setting_is_one_knob_for_all_methods() -> None:
    on, off = {"--fast": True}, {"--fast": False}
    where = places([Point("a", on), Point("b", on), Point("a", off)])
    apart = squared_distances(where, where)
    assert apart[1, 2] == pytest.approx(apart[0, 1] + apart[0, 2])


def test_it_meets_the_values_and_doubts_what_is_far() -> None:
    where = np.linspace(0.0, 1.0, 9)[:, None]
    values = [math.sin(3 * float(x)) for x in where[:, 0]]
    surface = fit_surface(where, values)
    mean, sd = surface.at(np.array([[0.4375], [5.0]]))
    assert mean[0] == pytest.approx(math.sin(3 * 0.4375), abs=0.05)
    assert mean[1] == pytest.approx(0.0, abs=0.1)
    assert sd[1] > 3 * sd[0]


def test_noise_is_smoothed() -> None:
    rng = random.Random(2)
    where = np.linspace(0.0, 1.0, 40)[:, None]
    mean, _ = fit_surface(where, [0.3 + rng.gauss(0.0, 0.1) for _ in where]).at(where)
    assert float(np.std(mean)) < 0.05
