"""Two Observers: plain lines for a log, a live display for a terminal."""

import math
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from analysis import words
from analysis.verdict import still_open
from results.records import Phase, Point, Trial, Verdict, VerdictKind
from sweeps.estimate import Left

if TYPE_CHECKING:
    from rich.console import Console

MOST_CELLS = 3  # of a Trial in its line; the map has them all
TITLES = {Phase.SEARCH: "search", Phase.CONFIRM: "confirm"}


class PlainProgress:
    """One line for each Trial and each confirmation Block."""

    def __init__(self, say: Callable[[str], None], left: Callable[[], Left | None]) -> None:
        """`left` tells what is still to come, by what was measured so far."""
        self._say, self._left = say, left
        self._total = 0
        self._done = 0

    def begin(self, phase: Phase, done: int, total: int) -> None:
        self._total, self._done = total, done
        what = "points to measure" if phase is Phase.SEARCH else "Blocks at most"
        again = f", {done} done before" if done else ""
        self._say(f"{TITLES[phase]}: {total} {what}{again}")

    def arm(self, phase: Phase, point: Point) -> None:
        """Nothing: a log needs no line for each start."""

    def trial(self, trial: Trial, best: Trial | None) -> None:
        self._done += 1
        self._say(f"  trial {self._done}/{self._total}  {outcome(trial)}{shown_left(self._left())}")

    def look(self, blocks: int, verdicts: Sequence[Verdict]) -> None:
        self._done = blocks
        left = "" if is_settled(verdicts) else shown_left(self._left())
        self._say(f"  Block {blocks}/{self._total}  {standing(verdicts)}{left}")

    def note(self, text: str) -> None:
        self._say(f"  {text}")


class LiveProgress:
    """A bar with the phase, what is running, the best so far and the time left."""

    def __init__(self, console: "Console", left: Callable[[], Left | None]) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}{task.fields[now]}"),
            console=console,
            transient=True,
            refresh_per_second=2,  # a faster display would cost what is being measured
        )
        now = "calibrating the load client"
        self._task = self._progress.add_task("prepare", total=None, left="", now=now)
        self._best, self._left = "", left

    def __enter__(self) -> "LiveProgress":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, phase: Phase, done: int, total: int) -> None:
        self._progress.remove_task(self._task)
        self._task = self._progress.add_task(TITLES[phase], total=total, completed=done, now="", left="")
        self._revise()

    def arm(self, phase: Phase, point: Point) -> None:
        self._progress.update(self._task, now=f"{point.label}{self._best}")

    def trial(self, trial: Trial, best: Trial | None) -> None:
        if best is not None and best.log_speedup is not None:
            self._best = f"  | best {math.exp(best.log_speedup):.2f}x {best.point.label}"
        self._progress.advance(self._task)
        self._revise()
        self._progress.console.print(f"  {outcome(trial)}", highlight=False)

    def look(self, blocks: int, verdicts: Sequence[Verdict]) -> None:
        self._progress.update(self._task, completed=blocks)
        self._revise()
        self._progress.console.print(f"  Block {blocks}: {standing(verdicts)}", highlight=False)

    def note(self, text: str) -> None:
        self._progress.console.print(f"  {text}", highlight=False)

    def _revise(self) -> None:
        left = shown_left(self._left()).strip()
        self._progress.update(self._task, left=f"{left}  " if left else "")


def outcome(trial: Trial) -> str:
    """One Trial in one line."""
    return f"{trial.label}: {_outcome(trial)}"


def _outcome(trial: Trial) -> str:
    if trial.failure is not None:
        return f"{trial.failure.reason}, {trial.failure.evidence}"
    if trial.log_speedup is None:
        return "not measured"
    stopped = " (stopped early)" if trial.state == "hopeless" else ""
    few = trial.by_cell if len(trial.by_cell) <= MOST_CELLS else {}
    cells = "  ".join(f"{cell} {math.exp(ratio):.2f}x" for cell, ratio in few.items())
    return f"{math.exp(trial.log_speedup):.2f}x{stopped}  {cells}".rstrip()


def standing(verdicts: Sequence[Verdict]) -> str:
    """Where the confirmation stands, in one line."""
    parts = []
    for verdict in verdicts:
        kind = "open" if verdict.kind is VerdictKind.UNDECIDED else verdict.kind
        factor = f" {math.exp(verdict.effect.log_ratio):.2f}x" if verdict.effect else ""
        parts.append(f"{verdict.point.label}{factor} {kind}")
    return "; ".join(parts)


def is_settled(verdicts: Sequence[Verdict]) -> bool:
    """Whether no further Block will be run, unless there is nothing to judge at all."""
    return bool(verdicts) and not still_open(verdicts)


def shown_left(left: Left | None) -> str:
    """What is still to come, behind a line: of the search, and in all until the answer."""
    if left is None or left.high_s <= 0:
        return ""
    span = words.time_span(left.low_s, left.high_s)
    search = f"{words.long_time(left.stage_s)} left to search, " if left.searching and left.stage_s else ""
    return f"  (about {search}{span} {'in all' if search else 'left'})"
