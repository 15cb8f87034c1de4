"""The Baseline launched once in a few trials: what a trial measured in between is compared with.

Where a start costs minutes, the search launches the Baseline only now and then, as a drift anchor. A
Point measured between two anchors is compared with both, the nearer one counting more: a speed that
drifts steadily cancels, as it does within a Block.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from analysis.block import mean_log_speedup
from results.records import EQUAL_WEIGHTS, ArmRun, Block, Phase, Point, Trial, Weights

Place = tuple[str, tuple[str, ...]]  # node and GPUs: absolute figures of two of them are never compared


@dataclass(frozen=True, slots=True)
class Anchor:
    """One launch of the Baseline in the search."""

    block: int  # number of its Block
    at: float  # Unix time of the middle of its measurement
    run: ArmRun
    place: Place = ("", ())


def anchor_of(block: Block) -> Anchor | None:
    """The launch of the Baseline in a search Block; None if it has none that is whole and usable."""
    run = block.baseline
    if block.phase is not Phase.SEARCH or block.invalid is not None or run is None:
        return None
    if run.failure is not None or not run.complete or not run.measurements:
        return None
    return Anchor(block.number, measured_at(block, run), run, place_of(block))


def place_of(block: Block) -> Place:
    return block.node, block.gpus


def every_anchor(blocks: Iterable[Block]) -> list[Anchor]:
    """Every launch of whatever Baseline in the search."""
    return [anchor for b in blocks if (anchor := anchor_of(b)) is not None]


def anchors_of(blocks: Iterable[Block], baseline: Point) -> list[Anchor]:
    """Every launch of this Baseline in the search, in order of time."""
    own = (a for a in every_anchor(blocks) if a.run.point.key == baseline.key)
    return sorted(own, key=lambda a: a.at)


def nearest(anchors: Iterable[Anchor], block: Block) -> ArmRun | None:
    """The launch of its Baseline there nearest in time to a Block without one; None if there is none."""
    own = [a for a in anchors if a.run.point.key == block.compared_with.key and a.place == place_of(block)]
    return min(own, key=lambda a: abs(a.at - block.started_at)).run if own else None


def measured_at(block: Block, run: ArmRun) -> float:
    """Unix time of the middle of an arm's measurement, where arms ran one after the other."""
    before_s = 0.0
    for arm in block.arms:
        if arm.point.key == run.point.key:
            break
        before_s += arm.start_s + arm.warm_up_s + arm.measured_s
    return block.started_at + before_s + run.start_s + run.warm_up_s + run.measured_s / 2


def around(anchors: Sequence[Anchor], at: float, place: Place = ("", ())) -> tuple[Anchor, ...]:
    """The last anchor of a place before a moment and the first one after it, as far as there are any."""
    before = [a for a in anchors if a.place == place and a.at <= at]
    after = [a for a in anchors if a.place == place and a.at > at]
    return (*before[-1:], *after[:1])


def shares(anchors: Sequence[Anchor], at: float) -> list[float]:
    """How much each of one or two neighbouring anchors counts at a moment: linear in time, sum 1."""
    if len(anchors) < 2:
        return [1.0] * len(anchors)
    before, after = anchors
    passed = (at - before.at) / (after.at - before.at) if after.at > before.at else 0.5
    of_after = min(max(passed, 0.0), 1.0)
    return [1.0 - of_after, of_after]


def steps(anchors: Sequence[Anchor], objective: str, weights: Weights = EQUAL_WEIGHTS) -> list[float]:
    """Log ratio of each anchor to the one before it there, as far as known; 0 = no machine drifted."""
    pairs = (
        (a, b) for a, b in pairwise(sorted(anchors, key=lambda a: (a.place, a.at))) if a.place == b.place
    )
    ratios = [mean_log_speedup(a.run, b.run, objective, weights) for a, b in pairs]
    return [ratio for ratio in ratios if ratio is not None]


def used_by(trials: Iterable[Trial], blocks: Iterable[Block]) -> list[Anchor]:
    """The anchors that Trials were compared with, in order of time."""
    numbers = {number for trial in trials for number in trial.anchors}
    return sorted(every_anchor(b for b in blocks if b.number in numbers), key=lambda a: a.at)
