"""A run on a file system of fsspec: S3, GCS, SFTP, HDFS, a mounted disk ...; one driver at a time.

The files there are those of a run folder. Most such systems cannot append: a file of lines is written anew.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, RLock, Thread
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from results.errors import UsageError
from results.lines import replace
from results.sharing import Sharing, StudyPlace
from results.store import LINES

LEASE_S = 120.0  # of a driver that gives no sign of life
BEATS = 6  # signs of life in that time
DRIVER_FILE = "driver.json"  # there while somebody is at work


def run_on_files(address: str, option: str) -> "RunFiles":
    """Raises a UsageError that shows no password."""
    from fsspec.core import url_to_fs

    seen = shown(address)
    try:
        system, root = url_to_fs(address)
    except ImportError as error:  # names the package
        raise UsageError(f"{option} {seen}: {error}") from None
    except (ValueError, OSError) as error:
        raise UsageError(f"{option} {seen}: {type(error).__name__}: fsspec cannot use this address") from None
    if not root.strip("/"):
        raise UsageError(f"{option} {seen}: names no folder: write one of its own for the run")
    return RunFiles(system, root.rstrip("/"), seen)


def shown(address: str) -> str:
    """Without any secret."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


class RunFiles:
    """One run, and this driver of it."""

    is_shared = False

    def __init__(self, system: Any, root: str, shown: str, lease_s: float = LEASE_S) -> None:
        self.system, self.root, self.shown, self.lease_s = system, root, shown, lease_s
        self._driver = uuid4().hex[:12]
        self._threads = RLock()

    def __repr__(self) -> str:
        return f"RunFiles({self.shown!r})"

    def driver(self) -> str:
        return self._driver

    def on_wait(self, note: Callable[[str], None]) -> None:
        """It waits for nothing."""

    def create(self) -> None:
        with self._explained():
            try:
                self.system.makedirs(self.root, exist_ok=True)
            except FileNotFoundError as error:
                raise UsageError(f"cannot use {self.shown}: {error.strerror}") from None

    def names(self) -> dict[str, str]:
        with self._explained():
            self.system.invalidate_cache()
            with suppress(FileNotFoundError):
                found = self.system.find(self.root, detail=True)
                return {self._name(path): _mark(told) for path, told in found.items() if self._name(path)}
            return {}

    def runs(self) -> list[str]:
        """Names of the folders below this one that hold a run. Raises UsageError if it is not there."""
        with self._explained():
            self.system.invalidate_cache()
            if not self.system.isdir(self.root):
                raise UsageError(f"cannot use {self.shown}: there is no such folder")
            found = self.system.glob(f"{self.root}/*/sweep.yaml")
            return sorted(path.split("/")[-2] for path in found)

    def check_run(self) -> None:
        """Raises UsageError if there are other files and no run: nothing of them is copied."""
        names = self.names()
        is_run = any(name in names for name in ("sweep.yaml", *LINES))
        if not is_run and any(not name.endswith((".json", ".jsonl")) for name in names):
            raise UsageError(f"{self.shown} holds no run, but other files: name a folder of the run's own")

    def read(self, name: str) -> bytes:
        with self._explained(), suppress(FileNotFoundError):
            return bytes(self.system.cat_file(self._path(name)))
        return b""

    def write(self, name: str, content: bytes) -> str:
        path = self._path(name)
        with self._threads, self._explained():
            self.system.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._put(path, content)
            self.system.invalidate_cache()
            return _mark(self.system.info(path))

    def update(self, name: str, change: Callable[[bytes], bytes]) -> bytes:
        with self._threads:
            content = change(self.read(name))
            self.write(name, content)
            return content

    def append(self, name: str, line: bytes) -> None:
        with self._threads:
            self.write(name, self.read(name) + line + b"\n")

    def remove(self, name: str) -> None:
        with self._threads, self._explained(), suppress(FileNotFoundError):
            self.system.rm_file(self._path(name))

    def living(self) -> frozenset[str]:
        return frozenset(filter(None, [self._at_work()]))

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        """As good as the file system: two that begin within the same moment may not see each other."""
        del alone  # here everybody is
        if self._at_work() is not None:
            raise UsageError(f"another tuner is at work on {self.shown}: wait for it, or name another run")
        self._give_sign()
        if self._at_work() != self._driver:
            raise UsageError(f"another tuner began on {self.shown} at the same moment: start one again")
        ending = Event()
        beating = Thread(target=self._beat, args=(ending,), daemon=True)
        beating.start()
        try:
            yield
        finally:
            ending.set()
            beating.join()
            self.remove(DRIVER_FILE)

    def study_place(self) -> StudyPlace | None:
        return None

    def sharing(self, received: Callable[[str, bytes], None]) -> Sharing:
        raise NotImplementedError("one driver at a time has nothing to agree on")

    def _put(self, path: str, content: bytes) -> None:
        from fsspec.implementations.local import LocalFileSystem

        if isinstance(self.system, LocalFileSystem):  # its transactions move files from /tmp, in pieces
            replace(Path(path), content)
            return
        with self.system.transaction, self.system.open(path, "wb") as file:
            file.write(content)

    def _at_work(self) -> str | None:
        with suppress(msgspec.DecodeError, KeyError, TypeError):
            told = msgspec.json.decode(self.read(DRIVER_FILE))
            if time.time() - told["beat_at"] < told["lease_s"]:
                return str(told["driver"])
        return None

    def _give_sign(self) -> None:
        told = {"driver": self._driver, "beat_at": time.time(), "lease_s": self.lease_s}
        self.write(DRIVER_FILE, msgspec.json.encode(told))

    def _beat(self, ending: Event) -> None:
        while not ending.wait(self.lease_s / BEATS):
            with suppress(UsageError):  # whoever needs an answer says so
                self._give_sign()

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _name(self, path: str) -> str:
        name = path.removeprefix(self.root).lstrip("/")
        return "" if name == DRIVER_FILE else name

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise UsageError(f"cannot use {self.shown}: {why}") from None


def _mark(told: Any) -> str:
    """Of what the file system tells of a file: it is another one after the file was written."""
    return hashlib.sha256(str(sorted(told.items(), key=str)).encode()).hexdigest()[:16]
