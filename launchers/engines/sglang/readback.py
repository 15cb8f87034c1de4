"""What a running SGLang says of itself, compared with what it was asked for. Pure functions of its JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launchers.engines.engine import ReadBack, Served
from launchers.engines.sglang.flags import Flags
from launchers.engines.sglang.knobs import FLAGS, canonical, method_of
from launchers.engines.sglang.parity import FORCED, PINNED, VOLATILE, is_speculative
from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.records import BASELINE_METHOD, KnobValue, Point, Rewrite

# A figure that follows from the memory that drafting takes: shown, and free to differ between the arms.
CAPACITY = "max_total_num_tokens"
# What the resolved algorithm may be called for a method that has another name on the command line.
ALIASES = {"NEXTN": ("EAGLE", "FROZEN_KV_MTP", "NEXTN"), "EAGLE": ("EAGLE", "FROZEN_KV_MTP")}
PATHS = (
    "model_path",
    "tokenizer_path",
    "served_model_name",
    "speculative_draft_model_path",
    "launch_command",
)
# The server's own figures beside its arguments, and arguments of one start alone.
NOT_SETTINGS = VOLATILE | frozenset(PATHS) | {"hicache_object_layout", "kv_events", "startup_time", "status"}

WARNINGS = ("disabled", "not supported", "ignored", "adjusted", "overrid", "Falling back")

Info = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a server was started with, by field of ServerArgs."""

    speculative: Mapping[str, KnobValue]
    others: Mapping[str, KnobValue]  # the user's own: fixed arguments and shared settings


def field_of(flag: str) -> str:
    """The field of ServerArgs that a flag of a knob sets."""
    return flag.removeprefix("--").replace("-", "_")


KNOB_OF_FIELD = {field_of(flag): knob for knob, flag in FLAGS.items()}
SPECULATIVE_NAMES = frozenset({"method", CAPACITY, *FLAGS, *(f"--{f.replace('_', '-')}" for f in FORCED)})


def read_back_from(
    info: Info, log: str, point: Point, served: Served, asked: Asked, flags: Flags
) -> ReadBack:
    """Raises MeasurementInvalid: WRONG_SERVER, NOT_SPECULATING, IGNORED_SETTING."""
    check_model(info, served)
    states = ranks(info)
    for rank, state in enumerate(states):
        check_speculation(point, state, rank, log)
    check_ranks(states)
    server = states[0]
    rewrites = [*rewritten(asked.speculative, server, log), *rewritten(asked.others, server, log)]
    effective = settings(server, point, flags, frozenset(asked.others))
    return ReadBack(
        info["model_path"],
        not point.is_baseline,
        effective,
        tuple(rewrites),
        in_effect(point, server, rewrites, flags) if rewrites else None,
    )


def ranks(info: Info) -> list[Info]:
    """The settings of every data-parallel rank; versions that do not tell them apart have one."""
    states: Sequence[Info] = info.get("internal_states") or [{}]
    return [{**info, **state} for state in states]


def check_model(info: Info, served: Served) -> None:
    """The server must serve our model."""
    path = str(info.get("model_path"))
    same = path == str(served.model) or Path(path).resolve() == Path(served.model).resolve()
    if not same:
        raise MeasurementInvalid(Reason.WRONG_SERVER, f"serves {path}, not {served.model}")


def check_speculation(point: Point, state: Info, rank: int, log: str) -> None:
    """Every rank must draft, by the algorithm asked for; on the baseline none."""
    got = state.get("speculative_algorithm")
    where = f"rank {rank}: " if rank else ""
    if point.is_baseline and got:
        raise MeasurementInvalid(
            Reason.IGNORED_SETTING, f"{where}no speculation was asked for, {got} is active"
        )
    if not point.is_baseline and not got:
        why = warning(log, "speculative") or "its log gives no reason"
        raise MeasurementInvalid(Reason.NOT_SPECULATING, f"{where}{point.method} is not active: {why}")
    if got and got not in ALIASES.get(point.method, (point.method,)):
        evidence = f"{where}{point.method} was asked for, {got} is in effect"
        raise MeasurementInvalid(Reason.IGNORED_SETTING, evidence)


def check_ranks(states: Sequence[Info]) -> None:
    """Ranks that run other drafts than the first cannot be filed under one Point."""
    for rank, state in enumerate(states[1:], 1):
        for name in KNOB_OF_FIELD:
            if state.get(name) != states[0].get(name):
                evidence = f"rank {rank} has {name}={state.get(name)}, rank 0 has {states[0].get(name)}"
                raise MeasurementInvalid(Reason.IGNORED_SETTING, evidence)


def rewritten(asked: Mapping[str, KnobValue], server: Info, log: str) -> list[Rewrite]:
    """Settings with another value than asked for. Raises IGNORED_SETTING for a feature that was dropped.

    A field that the server does not tell is unknown, and "auto" asks for whatever comes.
    """
    found = []
    for name, value in asked.items():
        if name not in server or value == "auto" or same(value, server[name]):
            continue
        if value is True or server[name] is None:
            why = warning(log, name) or f"{server[name]} is in effect"
            raise MeasurementInvalid(Reason.IGNORED_SETTING, f"{name}={value} was asked for: {why}")
        found.append(Rewrite(name, value, plain(server[name])))
    return found


def same(asked: KnobValue, got: object) -> bool:
    """Whether a value read back is the one asked for, as the command line would have read it."""
    if isinstance(asked, bool) or isinstance(got, bool):
        return str(asked).lower() == str(got).lower()
    if isinstance(got, list):
        return str(asked).split() == [str(value) for value in got]
    if isinstance(got, dict):
        return True  # written as JSON or through other flags; compared between the arms
    if isinstance(got, int | float):
        return _same_number(asked, got)
    return str(asked) == str(got) or str(Path(str(asked)).expanduser().resolve()) == str(got)


def _same_number(asked: KnobValue, got: float) -> bool:
    try:
        return math.isclose(float(asked), got, rel_tol=1e-9)
    except ValueError:
        return True  # like "8k": only the engine knows how it reads it


def settings(server: Info, point: Point, flags: Flags, named: frozenset[str]) -> dict[str, KnobValue | None]:
    """What is in effect: knobs by their names, other arguments by their flags where they have one.

    Arguments at the parser's default are left out unless they are pinned or were asked for.
    """
    effective: dict[str, KnobValue | None] = {
        "version": plain(server.get("version")),
        "method": plain(server.get("speculative_algorithm")) or BASELINE_METHOD,
        CAPACITY: plain(server.get(CAPACITY)),
    }
    for name, value in server.items():
        flag = flags.of_field(name)
        if name in KNOB_OF_FIELD:
            effective[KNOB_OF_FIELD[name]] = plain(value)
        elif flag is None or name in NOT_SETTINGS or is_speculative(name):
            continue
        elif name in PINNED | FORCED | named or value != flag.default:
            effective[flag.name] = plain(value)
    if not point.is_baseline:
        effective["method"] = point.method
    return effective


def in_effect(point: Point, server: Info, rewrites: Sequence[Rewrite], flags: Flags) -> Point:
    """The canonical Point that is measured, with the server's values for what it rewrote."""
    changed = {rewrite.name for rewrite in rewrites}
    knobs: dict[str, KnobValue] = dict(point.knobs)
    for name in changed:
        flag = flags.of_field(name)
        knob = KNOB_OF_FIELD.get(name)
        value = plain(server[name])
        if knob is not None and knob in method_of(point).defaults and value is not None:
            knobs[knob] = value
        elif flag is not None and flag.name in knobs and value is not None:
            knobs[flag.name] = value
    return canonical(Point(point.method, knobs))


def plain(value: object) -> KnobValue | None:
    """A JSON value as one setting; lists and objects as their JSON text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def warning(log: str, name: str) -> str | None:
    """The first line of the log that warns of a setting by the name of its field."""
    flat = name.removesuffix("_config")
    lines = (line for line in log.splitlines() if flat in line and "server_args=" not in line)
    return next((line.split("] ", 1)[-1].strip() for line in lines if _is_warning(line)), None)


def _is_warning(line: str) -> bool:
    return any(word in line for word in WARNINGS)
