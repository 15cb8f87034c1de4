"""The run that an address names: a folder, a database, or another URL."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from results.errors import UsageError
from results.store import RunFolder

if TYPE_CHECKING:
    from results.run_database import RunDatabase
    from results.run_files import RunFiles

_URL = re.compile(r"[a-zA-Z][\w+.:-]*://|sqlite:|postgres(ql)?:")
OPTION = "--run"


def is_url(where: str) -> bool:
    """Whether this names a run that is kept elsewhere, no folder."""
    return _URL.match(where) is not None


def open_run(where: str, name: str = "") -> RunFolder:
    """A run to work on, there or not yet. `name`: of a run in a database whose address names none.

    Of a run elsewhere, the mirror is what that is now. Raises UsageError.
    """
    if not is_url(where):
        return RunFolder(Path(where))
    from results.mirrored import mirrored
    from results.run_files import RunFiles

    store = _store(where, name)
    if isinstance(store, RunFiles):
        store.check_run()
    run = mirrored(store)
    run.pull()
    return run


def known_run(where: str) -> RunFolder:
    """A run to read. Raises UsageError if a URL names none; a folder is looked at by whoever reads it."""
    run = open_run(where)
    if is_url(where) and not (run.path / "sweep.yaml").exists():
        raise UsageError(f"{run.shown} holds no run{_others(where)}")
    return run


def runs_at(where: str) -> list[RunFolder]:
    """The runs of a database, or below a URL; or the one that it names."""
    if "run=" in where:
        return [known_run(where)]
    store = _store(where, "none")
    if "sweep.yaml" in store.names():
        return [known_run(where)]
    return [open_run(address) for address in (_below(where, name) for name in store.runs())]


def mirrors(where: str) -> list[Path]:
    """The folders on this machine in which its drivers work, or worked, on the run of a URL."""
    from results.mirrored import mirrors_of

    folder = mirrors_of(_store(where, "").shown)
    return sorted(path.parent for path in folder.glob("*/servers.jsonl"))


def _below(where: str, name: str) -> str:
    from urllib.parse import quote

    from results.database import is_database

    if is_database(where):
        return f"{where}{'&' if '?' in where else '?'}run={quote(name, safe='')}"
    return f"{where.rstrip('/')}/{name}"


def _others(where: str) -> str:
    from results.database import is_database

    if not is_database(where):
        return ""
    names = _store(where, "none").runs()
    return f" (runs there: {', '.join(names[:5])})" if names else ""


def _store(where: str, name: str) -> "RunDatabase | RunFiles":
    from results.database import is_database

    if is_database(where):
        from results.run_database import run_in_database

        return run_in_database(where, OPTION, name)
    from results.run_files import run_on_files

    return run_on_files(where, OPTION)
