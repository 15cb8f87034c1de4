"""The strongest server without speculation: what a speed-up is published against.

A winner may owe its gain to settings that a server without speculation could have too. So what the
finalists run with is tried without speculation before they are confirmed.
"""

from collections.abc import Sequence

from results.reasons import MACHINE_FAULTS
from results.records import BASELINE, BASELINE_METHOD, Block, Point, Trial
from sweeps.space import Space, baseline_space
from sweeps.study import best_of

FINALIST = "finalist"  # as the source of a Trial: a finalist's shared settings with speculation off


def settings_of(finalists: Sequence[Point], space: Space, trials: Sequence[Trial]) -> list[Point]:
    """Shared settings of the finalists, with speculation off, that no Trial has tried so."""
    without = baseline_space(space)
    if without is None:
        return []
    settled = [t for t in trials if t.failure is None or t.failure.reason not in MACHINE_FAULTS]
    known = {t.launched.key for t in settled} | {BASELINE.key}
    points = [space.engine.canonical(Point(BASELINE_METHOD, p.shared)) for p in finalists]
    fresh = {p.key: p for p in points if p.key not in known and not without.refusal(p)}
    return [*fresh.values()]


def strongest(baseline: Point, trials: Sequence[Trial], blocks: Sequence[Block], margin: float) -> Point:
    """The Baseline, or the best that was measured against it and is faster by more than `margin` (log)."""
    compared_with = {b.number: b.compared_with.key for b in blocks}
    against = [t for t in trials if t.blocks and compared_with.get(t.blocks[0]) == baseline.key]
    best = best_of([t for t in against if t.point.is_baseline])
    return best.point if best is not None and (best.log_speedup or 0.0) > margin else baseline
