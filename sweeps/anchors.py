"""Search Blocks: each with the Baseline in it, or several Points between two launches of the Baseline.

A launch that takes minutes is the price of a trial. Where a start of the Baseline takes longer than its
measurement, it is launched once in a few trials only, and what was measured in between waits for the
next launch: then it is compared with both. One launch is one Block, so that a kill loses one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from analysis.anchor import Anchor, anchor_of, anchors_of, around, every_anchor, measured_at, place_of, steps
from analysis.gpu import different_limits
from results.reasons import MACHINE_FAULTS
from results.records import ArmRun, Block, Phase, Point, Trial
from sweeps.blocks import BlockRunner
from sweeps.sweep import Sweep

AUTO_TRIALS = 4  # between two anchors, where a start is dear
EARLIER = "earlier start"  # as the source of a Trial whose start was killed before it was recorded


@dataclass(frozen=True)
class Measured:
    """A Point that is ready to become a Trial."""

    block: Block
    point: Point
    source: str
    anchors: tuple[Anchor, ...] = ()  # () = the Baseline is in its own Block, or nothing to compare


class SearchBlocks:
    """Measures Points of the search one by one, each once."""

    def __init__(
        self,
        run_block: BlockRunner,
        sweep: Sweep,
        baseline: Point,
        past: Sequence[Block],
        *,
        go_on: Callable[[], bool],
        note: Callable[[str], None],
    ) -> None:
        """`past` are Blocks of earlier starts: what a launch costs is known from them."""
        self._run_block = run_block
        self._sweep = sweep
        self._baseline = baseline
        self._go_on = go_on
        self._note = note
        self._launches = [a.run for a in every_anchor(past)]
        self._anchors: list[Anchor] = []  # of this start: the machine may have changed since an earlier one
        self._waiting: list[Measured] = []
        self._told = 1  # trials for each launch of the Baseline, as last said to the user

    def measure(self, point: Point, source: str) -> list[Measured]:
        """Measure a Point; returns all that can be compared now, in the order they were measured.

        Raises MeasurementInvalid as a BlockRunner does.
        """
        every = self._trials_per_launch()
        self._tell(every)
        if every == 1:
            block = self._run_block([point], Phase.SEARCH, self._baseline)
            found = self.compared() if self._remember(block) else []
            return found if _is_of_the_baseline(block) else [*found, Measured(block, point, source)]
        if not self._anchors and not self._launch_baseline():
            return []
        block = self._run_block([point], Phase.SEARCH, self._baseline, alone=True)
        if _is_of_the_baseline(block):
            return []
        if not _needs_baseline(block, point):
            return [Measured(block, point, source)]
        self._waiting.append(Measured(block, point, source))
        if len(self._waiting) >= every and self._go_on() and self._launch_baseline():
            return self.compared()
        return []

    def close(self) -> list[Measured]:
        """What still waits: compared with one more launch, or with the last if there may be no more."""
        if self._waiting and self._go_on():
            self._launch_baseline()
        return self.compared()

    def _trials_per_launch(self) -> int:
        if self._sweep.pairing != "adjacent":
            return 1
        wanted = self._sweep.budget.baseline_every
        if wanted != "auto":
            return wanted
        if not start_is_dear(self._launches):
            return 1
        return AUTO_TRIALS // 2 if self._has_drifted() else AUTO_TRIALS

    def _has_drifted(self) -> bool:
        """Whether the Baseline changed by more than what counts as the same from one anchor to the next.

        Two launches do not tell drift from noise; what lies close between them is safe from either.
        """
        weights = self._sweep.weights.to_record()
        changes = steps(self._anchors[-2:], self._sweep.objective, weights)
        return any(abs(change) > math.log1p(self._sweep.confirm.same_margin) for change in changes)

    def _tell(self, every: int) -> None:
        if every == self._told:
            return
        self._told = every
        often = f"once in {every} trials" if every > 1 else "in every Block"
        self._note(f"the baseline is launched {often} from here on: {self._why(every)}")

    def _why(self, every: int) -> str:
        if self._sweep.budget.baseline_every != "auto":
            return "as budget.baseline_every says"
        if every == AUTO_TRIALS // 2:
            return "it changed by more than confirm.same_margin between its last two launches"
        start_s, measured_s = usual_times_s(self._launches)
        return f"a start takes {start_s:.0f} s, a measurement {measured_s:.0f} s"

    def _launch_baseline(self) -> bool:
        """Launch the Baseline until that is valid; False if there may be no more launches before."""
        while not self._remember(self._run_block([], Phase.SEARCH, self._baseline)):
            if not self._go_on():
                return False
        return True

    def _remember(self, block: Block) -> bool:
        anchor = anchor_of(block)
        if anchor is None:
            return False
        self._anchors.append(anchor)
        self._launches.append(anchor.run)
        return True

    def compared(self) -> list[Measured]:
        """What still waits, compared with the launches there are."""
        waiting, self._waiting = self._waiting, []
        return [_with_anchors(m, self._anchors) for m in waiting]


def usual_times_s(launches: Sequence[ArmRun]) -> tuple[float, float]:
    """The usual time of a start with its warm-up, and of a measurement."""
    start_s = median(run.start_s + run.warm_up_s for run in launches)
    return start_s, median(run.measured_s for run in launches)


def start_is_dear(launches: Sequence[ArmRun]) -> bool:
    """Whether a start usually takes longer than the measurement it is for; no if nothing is known."""
    if not launches:
        return False
    start_s, measured_s = usual_times_s(launches)
    return start_s > measured_s


def unrecorded(blocks: Sequence[Block], trials: Sequence[Trial]) -> list[Measured]:
    """Points that an earlier start measured, and was ended before it recorded their Trials.

    They are compared with the anchors that it left around them, never with one of a later start: the
    machine may have been another one in between.
    """
    recorded = {number for trial in trials for number in trial.blocks}
    found = [
        Measured(block, block.candidates[0].point, EARLIER)
        for block in blocks
        if block.phase is Phase.SEARCH and block.invalid is None and block.number not in recorded
        if block.candidates
    ]
    return [_with_anchors(m, anchors_of(blocks, m.block.compared_with)) for m in found]


def _is_of_the_baseline(block: Block) -> bool:
    """Whether a Block is lost by a fault that would be held against the Point: the next start asks again."""
    return block.invalid is not None and block.invalid.reason not in MACHINE_FAULTS


def _needs_baseline(block: Block, point: Point) -> bool:
    """Whether what was measured is a figure, which says nothing without another to compare it with."""
    arm = block.arm(point)
    return block.invalid is None and arm is not None and arm.failure is None and not arm.stopped_early


def _with_anchors(measured: Measured, anchors: Sequence[Anchor]) -> Measured:
    block = measured.block
    if block.baseline is not None or not _needs_baseline(block, measured.point):
        return measured
    arm = block.candidates[0]
    near = around(anchors, measured_at(block, arm), place_of(block))
    alike = tuple(a for a in near if different_limits([a.run, arm]) is None)  # else it is other hardware
    return Measured(block, measured.point, measured.source, alike)
