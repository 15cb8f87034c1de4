"""Which unknown Point is worth the next launch: expected improvement over the best one measured.

A surface through the log speed-ups of all Trials, over the knobs; where the cost model speaks, over
and above what it predicts. Expected improvement: Jones, Schonlau and Welch 1998.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from launchers.engines.engine import Engine
from results.records import Point, Trial, TrialState

if TYPE_CHECKING:
    from analysis.costmodel.model import CostModel
    from analysis.costmodel.places import Array

FEWEST_TRIALS = 3
WORST = 0.7  # log speed-up below the best from which on all are equally bad
FINE, FAILED = -0.5, 3.0  # log(value / limit), and what stands for one where there is no limit
FAILURE_SCALE, FAILURE_NOISE = (1.2,), (0.1,)  # few failures tell too little to choose by
MODEL, SURFACE = "cost model", "surface"


@dataclass(frozen=True, slots=True)
class Proposal:
    point: Point
    source: str


def propose(
    engine: Engine, model: "CostModel", trials: Sequence[Trial], unknown: Sequence[Point]
) -> Proposal | None:
    """The best of the unknown Points; None while too few Trials have a number.

    Trials without one that failed by their own fault, and those over a limit, count for where that happens.
    """
    import numpy as np

    from analysis.costmodel.places import places

    told = [t for t in trials if t.log_speedup is not None and t.state is not TrialState.FAILED]
    if len(told) < FEWEST_TRIALS or not unknown:
        return None
    where = places([*(t.launched for t in trials), *unknown])
    measured = where[[i for i, t in enumerate(trials) if t in told]]
    gain, spoken = _gain(engine, model, told, unknown, measured, where[len(trials) :])
    at = int(np.argmax(gain * _chance_to_work(trials, where)))
    return Proposal(unknown[at], MODEL if spoken[at] else SURFACE)


def _gain(
    engine: Engine,
    model: "CostModel",
    told: Sequence[Trial],
    unknown: Sequence[Point],
    measured: "Array",
    open_places: "Array",
) -> tuple["Array", list[bool]]:
    """Expected improvement of each unknown Point, and whether the cost model had a say in it."""
    import numpy as np

    from analysis.surface import fit_surface

    values = np.array([t.log_speedup for t in told], dtype=float)
    kept = [v for v, t in zip(values, told, strict=True) if t.keeps_limits]
    values = np.maximum(values, max(kept, default=np.max(values)) - WORST)
    expected, spoken = _expected(engine, model, [*(t.point for t in told), *unknown], values)
    surface = fit_surface(measured, list(values - expected[: len(told)]))
    smooth = surface.at(measured)[0] + expected[: len(told)]
    best = max(
        (float(m) for m, t in zip(smooth, told, strict=True) if t.keeps_limits), default=float(min(smooth))
    )
    mean, sd = surface.at(open_places)
    return _improvement(mean + expected[len(told) :] - best, sd), spoken[len(told) :]


def _expected(
    engine: Engine, model: "CostModel", points: Sequence[Point], values: "Array"
) -> tuple["Array", list[bool]]:
    """What to expect of each Point before its neighbours are looked at, and whether the model said so."""
    import numpy as np

    predicted = model.predict(points, [engine.draft_shape(p) for p in points])
    usual, low = median(values), float(np.min(values))
    expected = [usual if p is None else max(p.log_speedup, low) for p in predicted]
    return np.array(expected, dtype=float), [p is not None for p in predicted]


def _improvement(above: "Array", sd: "Array") -> "Array":
    import numpy as np
    from scipy.special import ndtr

    z = above / sd
    found: Array = above * ndtr(z) + sd * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return found


def _chance_to_work(trials: Sequence[Trial], where: "Array") -> "Array | float":
    """Probability that each unknown Point starts, serves and keeps the limits.

    0 for one that will rather not, while there are others: expected improvement loves the cliff's edge.
    """
    import numpy as np
    from scipy.special import ndtr

    from analysis.surface import fit_surface

    broken = [_brokenness(t) for t in trials]
    if max(broken) <= 0:
        return 1.0
    surface = fit_surface(where[: len(trials)], [b - FINE for b in broken], FAILURE_SCALE, FAILURE_NOISE)
    mean, sd = surface.at(where[len(trials) :])
    works: Array = ndtr(-(mean + FINE) / sd)
    likely = works >= 0.5
    return np.where(likely, works, 0.0) if np.any(likely) else works


def _brokenness(trial: Trial) -> float:
    """Above 0: it failed by its own fault, or is over a limit."""
    if trial.state is TrialState.FAILED:
        return FAILED
    return max(trial.limits.values(), default=FINE)
