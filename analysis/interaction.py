"""Whether a speed-up depends on the place it was measured at: then one figure for all hides something."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from analysis import places, words
from analysis.anchor import Place
from analysis.apart import ALPHA, Value, at_least_by_node, gaps, half_widths
from results.records import Effect

Pair = tuple[Place, float]  # where a Block happened, and its log ratio


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """Of one Point at one place."""

    place: Place
    log_ratio: float
    blocks: int
    effect: Effect | None  # with its 95 % interval; None = the noise is not known


def speedups(pairs: Sequence[Pair]) -> list[SpeedUp]:
    """By place, from the log ratio of each Block. A few Blocks at one place are told by the noise of all."""
    found = dict[Place, list[float]]()
    for place, log in pairs:
        found.setdefault(place, []).append(log)
    half = half_widths([Value(place, log) for place, log in pairs])
    return [_of_place(place, logs, half.get(place)) for place, logs in sorted(found.items())]


def _of_place(place: Place, logs: Sequence[float], half: float | None) -> SpeedUp:
    mean, blocks = fmean(logs), len(logs)
    effect = Effect(mean, mean - half, mean + half, blocks) if half is not None else None
    return SpeedUp(place, mean, blocks, effect)


def by_node(pairs: Sequence[Pair]) -> list[SpeedUp]:
    return speedups([((place[0], ()), log) for place, log in pairs])


def depends(pairs: Sequence[Pair], margin: float, alpha: float = ALPHA) -> str:
    """`1.12x on a, 0.97x on b`, where a place differs from the others by more than the noise; else "".

    By node where the places are too many; `margin` is the log ratio below which nobody cares.
    """
    values = at_least_by_node([Value(place, log) for place, log in pairs])
    odd = {gap.place for gap in gaps(values, margin, alpha) if gap.differs}
    if not odd:
        return ""
    nodes = {node for node, _ in odd}
    whole = all(v.place in odd for v in values if v.place[0] in nodes)  # then their GPUs make no difference
    found = by_node(pairs) if whole else speedups([(v.place, v.log) for v in values])
    return ", ".join(f"{words.times(s.log_ratio)} on {places.label(s.place)}" for s in found)
