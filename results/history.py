"""The history of the nightly gate: nights that were recorded, in files for git or in a database.

A night is known by its id, so that one merged, sent or added twice counts once.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec

from results.lines import append_line, explained, read_lines
from results.nights import Night

OPTION = "--history"  # what a user names it with
_URL = re.compile(r"[a-zA-Z][\w+.-]*://|sqlite:|postgres(ql)?:")
_LONGEST_NAME = 80  # characters of a file's name that one name may take; file systems allow 255 in all


class History(Protocol):
    """Any failure of what keeps it is a UsageError. Several machines and processes may add at once."""

    def nights(self, pin: str | None = None) -> list[Night]:
        """Those of one pinned configuration, or all: sorted by `began_at`, each id once."""
        ...

    def add(self, night: Night) -> None:
        """Durable when it returns. Adding a night again, in whatever process, changes nothing."""
        ...

    def pins(self) -> list[str]:
        """Names of the pinned configurations that have nights, sorted."""
        ...


def open_history(where: str) -> History:
    """A folder, made with the first night, or a database: `sqlite:///FILE`, `postgresql://...`."""
    if _URL.match(where):
        from results.history_database import open_database

        return open_database(where)
    return HistoryFolder(Path(where))


@dataclass(frozen=True, slots=True)
class HistoryFolder:
    """One file for each pinned configuration and machine, a night a line."""

    path: Path

    def nights(self, pin: str | None = None) -> list[Night]:
        recorded = chain.from_iterable(read_lines(file, Night) for file in self._files())
        return in_order(night for night in recorded if pin in (None, night.pin))

    def add(self, night: Night) -> None:
        line = encoded(night)
        with explained(self.path, OPTION):
            self.path.mkdir(parents=True, exist_ok=True)
            _let_git_merge(self.path / ".gitattributes")
        append_line(self.path / file_name(night), line, OPTION)

    def pins(self) -> list[str]:
        return sorted({night.pin for night in self.nights()})

    def _files(self) -> list[Path]:
        with explained(self.path, OPTION), suppress(FileNotFoundError):
            return sorted(file for file in self.path.iterdir() if file.suffix == ".jsonl")
        return []


def file_name(night: Night) -> str:
    """Two machines never share a file, whatever their names: `@` is in no name made safe."""
    return f"{_safe(night.pin)}@{_safe(night.machine)}.jsonl"


def _safe(name: str) -> str:
    plain = quote(name, safe="")
    if len(plain) <= _LONGEST_NAME:
        return plain
    return f"{plain[:_LONGEST_NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _let_git_merge(attributes: Path) -> None:
    """Clones of one machine's history merge by keeping the lines of both. A file that is there is left."""
    with attributes.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if file.seek(0, os.SEEK_END) == 0:
            file.write(b"*.jsonl merge=union\n")


def in_order(nights: Iterable[Night]) -> list[Night]:
    """Sorted by `began_at`, each id once: the first of its kind."""
    once: dict[str, Night] = {}
    for night in nights:
        once.setdefault(night.id, night)
    return sorted(once.values(), key=lambda night: (night.began_at, night.id))


def encoded(night: Night) -> bytes:
    """One line of JSON that reads back as the same night. Raises ValueError where a figure is NaN."""
    line = msgspec.json.encode(night)
    try:
        msgspec.json.decode(line, type=Night)
    except msgspec.DecodeError as error:
        raise ValueError(f"the night {night.id} cannot be recorded: {error}") from error
    return line
