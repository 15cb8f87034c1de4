"""Two Observers: plain lines for a log, a live display for a terminal."""

import math
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from results.records import Phase, Point, Trial, Verdict, VerdictKind

if TYPE_CHECKING:
    from rich.console import Console

TITLES = {Phase.SEARCH: "search", Phase.CONFIRM: "confirm"}


class PlainProgress:
    """One line for each Trial and each confirmation Block."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._total = 0
        self._done = 0
        self._began = time.monotonic()
        self._began_done = 0

    def begin(self, phase: Phase, done: int, total: int) -> None:
        self._total, self._done, self._began_done = total, done, done
        self._began = time.monotonic()
        what = "points to measure" if phase is Phase.SEARCH else "Blocks at most"
        again = f", {done} done before" if done else ""
        self._say(f"{TITLES[phase]}: {total} {what}{again}")

    def arm(self, phase: Phase, point: Point) -> None:
        """Nothing: a log needs no line for each start."""

    def trial(self, trial: Trial, best: Trial | None) -> None:
        self._done += 1
        self._say(f"  trial {self._done}/{self._total}  {outcome(trial)}{self._left()}")

    def look(self, blocks: int, verdicts: Sequence[Verdict]) -> None:
        self._done = blocks
        self._say(f"  Block {blocks}/{self._total}  {standing(verdicts)}")

    def note(self, text: str) -> None:
        self._say(f"  {text}")

    def _left(self) -> str:
        seconds = seconds_left(self._done - self._began_done, self._total - self._done, self._began)
        return f"  (about {seconds:.0f} s left to search)" if seconds else ""


class LiveProgress:
    """A bar with the phase, what is running, the best so far and the time left."""

    def __init__(self, console: "Console") -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[now]}"),
            console=console,
            transient=True,
            refresh_per_second=2,  # a faster display would cost what is being measured
        )
        self._task = self._progress.add_task("prepare", total=None, now="calibrating the load client")
        self._best = ""

    def __enter__(self) -> "LiveProgress":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, phase: Phase, done: int, total: int) -> None:
        self._progress.remove_task(self._task)
        self._task = self._progress.add_task(TITLES[phase], total=total, completed=done, now="")

    def arm(self, phase: Phase, point: Point) -> None:
        self._progress.update(self._task, now=f"{point.label}{self._best}")

    def trial(self, trial: Trial, best: Trial | None) -> None:
        if best is not None and best.log_speedup is not None:
            self._best = f"  | best {math.exp(best.log_speedup):.2f}x {best.point.label}"
        self._progress.advance(self._task)
        self._progress.console.print(f"  {outcome(trial)}", highlight=False)

    def look(self, blocks: int, verdicts: Sequence[Verdict]) -> None:
        self._progress.update(self._task, completed=blocks)
        self._progress.console.print(f"  Block {blocks}: {standing(verdicts)}", highlight=False)

    def note(self, text: str) -> None:
        self._progress.console.print(f"  {text}", highlight=False)


def outcome(trial: Trial) -> str:
    """One Trial in one line."""
    return f"{trial.label}: {_outcome(trial)}"


def _outcome(trial: Trial) -> str:
    if trial.failure is not None:
        return f"{trial.failure.reason}, {trial.failure.evidence}"
    if trial.log_speedup is None:
        return "not measured"
    stopped = " (stopped early)" if trial.state == "hopeless" else ""
    cells = "  ".join(f"{cell} {math.exp(ratio):.2f}x" for cell, ratio in trial.by_cell.items())
    return f"{math.exp(trial.log_speedup):.2f}x{stopped}  {cells}".rstrip()


def standing(verdicts: Sequence[Verdict]) -> str:
    """Where the confirmation stands, in one line."""
    parts = []
    for verdict in verdicts:
        kind = "open" if verdict.kind is VerdictKind.UNDECIDED else verdict.kind
        factor = f" {math.exp(verdict.effect.log_ratio):.2f}x" if verdict.effect else ""
        parts.append(f"{verdict.point.label}{factor} {kind}")
    return "; ".join(parts)


def seconds_left(done: int, left: int, began: float) -> float | None:
    """Time for what is left at the pace of what this start has done."""
    return (time.monotonic() - began) / done * left if done and left else None
