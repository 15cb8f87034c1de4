"""The cost model: predicts the speed-up of Points that were not launched, where it has proved that it can.

    speed-up = tokens emitted per step * T(baseline step) / (T(draft) + T(verify) + T(host))

(Leviathan et al. 2023, theorem 3.8, with measured acceptance in place of its independence). Every
Point measured is predicted once from others; a method for which that goes wrong gets no prediction.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

import numpy as np

from analysis.costmodel.drafting import expected_drafting
from analysis.costmodel.observations import Observation
from analysis.costmodel.places import Array, places, squared_distances
from analysis.costmodel.steps import StepCost, fit_step_cost
from results.records import EQUAL_WEIGHTS, Cell, DraftShape, Point, Weights

MAX_ERROR = 0.10  # median over the held-out Points
FEWEST_POINTS = 5  # of one method
FOLDS = 12  # up to so many Points one is held out at a time, beyond it a twelfth
DOUBT_PER_DOUBLING = 0.1  # log speed-up: of depths beyond the deepest measured
NORMAL_MAD = 1.4826  # the median absolute deviation of a normal distribution is sd / this


@dataclass(frozen=True, slots=True)
class Prediction:
    """Log speed-up of one Point: the weighted mean over Cells, its standard deviation, and each Cell's."""

    log_speedup: float
    sd: float
    by_cell: Mapping[Cell, float]


@dataclass(frozen=True, slots=True)
class Check:
    """How well the Points of one method were predicted, each from others."""

    method: str
    points: int
    errors: Mapping[str, float]  # Point key -> |predicted / measured - 1|
    plain_error: float | None  # median, had each been predicted as the median of the others
    sd: float  # of the log ratio predicted / measured
    why_silent: str  # "" = it speaks

    @property
    def speaks(self) -> bool:
        return not self.why_silent

    @property
    def error(self) -> float | None:
        """Median over the Points."""
        return median(self.errors.values()) if self.errors else None


class CostModel:
    """Fitted to the Observations of one search."""

    def __init__(self, observed: Sequence[Observation], weights: Weights = EQUAL_WEIGHTS) -> None:
        self.observed = list(observed)
        self._weights = weights
        self.costs: dict[Cell, StepCost] = _costs(self.observed)

    @property
    def speaks(self) -> bool:
        """Whether there is any method that it predicts."""
        return any(check.speaks for check in self.checks.values())

    @cached_property
    def checks(self) -> Mapping[str, Check]:
        """By method."""
        methods = dict.fromkeys(o.point.method for o in self.observed)
        return {method: self._check(method) for method in methods}

    def predict(
        self, points: Sequence[Point], shapes: Sequence[DraftShape | None]
    ) -> list[Prediction | None]:
        """One each; None for a method on which it is silent, and for a Point that drafts by no shape."""
        found: list[Prediction | None] = [None] * len(points)
        for method, check in self.checks.items():
            mine = [i for i, p in enumerate(points) if p.method == method and shapes[i] is not None]
            if check.speaks and mine:
                told = [s for i in mine if (s := shapes[i]) is not None]
                for i, prediction in zip(
                    mine, self._predict(check, [points[i] for i in mine], told), strict=True
                ):
                    found[i] = prediction
        return found

    def _predict(
        self, check: Check, points: Sequence[Point], shapes: Sequence[DraftShape]
    ) -> list[Prediction]:
        mine = [o for o in self.observed if o.point.method == check.method]
        where = places([*points, *(o.point for o in mine)])
        apart = squared_distances(where[: len(points)], where[len(points) :])
        by_cell = predict_by_cell(mine, self.costs, shapes, apart)
        shares = [self._weights.of(cell) for cell in by_cell]
        means = np.average(np.array([*by_cell.values()]), axis=0, weights=shares if any(shares) else None)
        deepest = max(o.shape.depth for o in mine)
        beyond = [DOUBT_PER_DOUBLING * max(math.log2(max(s.depth, 1) / deepest), 0.0) for s in shapes]
        return [
            Prediction(
                float(means[i]), math.hypot(check.sd, beyond[i]), {c: float(v[i]) for c, v in by_cell.items()}
            )
            for i in range(len(points))
        ]

    def _check(self, method: str) -> Check:
        mine = [o for o in self.observed if o.point.method == method]
        keys = list(dict.fromkeys(o.key for o in mine))
        measured = {key: _mean_log([o for o in mine if o.key == key]) for key in keys}
        if len(keys) < FEWEST_POINTS:
            why = f"{len(keys)} Points measured, {FEWEST_POINTS} are needed"
            return Check(method, len(keys), {}, None, 0.0, why)
        misses = self._misses(mine, keys)
        errors = {key: math.expm1(abs(miss)) for key, miss in misses.items()}
        plain = median(_plain_error(key, measured) for key in keys)
        sd = NORMAL_MAD * median(map(abs, misses.values()))
        return Check(method, len(keys), errors, plain, sd, self._why_silent(method, errors, plain))

    def _why_silent(self, method: str, errors: Mapping[str, float], plain: float) -> str:
        error = median(errors.values())
        if not error < MAX_ERROR:
            return f"held-out Points are missed by {error:.0%}, {MAX_ERROR:.0%} are allowed"
        if error > plain:
            return f"held-out Points are missed by {error:.1%}, and by {plain:.1%} if all are taken as alike"
        impossible = [
            o for o in self.observed if o.point.method == method and o.length > o.shape.depth + 1.01
        ]
        if impossible:
            return f"{impossible[0].point.label} emitted more tokens per step than it can draft"
        return ""

    def _misses(self, mine: Sequence[Observation], keys: Sequence[str]) -> dict[str, float]:
        """Mean log(predicted / measured) of each Point, predicted from Points that it is not among."""
        where = places([o.point for o in mine])
        apart = squared_distances(where, where)
        found: dict[str, list[float]] = {}
        for held in _folds(keys):
            costs = _costs([o for o in self.observed if o.key not in held])
            told = [i for i, o in enumerate(mine) if o.key not in held]
            asked = [i for i, o in enumerate(mine) if o.key in held]
            near = apart[np.ix_(asked, told)]
            by_cell = predict_by_cell([mine[i] for i in told], costs, [mine[i].shape for i in asked], near)
            for row, o in enumerate(mine[i] for i in asked):
                miss = by_cell[o.cell][row] - o.log_speedup if o.cell in by_cell else math.inf
                found.setdefault(o.key, []).append(float(miss))
        return {key: sum(misses) / len(misses) for key, misses in found.items()}


def predict_by_cell(
    mine: Sequence[Observation], costs: Mapping[Cell, StepCost], shapes: Sequence[DraftShape], apart: Array
) -> dict[Cell, Array]:
    """Log speed-ups of Points with these shapes, from the Observations of their method.

    `apart`: (shapes, mine) squared distances.
    """
    found: dict[Cell, Array] = {}
    for cell in dict.fromkeys(o.cell for o in mine):
        at = [i for i, o in enumerate(mine) if o.cell == cell]
        seen = [mine[i] for i in at]
        drafting = expected_drafting(seen, shapes, apart[:, at])
        cost = costs[seen[0].load].of(seen[0].point.method, shapes, drafting)
        share = float(np.mean([o.prompt_share for o in seen]))
        found[cell] = -np.log(share + (1.0 - share) * cost / (1.0 + drafting.accepted))
    return found


def _folds(keys: Sequence[str]) -> list[set[str]]:
    """One Point at a time, or, of many, a share of them that does not hang on their order."""
    return [set(keys[i::FOLDS]) for i in range(min(FOLDS, len(keys)))]


def _costs(observed: Sequence[Observation]) -> dict[Cell, StepCost]:
    loads = dict.fromkeys(o.load for o in observed)
    return {load: fit_step_cost([o for o in observed if o.load == load]) for load in loads}


def _mean_log(observed: Sequence[Observation]) -> float:
    return sum(o.log_speedup for o in observed) / len(observed)


def _plain_error(key: str, measured: Mapping[str, float]) -> float:
    others = median(v for k, v in measured.items() if k != key)
    return math.expm1(abs(others - measured[key]))
