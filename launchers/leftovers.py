"""Servers left behind by a tool that is gone: noted when started, found again by identity.

A pid alone is not an identity: pids are reused. A process is the noted one only if its start time
and the machine's boot are the noted ones as well. Nothing is ever looked up by name.
"""

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from results.lines import append_line

START_TIME_TOLERANCE_S = 2.0  # the system derives start times from a clock that may be adjusted
GRACE_S = 5.0  # between SIGTERM and SIGKILL


@dataclass(frozen=True, slots=True)
class Leftover:
    """A live process group of a server whose tool is dead, or a container, running or not."""

    pid: int  # 0: a container that has ended
    what: str  # the command that was started; of a container its name and image
    port: int
    since_at: float  # Unix time of its start


class ServerLog:
    """Appends to `<run_dir>/servers.jsonl`, synced to disk before the call returns."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / "servers.jsonl"

    def started(self, pid: int, what: str, port: int) -> Mapping[str, object]:
        """Note a server in a process group of its own; returns what was noted, for `ended`."""
        note = {
            "pid": pid,
            "created_at": created_at(pid) or time.time(),
            "boot": boot(),
            "what": what,
            "port": port,
            "tool_pid": os.getpid(),
            "tool_created_at": created_at(os.getpid()),
        }
        self._append({"event": "started", **note})
        return note

    def ended(self, started: Mapping[str, object], exit_code: int | None) -> None:
        self._append({"event": "ended", **started, "exit_code": exit_code})

    def _append(self, line: Mapping[str, object]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        append_line(self.path, json.dumps(line).encode())

    def open_starts(self) -> list[dict[str, Any]]:
        """Starts of this boot without an end; a line cut by a crash is passed over."""
        starts: dict[tuple[int, float], dict[str, Any]] = {}
        for line in self.path.read_text("utf-8").splitlines() if self.path.exists() else ():
            with suppress(json.JSONDecodeError):
                note = json.loads(line)
                key = (note["pid"], note["created_at"])
                if note["event"] == "started":
                    starts[key] = note
                else:
                    starts.pop(key, None)
        return [note for note in starts.values() if note["boot"] == boot()]


def reap(run_dir: Path, *, end: bool) -> list[Leftover]:
    """Servers of a run folder whose tool is dead; with `end` their process groups are ended.

    Containers are removed. A server whose tool still lives is neither listed nor touched.
    """
    from launchers.containers.leftovers import reap_containers

    return [*_reap_processes(run_dir, end=end), *reap_containers(run_dir, end=end)]


def _reap_processes(run_dir: Path, *, end: bool) -> list[Leftover]:
    found = []
    for note in ServerLog(run_dir).open_starts():
        group = [] if is_alive(note["tool_pid"], note["tool_created_at"]) else _group(note)
        if group:
            found.append(Leftover(note["pid"], note["what"], note["port"], note["created_at"]))
            if end:
                _end(group)
    return found


def _group(note: Mapping[str, Any]) -> list[psutil.Process]:
    """Live processes of the noted group; none if its number now belongs to another process."""
    leader_at = created_at(note["pid"])
    if leader_at is not None and abs(leader_at - note["created_at"]) > START_TIME_TOLERANCE_S:
        return []
    return [p for p in psutil.process_iter() if _pgid(p.pid) == note["pid"] and not _is_dead(p.pid)]


def _end(group: list[psutil.Process]) -> None:
    for signal_number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        for process in group:
            with suppress(psutil.NoSuchProcess):  # psutil checks the start time before it signals
                process.send_signal(signal_number)
        _, group = psutil.wait_procs(group, timeout=wait_s)


def is_alive(pid: int, since_at: float | None) -> bool:
    """Whether the process that had this pid since then lives; not another one that has it now."""
    now = created_at(pid)
    if now is None or since_at is None or abs(now - since_at) > START_TIME_TOLERANCE_S:
        return False
    return not _is_dead(pid)


def created_at(pid: int) -> float | None:
    """Start time of a process, dead but not yet collected ones included; None if there is none."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None


def _is_dead(pid: int) -> bool:
    """Gone, or dead and not yet collected."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _pgid(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def boot() -> str:
    """Names this boot of the machine."""
    boot_id = Path("/proc/sys/kernel/random/boot_id")
    if boot_id.exists():
        return boot_id.read_text("ascii").strip()
    return str(round(psutil.boot_time() / 10))
