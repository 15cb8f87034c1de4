"""What each Point is worth at each measured number of requests in flight, and for which batches it stands."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from analysis.anchor import every_anchor, nearest
from analysis.block import log_speedup
from analysis.summary import requested_concurrency
from results.records import EQUAL_WEIGHTS, ArmRun, Block, Phase, Point, Trial, Weights


@dataclass(frozen=True, slots=True)
class Figure:
    """A Point at one concurrency: mean log speed-up over its Blocks and its Cells at that pace."""

    concurrency: int
    log_speedup: float
    blocks: int
    confirmed: bool  # on held-out prompts; else an estimate of the search, optimistic for the best of many


def figures(
    trial: Trial,
    blocks: Sequence[Block],
    objective: str = "tokens_per_s",
    weights: Weights = EQUAL_WEIGHTS,
) -> dict[int, Figure]:
    """By concurrency; from the confirmation where it measured the Point, else from the search.

    Of the `weights` those of paces have no say: at its own concurrency each counts.
    """
    within = replace(weights, paces={})
    found: dict[int, Figure] = {}
    for phase, point in ((Phase.SEARCH, trial.launched), (Phase.CONFIRM, trial.point)):
        of_phase = _by_concurrency(point, [b for b in blocks if b.phase is phase], objective, within)
        is_confirmed = phase is Phase.CONFIRM
        found |= {n: Figure(n, fmean(d), len(d), is_confirmed) for n, d in of_phase.items()}
    return found


def _by_concurrency(
    point: Point, blocks: Sequence[Block], objective: str, weights: Weights
) -> dict[int, list[float]]:
    """One figure per usable Block."""
    found: dict[int, list[float]] = {}
    anchors = every_anchor(blocks)
    for block in blocks:
        arm, baseline = block.arm(point), block.baseline or nearest(anchors, block)
        if block.invalid is not None or arm is None or baseline is None or arm.failure or arm.stopped_early:
            continue
        for concurrency, log_ratio in _of_arm(baseline, arm, objective, weights).items():
            found.setdefault(concurrency, []).append(log_ratio)
    return found


def _of_arm(baseline: ArmRun, arm: ArmRun, objective: str, weights: Weights) -> dict[int, float]:
    """Weighted mean over the Cells of each closed(n); open loops keep no number in flight."""
    by_label = log_speedup(baseline, arm, objective)
    found: dict[int, list[tuple[float, float]]] = {}
    for measurement in baseline.measurements:
        concurrency = requested_concurrency(measurement.cell)
        if concurrency is not None and measurement.cell.label in by_label:
            weighed = by_label[measurement.cell.label], weights.of(measurement.cell)
            found.setdefault(concurrency, []).append(weighed)
    return {n: fmean(*zip(*cells, strict=True)) for n, cells in found.items() if any(w for _, w in cells)}


def nearest_sizes(concurrencies: Sequence[int]) -> list[tuple[int, int | None]]:
    """(first, last) batch size that each measured concurrency stands for, both included, in rising order.

    A size belongs to the nearest measured one by ratio: under closed(8) the batch is 7 while a request is
    replaced by the next, and must not be taken for closed(1). The last range is open.
    """
    measured = sorted(set(concurrencies))
    lasts = [math.isqrt(a * b) for a, b in pairwise(measured)]
    firsts = [1, *(last + 1 for last in lasts)]
    return list(zip(firsts, [*lasts, None], strict=True))
