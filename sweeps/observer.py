"""What a sweep tells while it runs: the command line shows it, tests record it."""

from collections.abc import Sequence
from typing import Protocol

from results.records import Phase, Point, Trial, Verdict


class Observer(Protocol):
    """Called from the thread that runs the sweep, between measurements, never during one."""

    def begin(self, phase: Phase, done: int, total: int) -> None:
        """A phase starts: `total` Trials to search, or Blocks until the last planned look."""

    def arm(self, phase: Phase, point: Point) -> None:
        """A server is about to be started for this Point."""

    def trial(self, trial: Trial, best: Trial | None) -> None:
        """A Trial has ended, well or not."""

    def look(self, blocks: int, verdicts: Sequence[Verdict]) -> None:
        """A confirmation Block has ended."""

    def note(self, text: str) -> None:
        """Something the user should know now."""
