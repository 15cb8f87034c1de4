"""How long Blocks take and how long the rest will, from those that were measured.

Several Lanes measure as many Blocks at once. In the confirmation no more are in flight than the next look
takes, so Lanes beyond that wait.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from results.records import Block, Phase

RECENT = 5  # Blocks that tell what the next one takes


@dataclass(frozen=True, slots=True)
class Left:
    """What is still to come, in seconds of wall time."""

    stage_s: float  # of this stage alone
    low_s: float  # until the next planned look
    high_s: float  # until the last one
    searching: bool
    low_work_s: float = 0.0  # the same of all Lanes together: what the Blocks themselves take
    high_work_s: float = 0.0

    def within(self, left_s: float) -> "Left":
        """Never more than a budget of hours leaves."""
        left_s = max(0.0, left_s)
        stage_s, low_s, high_s = (min(s, left_s) for s in (self.stage_s, self.low_s, self.high_s))
        shares = (new / old if old else 1.0 for new, old in ((low_s, self.low_s), (high_s, self.high_s)))
        works_s = (
            work_s * share for work_s, share in zip((self.low_work_s, self.high_work_s), shares, strict=True)
        )
        return Left(stage_s, low_s, high_s, self.searching, *works_s)


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
    blocks: Sequence[Block],
    *,
    trials_left: int,
    looks: Sequence[int],
    finalists: int,
    searching: bool,
    lanes: int = 1,
) -> Left | None:
    """What is left of the search and of the confirmation; None before any Block was measured."""
    search_s = usual_block_s(blocks, Phase.SEARCH, finalists)
    confirm_s = usual_block_s(blocks, Phase.CONFIRM, finalists)
    if search_s is None or confirm_s is None:
        return None
    again = rerun_factor(blocks)
    confirmed = sum(b.phase is Phase.CONFIRM and b.invalid is None for b in blocks)
    trials = trials_left if searching else 0
    searched_s = search_s * again * rounds(trials, lanes)
    steps = to_looks(confirmed, looks)
    first, all_of = steps[:1], steps
    low_s, high_s = (
        searched_s + confirm_s * again * sum(rounds(n, lanes) for n in part) for part in (first, all_of)
    )
    low_work_s, high_work_s = (
        again * (search_s * trials + confirm_s * sum(part)) for part in (first, all_of)
    )
    return Left(searched_s if searching else high_s, low_s, high_s, searching, low_work_s, high_work_s)


def rounds(blocks: int, lanes: int) -> int:
    """How many Blocks one after the other, where so many are measured at once."""
    return math.ceil(blocks / lanes)


def to_looks(done: int, looks: Sequence[int]) -> list[int]:
    """Blocks to the next planned look, from there to the one after it, and so on."""
    return [b - a for a, b in pairwise([done, *(look for look in looks if look > done)])]
