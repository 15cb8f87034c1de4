"""Whether a path holds a run; and if not, which runs lie nearby."""

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

from results.errors import UsageError
from results.store import RunFolder
from sweeps.sweep import Sweep, load_sweep

RUNS = Path("runs")  # where runs go by default
SHOWN = 5
SHOWN_LETTERS = 200


def own_sweep(folder: RunFolder) -> Sweep:
    """The sweep that a run folder holds. Raises UsageError if it holds none, or a damaged one."""
    check_run(folder.path)
    remedy = "it is the run's own copy of its sweep: restore it"
    return load_sweep(folder.sweep_file, remedy=remedy)


def check_run(path: Path, *, or_sweep: bool = False) -> None:
    """Raises UsageError unless this is a run folder, or, if asked so, perhaps a sweep file.

    It says what there is in place of a run folder, and which runs are nearby.
    """
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError as error:  # the name is too long, or a folder on the way may not be entered
        raise UsageError(f"cannot look at {str(path)[:SHOWN_LETTERS]}: {error.strerror}") from error
    if is_folder:
        _check_folder(path)
    elif is_file:
        if not or_sweep:
            raise UsageError(f"{path} is a file, not a run folder{_nearby(path, [path.parent, RUNS])}")
    else:
        what = "run folder or sweep file" if or_sweep else "folder"
        raise UsageError(f"there is no {what} {path}{_nearby(path, [path.parent, RUNS])}")


def _check_folder(path: Path) -> None:
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"no permission to read the folder {path}")
    if not (path / "sweep.yaml").exists():
        raise UsageError(f"{path} is no run folder: it has no sweep.yaml{_nearby(path, [path])}")


def _nearby(path: Path, folders: Sequence[Path]) -> str:
    """` (did you mean runs/first?)`, or the newest runs of these folders."""
    runs = {run.resolve(): run for folder in folders for run in _runs_in(folder)}
    by_name = {run.name: run for run in runs.values()}
    if close := difflib.get_close_matches(path.name, by_name, n=1, cutoff=0.5):
        return f" (did you mean {by_name[close[0]]}?)"
    more = ", ..." if len(runs) > SHOWN else ""
    return f" (runs here: {', '.join(map(str, [*runs.values()][:SHOWN]))}{more})" if runs else ""


def _runs_in(folder: Path) -> list[Path]:
    """The newest first."""
    try:
        files = sorted(folder.glob("*/sweep.yaml"), key=lambda file: -file.stat().st_mtime)
    except OSError:  # a folder that may not be read gives no hint
        return []
    return [file.parent for file in files]
