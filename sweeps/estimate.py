"""How long Blocks take and how long the rest will, from those that were measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from analysis.verdict import next_look
from results.records import Block, Phase

RECENT = 5  # Blocks that tell what the next one takes


@dataclass(frozen=True, slots=True)
class Left:
    """What is still to come, in seconds of wall time."""

    stage_s: float  # of this stage alone
    low_s: float  # until the next planned look
    high_s: float  # until the last one
    searching: bool

    def within(self, left_s: float) -> "Left":
        """Never more than a budget of hours leaves."""
        left_s = max(0.0, left_s)
        stage_s, low_s, high_s = (min(s, left_s) for s in (self.stage_s, self.low_s, self.high_s))
        return Left(stage_s, low_s, high_s, self.searching)


def usual_block_s(blocks: Sequence[Block], phase: Phase, finalists: int) -> float | None:
    """The median of the last few Blocks of this phase; None before any Block.

    Before the first confirmation Block: that of the search, with as many arms as it will have.
    """
    own = [b for b in blocks if b.phase is phase and b.arms]
    if own:
        return _recent_median([b.ended_at - b.started_at for b in own])
    per_arm_s = _recent_median([(b.ended_at - b.started_at) / len(b.arms) for b in blocks if b.arms])
    return None if per_arm_s is None else per_arm_s * (finalists + 1 if phase is Phase.CONFIRM else 2)


def _recent_median(durations_s: Sequence[float]) -> float | None:
    return median(durations_s[-RECENT:]) if durations_s else None


def rerun_factor(blocks: Sequence[Block]) -> float:
    """Blocks run for each that could be used, invalid ones included."""
    usable = sum(b.invalid is None for b in blocks)
    return len(blocks) / usable if usable else 1.0


def time_left(
    blocks: Sequence[Block], *, trials_left: int, looks: Sequence[int], finalists: int, searching: bool
) -> Left | None:
    """What is left of the search and of the confirmation; None before any Block was measured."""
    search_s = usual_block_s(blocks, Phase.SEARCH, finalists)
    confirm_s = usual_block_s(blocks, Phase.CONFIRM, finalists)
    if search_s is None or confirm_s is None:
        return None
    again = rerun_factor(blocks)
    confirmed = sum(b.phase is Phase.CONFIRM and b.invalid is None for b in blocks)
    to_next, to_last = (next_look(confirmed, looks) or confirmed) - confirmed, max(0, looks[-1] - confirmed)
    searched_s = search_s * trials_left * again if searching else 0.0
    low_s, high_s = (searched_s + confirm_s * n * again for n in (to_next, to_last))
    return Left(searched_s if searching else high_s, low_s, high_s, searching)
