"""Blocks of a run: numbered, recorded, run again while they are invalid."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.records import BASELINE, Block, Phase, Point
from results.sharing import Sharing
from results.store import RunFolder
from sweeps.block import LocalLane
from sweeps.setup import Setup
from sweeps.sweep import Patience

MAX_GIVEN_UP = 3  # Blocks in a row, each already rerun; beyond, the machine is not fit to measure on


class BlockRunner(Protocol):
    """Measures Points against a Baseline in one Block: all the search needs to know of servers.

    Raises MeasurementInvalid when Blocks stay unusable, LaneLost when the machine is gone.
    """

    def __call__(
        self, points: Sequence[Point], phase: Phase, baseline: Point = BASELINE, *, alone: bool = False
    ) -> Block:
        """`alone`: without the Baseline, which was measured shortly before (see sweeps.anchors)."""


class LaneLost(Exception):
    """The machine is gone with the Block that it measured: somebody else measures that."""


class LaneOver(LaneLost):
    """The machine had to be given back before the Block was begun: that says nothing of the Block."""


class Lane(Protocol):
    """One machine, or a part of one with GPUs of its own, that measures one Block at a time."""

    def measure(
        self, number: int, points: Sequence[Point], phase: Phase, baseline: Point, *, alone: bool
    ) -> Block:
        """One Block, invalid or not; its requests, telemetry and logs are in the run folder then.

        Raises LaneLost.
        """


class Blocks:
    """The BlockRunner of one Lane. Every Block, invalid ones too, goes into the run folder."""

    def __init__(
        self,
        lane: Lane,
        folder: RunFolder,
        patience: Patience,
        done: list[Block],
        sharing: Sharing,
        *,
        again: Callable[[], bool] = lambda: True,
    ) -> None:
        """`done` are the Blocks of the run so far, of every Lane; each new one is put there too.

        `again` is asked before an invalid Block is run again.
        """
        self._lane, self._folder, self._patience = lane, folder, patience
        self._done, self._again, self._sharing = done, again, sharing
        self._given_up = 0  # Blocks in a row that stayed invalid

    def __call__(
        self, points: Sequence[Point], phase: Phase, baseline: Point = BASELINE, *, alone: bool = False
    ) -> Block:
        """Raises MeasurementInvalid if the Baseline or the machine cannot give a usable Block."""
        for _ in range(self._patience.reruns + 1):
            number = self._sharing.next_block()
            block = self._lane.measure(number, points, phase, baseline, alone=alone)
            self._folder.add_block(block)
            self._done.append(block)
            if block.invalid is None:
                self._given_up = 0
                return block
            if block.invalid.reason is Reason.TOO_SHORT:
                break  # the same again would be as short
            if not self._again():
                return block  # nothing is decided: the next start measures it
        self._give_up(block)
        return block

    def _give_up(self, block: Block) -> None:
        """A Block that stays invalid is passed over; a failing Baseline or too many of them end the run."""
        self._given_up += 1
        invalid = block.invalid
        failed = block.baseline.failure if block.baseline else None
        if failed is not None and failed.reason is not Reason.OTHER_LOAD:
            name = block.compared_with.name or "the baseline"
            raise MeasurementInvalid(failed.reason, f"{name} cannot be measured: {failed.evidence}")
        if invalid is not None and invalid.reason is Reason.TOO_SHORT:
            remedy = "raise workload.prompts_per_class or workload.max_tokens, or lower patience.min_window_s"
            raise MeasurementInvalid(invalid.reason, f"{invalid.evidence}: {remedy}")
        if invalid is not None and self._given_up >= MAX_GIVEN_UP:
            evidence = f"{self._given_up} Blocks in a row stayed unusable, the last one: {invalid.evidence}"
            raise MeasurementInvalid(invalid.reason, evidence)


def blocks_here(
    setup: Setup,
    done: list[Block],
    sharing: Sharing,
    observe: Callable[[Phase, Point], None],
    setups: Mapping[str, Setup] | None = None,
    *,
    again: Callable[[], bool] = lambda: True,
) -> Blocks:
    """Blocks of a run that happens on this machine; see `Blocks` and `LocalLane`."""
    lane = LocalLane(setup, observe, setups)
    return Blocks(lane, setup.folder, setup.sweep.patience, done, sharing, again=again)
