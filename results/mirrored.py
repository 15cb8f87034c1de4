"""A run that is kept elsewhere: in a database, or on any file system of fsspec.

Who works on it or reads it has a copy on this machine, the mirror, which is a run folder as any other.
What is recorded goes to the store first, then into the mirror.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import RLock
from typing import IO, Any, Protocol

import msgspec

from results.errors import UsageError
from results.lines import explained, replace
from results.sharing import Sharing, StudyPlace, alone
from results.store import LINES, RunFolder

MARKS = ".marks.json"  # in a mirror: which content of each file it has
_OWN = re.compile(r"(\.marks\.json|lock|servers\.jsonl|study\.log.*|.*\.part)$")  # of this machine alone


class Store(Protocol):
    """Keeps the files of one run. Any failure is a UsageError that shows no secret."""

    shown: str  # its address without secrets
    is_shared: bool  # whether others may write at the same time

    def on_wait(self, note: Callable[[str], None]) -> None:
        """See `RunFolder.on_wait`."""

    def create(self) -> None:
        """Make what must be there before anything is written; keeps what is there."""

    def names(self) -> Mapping[str, str]:
        """Every file by its path below the run folder, with a mark that changes with its content."""

    def read(self, name: str) -> bytes:
        """The whole file; empty if it is not there."""

    def write(self, name: str, content: bytes) -> str:
        """Replace the whole file; a kill leaves the old or the new one. Returns its mark."""

    def update(self, name: str, change: Callable[[bytes], bytes]) -> bytes:
        """Replace what is read by what is made of it, while nobody else does; returns that."""

    def append(self, name: str, line: bytes) -> None:
        """One more line of a file of lines; durable when it returns."""

    def remove(self, name: str) -> None:
        """Also if it is not there."""

    def held(self, *, alone: bool) -> AbstractContextManager[None]:
        """Work on the run. Raises UsageError where somebody does already and one of both must be `alone`."""

    def living(self) -> frozenset[str]:
        """Names of the drivers at work on it now."""

    def driver(self) -> str:
        """The name of this one."""

    def study_place(self) -> StudyPlace | None:
        """None: the study is search state that this machine keeps for itself."""

    def sharing(self, received: Callable[[str, bytes], None]) -> Sharing:
        """Of a store that is shared, while it is held; each line of another driver is `received` once."""


@dataclass(frozen=True, eq=False)
class MirroredRun(RunFolder):
    """`path` is the mirror; `lock` says that it is this object's as long as that is open."""

    store: Store
    lock: IO[str] = field(repr=False)
    marks: dict[str, str] = field(default_factory=dict, repr=False)
    sent: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False)  # size and time of files
    threads: RLock = field(default_factory=RLock, repr=False)

    @property
    def label(self) -> str:
        return self.path.parent.name

    @property
    def shown(self) -> str:
        return self.store.shown

    @property
    def is_shared(self) -> bool:
        return self.store.is_shared

    @property
    def study_place(self) -> StudyPlace | None:
        return self.store.study_place()

    @property
    def driver(self) -> str:
        return self.store.driver()

    def living(self) -> frozenset[str]:
        return self.store.living()

    def on_wait(self, note: Callable[[str], None]) -> None:
        self.store.on_wait(note)

    def create(self) -> None:
        super().create()
        self.store.create()

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._held(alone=True):
            yield

    @contextmanager
    def joined(self) -> Iterator[Sharing]:
        if not self.store.is_shared:
            with self.locked():
                yield alone(self.blocks())
            return
        with self._held(alone=False):
            yield self.store.sharing(self._received)

    def pull(self) -> None:
        """Make the mirror what the store is; what it has beyond that stays, unless it came from there."""
        with self.threads, explained(self.path):
            known = {**super().read_json(MARKS)}
            there = self.store.names()
            for name in known.keys() - there.keys():
                (self.path / name).unlink(missing_ok=True)
            for name, mark in there.items():
                # Lines of a shared store always: what is read here counts as received.
                is_line = self.store.is_shared and name in LINES
                if is_line or known.get(name) != mark or not (self.path / name).exists():
                    self._keep(name, self.store.read(name))
                self._is_sent(name, mark)
            self._write_marks(there)

    def publish(self) -> None:
        """Send what was put into the mirror by others than this object: logs, traces, raw records."""
        with self.threads, explained(self.path):
            for name in self._unsent():
                self._send(name, (self.path / name).read_bytes())
            self._write_marks(self.marks)

    def read_json(self, name: str) -> Mapping[str, Any]:
        if self.store.is_shared:
            return _json_object(self.store.read(name))
        return super().read_json(name)

    def update_json(self, name: str, change: Callable[[Mapping[str, Any]], object]) -> None:
        with self.threads:
            content = self.store.update(name, lambda known: _as_json(change(_json_object(known))))
            super()._replace(name, content)
            self._is_sent(name, "")

    def remove(self, name: str) -> None:
        with self.threads:
            self.store.remove(name)
            super().remove(name)

    @contextmanager
    def _held(self, *, alone: bool) -> Iterator[None]:
        with self.store.held(alone=alone):
            self.pull()
            try:
                yield
            finally:
                self.publish()

    def _received(self, name: str, line: bytes) -> None:
        super()._append(name, line)

    def _append(self, name: str, line: bytes) -> None:
        """Raw records and logs first: what is recorded is whole."""
        with self.threads:
            self.publish()
            self.store.append(name, line)
            super()._append(name, line)
            self._is_sent(name, "")

    def _replace(self, name: str, content: bytes) -> None:
        with self.threads, explained(self.path):
            self._send(name, content)
            super()._replace(name, content)
            self._is_sent(name, self.marks[name])

    def _send(self, name: str, content: bytes) -> None:
        self.marks[name] = self.store.write(name, content)
        if (self.path / name).exists():
            self._is_sent(name, self.marks[name])

    def _is_sent(self, name: str, mark: str) -> None:
        self.marks[name], self.sent[name] = mark, _state(self.path / name)

    def _unsent(self) -> list[str]:
        found = []
        for folder, _, files in os.walk(self.path):
            for path in (Path(folder) / file for file in files):
                name = path.relative_to(self.path).as_posix()
                if not _OWN.match(path.name) and name not in LINES and self.sent.get(name) != _state(path):
                    found.append(name)
        return found

    def _keep(self, name: str, content: bytes) -> None:
        path = self.path / name
        if not path.resolve().is_relative_to(self.path.resolve()):  # whoever may write there is no owner here
            raise UsageError(f"{self.shown} has a file {name!r}, which is outside of a run folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, content)

    def _write_marks(self, marks: Mapping[str, str]) -> None:
        replace(self.path / MARKS, msgspec.json.encode(marks))


def _state(path: Path) -> tuple[int, int]:
    """Its size, and when it was written."""
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def mirrors_of(identity: str) -> Path:
    """Folder of the mirrors of a run on this machine; `identity` is its address without secrets."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = re.sub(r"[^\w.-]+", "-", re.split("[=/]", identity)[-1])[:40]
    return cache / "tuner" / "runs" / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def mirrored(store: Store) -> MirroredRun:
    """With the first mirror that no other process of this machine uses."""
    folder = mirrors_of(store.shown)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for number in count():
            lock = (folder / f"{number}.lock").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            path = folder / str(number)
            path.mkdir(exist_ok=True)
            return MirroredRun(path, store, lock)
    raise AssertionError("unreachable")


def _as_json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _json_object(content: bytes) -> Mapping[str, Any]:
    """Empty if it is none."""
    try:
        value = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}
