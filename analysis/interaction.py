"""Whether a speed-up depends on the place it was measured at: then one figure for all hides something."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from analysis import places, words
from analysis.anchor import Place
from analysis.apart import ALPHA, Value, at_least_by_node, gaps
from analysis.statistics import t_interval
from results.records import Effect

_LEVEL = 0.05  # 95 % intervals

Pair = tuple[Place, float]  # where a Block happened, and its log ratio


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """Of one Point at one place."""

    place: Place
    log_ratio: float
    blocks: int
    effect: Effect | None  # with its 95 % interval, from two Blocks on


def speedups(pairs: Sequence[Pair]) -> list[SpeedUp]:
    """By place, from the log ratio of each Block."""
    found = dict[Place, list[float]]()
    for place, log in pairs:
        found.setdefault(place, []).append(log)
    return [
        SpeedUp(
            place,
            fmean(logs),
            len(logs),
            Effect(*t_interval(logs, _LEVEL), blocks=len(logs)) if len(logs) > 1 else None,
        )
        for place, logs in sorted(found.items())
    ]


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
