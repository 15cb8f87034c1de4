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
    began_at = time.time()
    calibration: Mapping[str, object] = {}

    def note(ended_at: float | None = None, why: str = "") -> None:
        told = {"began_at": began_at, "ended_at": ended_at, "why": why, "calibration": calibration}
        _write(folder, {**told, "driver": folder.driver, **_identity()})

    note()
    folder.remove(ENDED_FILE)
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
        if not folder.living() - {folder.driver}:
            folder.remove(NOW_FILE)


def sessions_of(folder: RunFolder) -> list[dict[str, Any]]:
    """Every start of a run, the first one first."""
    return _starts(folder.read_json(SESSIONS_FILE))


def _starts(known: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [s for s in known.get("sessions", []) if isinstance(s, dict) and "began_at" in s]


def spent_s(sessions: Sequence[Mapping[str, Any]], now_at: float) -> float:
    """Wall time in which any start was at work; one that has not ended counts until now."""
    spent, until = 0.0, 0.0
    for began_at, ended_at in sorted((s["began_at"], s.get("ended_at") or now_at) for s in sessions):
        spent += max(0.0, ended_at - max(began_at, until))
        until = max(until, ended_at)
    return spent


def last_sign_at(folder: RunFolder, began_at: float) -> float:
    """When a start that left no word was last seen at work."""
    ends = [b.ended_at for b in folder.blocks() if b.started_at >= began_at]
    return max([began_at, *ends, folder.read_json(NOW_FILE).get("since_at") or 0.0])


def standing(folder: RunFolder) -> Standing:
    """From the processes that the starts noted. Reads only: no lock is taken, nothing is disturbed."""
    starts = sessions_of(folder)
    if not starts:
        return Standing(State.NEW)
    living = folder.living()
    if at_work := [s for s in starts if s.get("driver") in living and s.get("ended_at") is None]:
        return _at_work(at_work)
    last = starts[-1]
    if last.get("ended_at") is not None:
        return _ended(folder, last)
    seen_at, where = last_sign_at(folder, last["began_at"]), _identity()
    if last.get("driver"):  # it would give signs of life, wherever it is
        return Standing(State.KILLED, seen_at, why="it gives no sign of life")
    if last.get("host") != where["host"]:
        return Standing(State.ELSEWHERE, seen_at, last.get("pid"), "on another machine, or in a container")
    if last.get("boot") != where["boot"]:
        return Standing(State.KILLED, seen_at, why="the machine was started again since")
    if last.get("pid_space") != where["pid_space"]:
        return Standing(State.ELSEWHERE, seen_at, last.get("pid"), "in another container")
    if is_alive(last["pid"], last["created_at"]):
        return Standing(State.RUNNING, last["began_at"], last["pid"])
    return Standing(State.KILLED, seen_at, why="its process is gone")


def _at_work(starts: Sequence[Mapping[str, Any]]) -> Standing:
    """Of drivers that give signs of life, here or elsewhere."""
    here = next((s["pid"] for s in starts if s.get("host") == host_hash()), None)
    only = "" if here is not None else "on another machine"
    why = f"{len(starts)} drivers" if len(starts) > 1 else only
    return Standing(State.RUNNING, min(s["began_at"] for s in starts), here, why)


def _ended(folder: RunFolder, last: Mapping[str, Any]) -> Standing:
    if last.get("why"):
        return Standing(State.FAILED, last["ended_at"], why=last["why"])
    if ended := folder.read_json(ENDED_FILE):
        out_of_time = "no further Block fits into its hours" if ended.get("out_of_time") else ""
        return Standing(State.FINISHED, last["ended_at"], why=out_of_time)
    return Standing(State.INTERRUPTED, last["ended_at"])


def _write(folder: RunFolder, mine: Mapping[str, Any]) -> None:
    """Put in what this start says. An earlier one that was killed ended when it was last seen."""
    living = folder.living()
    lost = [s["began_at"] for s in sessions_of(folder) if s.get("ended_at") is None]
    seen_at = {began_at: last_sign_at(folder, began_at) for began_at in lost}

    def changed(known: Mapping[str, Any]) -> object:
        others = [s for s in _starts(known) if _name_of(s) != _name_of(mine)]
        for start in others:
            if start.get("ended_at") is None and start.get("driver") not in living:
                start["ended_at"] = seen_at.get(start["began_at"], start["began_at"])
        return {"sessions": sorted([*others, mine], key=lambda s: float(s["began_at"]))}

    folder.update_json(SESSIONS_FILE, changed)


def _name_of(start: Mapping[str, Any]) -> tuple[object, ...]:
    return start["began_at"], start.get("driver"), start.get("pid")


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
