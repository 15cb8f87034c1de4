"""The runs of a folder, with what came of each."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from analysis import words
from analysis.answer import answer
from analysis.findings import best_verdict
from analysis.report_input import ReportInput
from results.errors import UsageError
from results.open_run import is_url, runs_at
from results.records import BASELINE, VerdictKind
from results.store import RunFolder
from sweeps.outcome import read_run
from sweeps.session import State, sessions_of, standing
from sweeps.status_text import factors
from sweeps.which_run import own_sweep

if TYPE_CHECKING:
    from rich.table import Table

BROKEN = "broken"
SIGNS_OF_A_RUN = ("sweep.yaml", "trials.jsonl", "blocks.jsonl", "sessions.json", "environment.json")


@dataclass(frozen=True, slots=True)
class Row:
    """One run. Of a broken one only what could be read."""

    path: str
    size_bytes: int
    started_at: float | None
    state: str
    name: str = ""
    engine: str = ""
    model: str = ""
    trials: int = 0
    verdict: str = ""
    speedup: float | None = None
    interval: dict[str, float | None] | None = None
    broken: str = ""  # what is wrong


def runs_in(where: Path | str) -> list[Row]:
    """The runs in a folder, a database or below a URL, or the one that it is itself; the newest first.

    Raises UsageError.
    """
    folders = runs_at(where) if isinstance(where, str) and is_url(where) else _folders(Path(where))
    return sorted(map(_row, folders), key=lambda row: row.started_at or 0.0, reverse=True)


def _folders(folder: Path) -> list[RunFolder]:
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder: name a folder of runs")
    paths = [folder] if _is_run(folder) else [path for path in folder.iterdir() if _is_run(path)]
    return [RunFolder(path) for path in paths]


def _is_run(path: Path) -> bool:
    try:
        return path.is_dir() and any((path / name).exists() for name in SIGNS_OF_A_RUN)
    except OSError:  # a folder that may not be entered is listed with that
        return True


def _row(folder: RunFolder) -> Row:
    path = folder.path
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    try:
        return _read(folder, size)
    except (UsageError, OSError, ValueError, LookupError, TypeError) as error:  # whatever lies in a file
        why = words.one_line(str(error) or type(error).__name__)
        return Row(folder.shown, size, path.stat().st_mtime, BROKEN, _called(folder.shown), broken=why)


def _read(folder: RunFolder, size: int) -> Row:
    report, _ = read_run(folder)
    sweep, starts = own_sweep(folder), sessions_of(folder)
    best = best_verdict(report)
    return Row(
        path=folder.shown,
        size_bytes=size,
        started_at=starts[0]["began_at"] if starts else folder.sweep_file.stat().st_mtime,
        state=standing(folder).state,
        name=report.name,
        engine=sweep.engine,
        model=Path(sweep.model).name,
        trials=sum(t.point != BASELINE for t in report.trials),
        verdict=_verdict(report, standing(folder).state),
        speedup=words.factor(best.effect.log_ratio) if best is not None and best.effect else None,
        interval=factors(best.effect) if best is not None else None,
    )


def _called(path: str) -> str:
    """The last part of the path of a run, or its name in a database."""
    return path.rpartition("?run=")[2].rpartition("/")[2]


def _verdict(report: ReportInput, state: State) -> str:
    """What came of a run, in a few words, with the interval where there is one."""
    best = best_verdict(report)
    if best is None or best.effect is None:
        return "" if state is State.RUNNING else answer(report).big
    shown = words.times_with_interval(best.effect)
    if report.comparison is not None or best.kind is VerdictKind.BETTER:
        return f"{best.kind} {shown}"
    return f"none better, closest {shown}" if report.finished else f"{best.kind} {shown}"


FOLDING = {"run": 8, "serves": 12, "verdict": 16}  # columns that give way on a narrow terminal, to so much
FIGURES = ("trials", "size")


def runs_table(rows: list[Row]) -> "Table":
    """One line for each run."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("run", "state", "serves", "trials", "verdict", "started", "size"):
        justify: Literal["left", "right"] = "right" if name in FIGURES else "left"
        folds = name in FOLDING
        table.add_column(
            name, justify=justify, overflow="fold", no_wrap=not folds, min_width=FOLDING.get(name)
        )
    for row in rows:
        serves, trials = f"{row.engine} {row.model}".strip(), "" if row.broken else str(row.trials)
        cells = (_called(row.path), row.state, serves, trials, row.verdict, _day(row), _size(row))
        table.add_row(*(Text(words.clean(cell)) for cell in cells))
    return table


def complaints(rows: list[Row]) -> list[str]:
    """What is wrong with the broken ones."""
    return [words.clean(f"{_called(row.path)} is broken: {row.broken}") for row in rows if row.broken]


def _day(row: Row) -> str:
    return "" if row.started_at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(row.started_at))


def _size(row: Row) -> str:
    return f"{row.size_bytes / 1e6:.1f} MB"


def runs_json(rows: list[Row]) -> str:
    """The same for other programs."""
    return msgspec.json.format(msgspec.json.encode({"schema": 1, "runs": rows}), indent=2).decode()
