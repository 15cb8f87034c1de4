"""The starts of a run: when each began and ended and how, and whether the last one is at work now."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from launchers.leftovers import boot, created_at, is_alive
from results.environment import host_hash
from results.errors import LaunchFailed, MeasurementInvalid, UsageError
from results.store import RunFolder
from sweeps.calibrate import calibrate

SESSIONS_FILE, NOW_FILE, ENDED_FILE = "sessions.json", "now.json", "ended.json"


class State(StrEnum):
    """What has become of a run."""

    RUNNING = "running"
    FINISHED = "finished"  # it ended by itself: nothing is left, or the time is used up
    INTERRUPTED = "interrupted"  # by its user; the same command goes on
    FAILED = "failed"  # it gave up, with a message
    KILLED = "killed"  # its process is gone without a word
    ELSEWHERE = "elsewhere"  # its process cannot be seen from here
    NEW = "not started"


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a run, known without its lock."""

    state: State
    since_at: float | None = None  # running: start of the process; else when it ended, or was last seen
    pid: int | None = None
    why: str = ""


@contextmanager
def session(folder: RunFolder) -> Iterator[None]:
    """Calibrate the client, and note when this start began, which process it is, and how it ended."""
    earlier, began_at = _closed(folder), time.time()
    calibration: Mapping[str, object] = {}

    def note(ended_at: float | None = None, why: str = "") -> None:
        told = {"began_at": began_at, "ended_at": ended_at, "why": why, "calibration": calibration}
        folder.write_json(SESSIONS_FILE, {"sessions": [*earlier, {**told, **_identity()}]})

    note()
    (folder.path / ENDED_FILE).unlink(missing_ok=True)
    why = "it crashed"
    try:
        calibration = asdict(calibrate())
        note()
        yield
        why = ""
    except KeyboardInterrupt:
        why = ""
        raise
    except (UsageError, LaunchFailed, MeasurementInvalid) as error:
        why = str(error)
        raise
    finally:
        note(time.time(), why)
        (folder.path / NOW_FILE).unlink(missing_ok=True)


def sessions_of(folder: RunFolder) -> list[dict[str, Any]]:
    """Every start of a run, the first one first."""
    found = folder.read_json(SESSIONS_FILE).get("sessions", [])
    return [s for s in found if isinstance(s, dict) and "began_at" in s]


def spent_s(sessions: Sequence[Mapping[str, Any]], now_at: float) -> float:
    """Wall time of all starts; the last one counts until now unless it has ended."""
    spans = [float((s.get("ended_at") or now_at) - s["began_at"]) for s in sessions]
    return sum(max(0.0, span_s) for span_s in spans)


def last_sign_at(folder: RunFolder, began_at: float) -> float:
    """When a start that left no word was last seen at work."""
    ends = [b.ended_at for b in folder.blocks() if b.started_at >= began_at]
    return max([began_at, *ends, folder.read_json(NOW_FILE).get("since_at") or 0.0])


def standing(folder: RunFolder) -> Standing:
    """From the process that the last start noted. Reads only: no lock is taken, nothing is disturbed."""
    starts = sessions_of(folder)
    if not starts:
        return Standing(State.NEW)
    last = starts[-1]
    if last.get("ended_at") is not None:
        return _ended(folder, last)
    seen_at, where = last_sign_at(folder, last["began_at"]), _identity()
    if last.get("host") != where["host"]:
        return Standing(State.ELSEWHERE, seen_at, last.get("pid"), "on another machine, or in a container")
    if last.get("boot") != where["boot"]:
        return Standing(State.KILLED, seen_at, why="the machine was started again since")
    if last.get("pid_space") != where["pid_space"]:
        return Standing(State.ELSEWHERE, seen_at, last.get("pid"), "in another container")
    if is_alive(last["pid"], last["created_at"]):
        return Standing(State.RUNNING, last["began_at"], last["pid"])
    return Standing(State.KILLED, seen_at, why="its process is gone")


def _ended(folder: RunFolder, last: Mapping[str, Any]) -> Standing:
    if last.get("why"):
        return Standing(State.FAILED, last["ended_at"], why=last["why"])
    if ended := folder.read_json(ENDED_FILE):
        out_of_time = "no further Block fits into its hours" if ended.get("out_of_time") else ""
        return Standing(State.FINISHED, last["ended_at"], why=out_of_time)
    return Standing(State.INTERRUPTED, last["ended_at"])


def _closed(folder: RunFolder) -> list[dict[str, Any]]:
    """The earlier starts. One that was killed ended when it was last seen."""
    earlier = sessions_of(folder)
    if earlier and earlier[-1].get("ended_at") is None:
        earlier[-1]["ended_at"] = last_sign_at(folder, earlier[-1]["began_at"])
    return earlier


def _identity() -> dict[str, object]:
    """This process, and where its number means something."""
    space = Path("/proc/self/ns/pid")
    return {
        "pid": os.getpid(),
        "created_at": created_at(os.getpid()),
        "host": host_hash(),
        "boot": boot(),
        "pid_space": str(space.stat().st_ino) if space.exists() else "",
    }
