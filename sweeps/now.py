"""What a run is doing at this moment, for other processes to read: two small files, each replaced whole."""

import time
from collections.abc import Sequence
from enum import StrEnum

from results.records import Cell, Phase, Point
from results.store import RunFolder
from sweeps.session import NOW_FILE

STAGE_FILE = "stage.json"


class Stage(StrEnum):
    """What a run is at; a comparison is all confirmation."""

    BASELINE = "tuning the baseline"
    SEARCH = "search"
    CONFIRM = "confirmation"


def write_stage(folder: RunFolder, stage: Stage, done: int, total: int) -> None:
    """A stage begins, with so much of it done: Trials, or Blocks until the last look."""
    folder.write_json(
        STAGE_FILE, {"stage": stage, "done": done, "total": total, "trials": len(folder.trials())}
    )


class Now:
    """Notes between measurements, never during one, which server starts or which Cell is measured."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._block: dict[str, object] = {}

    def block(self, number: int, phase: Phase, order: Sequence[Point]) -> None:
        """A Block begins with these arms, in this order."""
        self._block = {
            "block": number,
            "phase": phase,
            "block_since_at": time.time(),
            "arms": [point.label for point in order],
        }

    def starts(self, point: Point) -> None:
        """The server of this arm is about to be started."""
        self._write(point.label, None)

    def measures(self, cell: Cell, point: Point | None = None) -> None:
        """A Cell is about to be measured on this arm, or on all of them in turns."""
        self._write(point.label if point is not None else None, cell.label)

    def _write(self, arm: str | None, cell: str | None) -> None:
        self._folder.write_json(NOW_FILE, {**self._block, "arm": arm, "cell": cell, "since_at": time.time()})
