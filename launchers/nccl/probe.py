"""The start-up probe: NCCL alone, with a server's environment, before minutes of loading a model.

`ask` starts `inside.py` in the engine's Python, on this machine or in a container, and
says what was seen: the version, which variables NCCL took, and whether it answers.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launchers.nccl.log import applied, cause, version_in
from launchers.place import Place, Variables
from results.reasons import Reason
from results.records import UNSET

DEADLINE_S = 60.0
IMPORT_S = 120.0  # torch, from a cold disk
MARK = "@tuner "
DEBUG = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,TUNING",
    "NCCL_DEBUG_FILE": "/dev/stdout",  # by line: a rank that is killed loses nothing
    "PYTHONSAFEPATH": "1",
}
# Without one of these a tensor-parallel server cannot serve; the others depend on what it does.
NEEDED = ("all_reduce", "all_gather")


@dataclass(frozen=True, slots=True)
class NcclSeen:
    """What the probe saw. Without an answer all variables are unconfirmed, and `note` says why."""

    version: str | None
    applied: tuple[str, ...]
    unconfirmed: tuple[str, ...]
    overridden: Mapping[str, str] = field(default_factory=dict)
    failure: tuple[Reason, str] | None = None
    note: str = ""


def ask(
    place: Place,
    python: str,
    env: Variables,
    requested: Mapping[str, str],
    ranks: int,
    deadline_s: float = DEADLINE_S,
) -> NcclSeen:
    """Whether NCCL starts with `env`, and took the `requested` variables of it (`unset`: absent)."""
    source = Path(__file__).with_name("inside.py").read_text("utf-8")
    absent: Variables = {name: None for name, value in {**env, **requested}.items() if value == UNSET}
    argv = (python, "-c", source, str(ranks), str(deadline_s))
    ran = place.run(argv, {**env, **DEBUG, **absent}, deadline_s + IMPORT_S)
    told = ran.output + ran.errors
    asked = {name: value for name, value in requested.items() if name not in DEBUG}  # those are ours here
    return seen(told, ran.exit_code, asked, ranks=ranks, deadline_s=deadline_s, ours={*env, *DEBUG})


def seen(
    output: str,
    exit_code: int | None,
    requested: Mapping[str, str],
    *,
    ranks: int,
    deadline_s: float = DEADLINE_S,
    ours: Collection[str] = (),
) -> NcclSeen:
    """What the output of `inside.py` means; no exit code: it was killed. `ours`: variables we set anyway."""
    events = _events(output)
    log = "\n".join(line for line in output.splitlines() if not line.startswith(MARK))
    version = version_in(log)
    if why := next((str(event["unavailable"]) for event in events if "unavailable" in event), None):
        return NcclSeen(version, (), tuple(sorted(requested)), note=f"NCCL was not tried: {why}")
    failure = _failure(events, log, exit_code, requested, ranks, deadline_s)
    told = applied(log, requested)
    beside = {name: value for name, value in told.unasked.items() if name not in ours}
    return NcclSeen(
        version,
        tuple(sorted(told.applied)),
        tuple(sorted(told.unconfirmed)),
        told.overridden,
        failure,
        _note(events, log, exit_code, beside) if failure is None else "",
    )


def _events(output: str) -> list[Mapping[str, Any]]:
    """What `inside.py` told; a line that was cut is left out."""
    found: list[Mapping[str, Any]] = []
    for line in output.splitlines():
        with suppress(ValueError):
            event = json.loads(line.removeprefix(MARK)) if line.startswith(MARK) else None
            if isinstance(event, dict):
                found.append(event)
    return found


def _failure(
    events: Sequence[Mapping[str, Any]],
    log: str,
    exit_code: int | None,
    requested: Mapping[str, str],
    ranks: int,
    deadline_s: float,
) -> tuple[Reason, str] | None:
    """Only what would come again with a server: a GPU that is full now, say, is none."""
    refused = [event for event in _errors(events) if event["collective"].startswith(NEEDED)]
    finished = sum("finished" in event for event in events) == ranks
    if (finished and not refused) or "out of memory" in log or not any("ready" in e for e in events):
        return None
    if found := cause(log, requested):
        return found[0], found[1]
    if refused:
        return Reason.NCCL_REJECTED, f"{refused[0]['collective']}: {refused[0]['error']}"
    if exit_code is None or any("unfinished" in event for event in events):
        return Reason.HANG, f"NCCL did not finish in {deadline_s:g} s: {_progress(events)}"
    return None


def _errors(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [event for event in events if event.get("error")]


def _progress(events: Sequence[Mapping[str, Any]]) -> str:
    done = [str(event["collective"]) for event in events if "collective" in event and not event["error"]]
    return f"deadlocked after {done[-1]}" if done else "deadlocked before the first collective"


def _note(
    events: Sequence[Mapping[str, Any]], log: str, exit_code: int | None, unasked: Mapping[str, str]
) -> str:
    """What else to tell of a probe without a failure."""
    failed = {event["collective"]: event["error"] for event in _errors(events)}
    notes = [f"{collective} fails: {error}" for collective, error in failed.items()]
    if not any("finished" in event for event in events):
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        ended = "was killed" if exit_code is None else f"ended with exit code {exit_code}"
        notes = [f"the probe {ended} and shows nothing: {lines[-1] if lines else 'no output'}"]
    if unasked:
        named = ", ".join(f"{name}={value}" for name, value in sorted(unasked.items()))
        notes.append(f"set beside this sweep, by the image or NCCL's config file: {named}")
    return "; ".join(notes)
