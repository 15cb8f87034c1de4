"""Who is examined: one drafter beside one target on one engine, from a sweep file or from two folders."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launchers.containers.image import Told, silent
from launchers.engines.checkpoint import read_checkpoint
from launchers.engines.engine import Engine, Served
from launchers.engines.model_folder import WEIGHT_ENDINGS, not_found, where_it_lies
from launchers.engines.wiring import Drafting, wiring_of
from results.checkpoint import Checkpoint
from results.errors import UsageError
from results.head_config import Head, HeadKind
from results.records import BASELINE, BASELINE_METHOD, KnobValue, Point
from sweeps.prepare import Plan, plan_to_start
from sweeps.profile import parsed_point
from sweeps.space import Rules, Space
from sweeps.sweep import Sweep

USUAL_METHOD = {"sglang": "EAGLE3", "vllm": "eagle3", "llamacpp": ""}  # llama.cpp's own default is none


@dataclass(frozen=True)
class Patient:
    """`plan` starts its server; without one only the folders are looked at."""

    drafting: Drafting | None  # None: no drafter is named, or it is none with a folder
    plan: Plan | None = None
    point: Point = BASELINE

    @property
    def name(self) -> str:
        if self.plan is not None:
            return self.plan.sweep.name
        return self.drafting.head.folder.name if self.drafting is not None else "folders"


def from_sweep(sweep: Sweep, point: str = "", told: Told = silent) -> Patient:
    """The server of a sweep with this Point ("METHOD knob=value ..."), or with the first of its space.

    What the engine's rules call illegal is launched all the same: it may be what is wrong. Raises UsageError.
    """
    asked = parsed_point(point) if point else first_point(sweep)
    plan = plan_of_point(sweep, asked, told)
    (chosen,) = plan.space.points.values()
    return Patient(_drafting(plan, chosen), plan, chosen)


def plan_of_point(sweep: Sweep, point: Point, told: Told = silent) -> Plan:
    """The plan of a sweep whose space is this Point alone, whatever the engine's rules say of it."""
    return plan_to_start(sweep, lambda engine, served, _: _only(engine, served, point), told=told)


def from_folders(target: str, head: str, engine: str, version: str, method: str | None) -> Patient:
    """Two folders alone, or models in the Hugging Face cache. Raises UsageError if one is no model.

    Names in any case; the method None = the engine's for EAGLE-3, of llama.cpp none.
    """
    name = engine.lower().replace(".", "")
    wiring_of(name)
    method = USUAL_METHOD[name] if method is None else method.lower() if name == "vllm" else method
    beside = Drafting(_model(target), _model(head), name, version, method)
    if Head(beside.target).kind is HeadKind.EAGLE3:
        swapped = (
            "the other way round?" if Head(beside.head).kind is HeadKind.MODEL else "--target is its model"
        )
        raise UsageError(f"{target} is an EAGLE-3 head, no target: {swapped}")
    return Patient(beside)


def _model(named: str) -> Checkpoint:
    place = where_it_lies(named)
    if place.is_file():
        if place.suffix not in WEIGHT_ENDINGS:
            raise UsageError(f"{named} is no model: name its folder, or a GGUF file")
        return read_checkpoint(place)
    if not place.is_dir():
        raise UsageError(not_found(named))
    if not (place / "config.json").is_file():
        raise UsageError(f"{place} is no model folder: it holds no config.json")
    return read_checkpoint(place)


def first_point(sweep: Sweep) -> Point:
    """The first method of the space, each knob at its first value, or at the engine's default."""
    for method, knobs in sweep.space.items():
        if method != BASELINE_METHOD:
            first = {name: _first(spec) for name, spec in (knobs or {}).items()}
            return Point(method, {name: value for name, value in first.items() if value is not None})
    return BASELINE


def _first(spec: object) -> KnobValue | None:
    """None of a range, which has no first value that one would name."""
    value = spec[0] if isinstance(spec, list) and spec else spec
    return value if isinstance(value, int | float | str | bool) else None


def _only(engine: Engine, served: Served, point: Point) -> Space:
    values = {name: (value,) for name, value in engine.canonical(point).knobs.items()}
    return Space(engine, served, {point.method: values}, Rules(ignored=True, allow_lossy=True))


def _drafting(plan: Plan, point: Point) -> Drafting | None:
    served, engine = plan.served, plan.engine
    if served.draft is None or not Path(served.draft).exists() or not Path(served.model).exists():
        return None
    device = engine.device(point)
    return Drafting(
        target=read_checkpoint(Path(served.model)),
        head=read_checkpoint(Path(served.draft)),
        engine=engine.name,
        version=engine.version().split(" ")[-1],
        method=point.method,
        settings={
            **({"device": device} if device else {}),
            **flags_of(engine.command(point, served, port=1)),
        },
        variables={n: v for n, v in engine.environment(point, served).items() if v is not None},
    )


def flags_of(words: Sequence[str]) -> Mapping[str, KnobValue]:
    """`--name value` and `--name=value` of a command line, by name without dashes; True for a bare flag.

    Of a value that is a JSON object also each of its entries, as `name.key`.
    """
    found: dict[str, KnobValue] = {}
    for at, word in enumerate(words):
        if re.match(r"--?[a-zA-Z]", word) is None:
            continue
        name, equals, value = word.lstrip("-").partition("=")
        following = words[at + 1] if at + 1 < len(words) else "--none"
        found[name] = value if equals else True if re.match(r"--?[a-zA-Z]", following) else following
        found |= _entries(name, found[name])
    return found


def _entries(name: str, value: object) -> dict[str, KnobValue]:
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if isinstance(value, Mapping):
        entries = (_entries(f"{name}.{key}", one) for key, one in value.items())
        return {inner: kept for found in entries for inner, kept in found.items()}
    return {name: value} if isinstance(value, int | float | str | bool) else {}


def needs_drafter(patient: Patient) -> Drafting:
    """Raises UsageError if there is no drafter to look at."""
    if patient.drafting is None:
        raise UsageError(
            "there is no drafter to look at: name its folder under `draft` in the sweep file, or with --draft"
        )
    return patient.drafting
