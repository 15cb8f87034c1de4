"""The two sides of a comparison, from what the command line names to what a run needs.

A side is a sweep file that describes one configuration, or the URL of a server that somebody else runs.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from launchers.attach import is_on_this_machine, server_url
from launchers.containers.image import Told, silent
from launchers.engines.attached import Attached, attach
from launchers.engines.engine import Engine, Served
from results.environment import short_hash
from results.errors import UsageError
from results.records import BASELINE_METHOD, Point
from sweeps.prepare import Plan, plan_of, plan_to_start, whole_space
from sweeps.space import Rules, Space
from sweeps.sweep import Sweep, load_sweep, parse_sweep

SIDES = "AB"
# What both sides share, so that nothing but the servers differs.
SHARED = ("workload", "load", "pairing", "objective", "limits", "goodput", "confirm", "patience", "seed")
# What is chosen for a server that is started, and cannot be for one that runs already.
CHOSEN = ("server", "draft", "args", "env", "space", "shared")
# Keys of a sweep that are no setting of the server: `differences` leaves them out.
NO_SETTING = frozenset(
    {*SHARED, "name", "budget", "space", "shared", "allow_lossy", "ignore_rules", "api_key_env", "engine"}
)
SHOWN_POINTS = 3


@dataclass(frozen=True)
class Side:
    """One of the two configurations, resolved; nothing has been started yet."""

    name: str  # "A" or "B"
    given: str  # the file or the URL, as it was named
    plan: Plan
    point: Point  # named after the side

    @property
    def is_attached(self) -> bool:
        return isinstance(self.plan.engine, Attached)

    @property
    def unchecked(self) -> Sequence[str]:
        """What cannot be checked of this side, in sentences."""
        return self.plan.engine.notes(self.plan.served) if self.is_attached else ()

    def settings(self) -> Mapping[str, str]:
        """All that makes this side what it is, as far as it is known before it is measured."""
        engine, sweep = self.plan.engine, self.plan.sweep
        told = {"engine": engine.name, "engine version": engine.version(), "method": self.point.method}
        told |= {name: str(value) for name, value in self.point.knobs.items()}
        if self.is_attached:
            return {**told, "launcher": "attach", "url": sweep.url, "model": str(self.plan.served.model)}
        return {**told, **flat({k: v for k, v in sweep.public().items() if k not in NO_SETTING})}

    def identity(self) -> str:
        """Hash of what decides its measurement."""
        return short_hash([self.plan.sweep.identity(), self.point.key])

    def record(self) -> Mapping[str, object]:
        """The side as it is written to the run folder."""
        return {
            "name": self.name,
            "given": self.given,
            "point": asdict(self.point),
            "attached": self.is_attached,
            "unchecked": list(self.unchecked),
            "sweep": self.plan.sweep.to_yaml(),
        }


@dataclass(frozen=True)
class Comparison:
    """B against A; without a B, A is measured and nothing is concluded."""

    name: str
    a: Side
    b: Side | None

    @property
    def sides(self) -> tuple[Side, ...]:
        return (self.a,) if self.b is None else (self.a, self.b)

    @property
    def sweep(self) -> Sweep:
        """What both sides share is in the sweep of either."""
        return self.a.plan.sweep

    @property
    def same_model(self) -> bool:
        """By content where both are known, else by the last part of the name."""
        identities = [s.plan.engine.identity(s.plan.served) for s in self.sides]
        hashes = [i.get("model_sha256") for i in identities]
        if all(hashes):
            return len(set(hashes)) == 1
        return len({Path(str(s.plan.served.model)).name.lower() for s in self.sides}) == 1

    def environment(self) -> Mapping[str, object]:
        """Fingerprint of what is measured and where."""
        of: dict[str, Mapping[str, Any]] = {side.name: side.plan.environment() for side in self.sides}
        engines = "; ".join(f"{s.name}: {s.plan.engine.version()}" for s in self.sides)
        host = {**of["A"]["host"], "engine": engines}
        served = {name: environment["served"] for name, environment in of.items()}
        sides = {side.name: side.identity() for side in self.sides}
        images = {name: digest for e in of.values() for name, digest in e["images"].items()}
        return {**of["A"], "host": host, "served": served, "images": images, "sides": sides}

    def differences(self) -> Iterator[tuple[str, str, str]]:
        """(setting, in A, in B) of what differs as asked for; what a side does not tell is no difference."""
        if self.b is None:
            return
        ours, theirs = self.a.settings(), self.b.settings()
        told_alike = self.a.is_attached is self.b.is_attached
        for name in dict.fromkeys([*ours, *theirs]):
            if name == "model" and self.same_model:
                continue
            both = name in ours and name in theirs
            if (both or told_alike or name == "url") and ours.get(name) != theirs.get(name):
                yield name, ours.get(name, "not set"), theirs.get(name, "not set")

    def notes(self) -> Iterator[str]:
        """What to know of the two together."""
        if self.b is None:
            return
        here = [_host(side) for side in self.sides]
        if any(side.is_attached for side in self.sides) and here[0] == here[1]:
            yield (
                "Both may share their hardware, and neither is ended while the other is measured: what the"
                " idle one takes is missing to the other."
            )
        if not self.same_model:
            yield "They serve different models: how often their outputs are identical says nothing."

    def notes_of_sides(self) -> Iterator[str]:
        """What to know of each before it is started; what cannot be checked comes with the verdict."""
        for side in self.sides:
            if not side.is_attached:
                yield from (f"{side.name}: {note}" for note in side.plan.notes)

    def unchecked(self) -> Iterator[str]:
        for side in self.sides:
            yield from (f"{side.name}: {sentence}" for sentence in side.unchecked)

    def shared_yaml(self) -> str:
        """What is asked of both sides."""
        told = self.sweep.public()
        return yaml.safe_dump({key: told[key] for key in SHARED}, sort_keys=False, allow_unicode=True)

    def record(self) -> Mapping[str, object]:
        """As it is written to the run folder; see `sweeps.outcome`."""
        return {
            "name": self.name,
            "sides": [side.record() for side in self.sides],
            "differences": [list(difference) for difference in self.differences()],
            "notes": list(self.notes()),
            "same_model": self.same_model,
        }


def _host(side: Side) -> str:
    """Where a side computes, as far as an address tells."""
    if not side.is_attached or is_on_this_machine(side.plan.sweep.url):
        return "here"
    return urlsplit(side.plan.sweep.url).hostname or ""


def flat(value: object, path: str = "") -> dict[str, str]:
    """Settings by their path; what is not set is left out."""
    if isinstance(value, Mapping):
        parts = [flat(v, f"{path}.{k}" if path else str(k)) for k, v in value.items()]
        return {k: v for part in parts for k, v in part.items()}
    return {} if value in (None, "", []) else {path: str(value)}


# What was asked for


def comparison(
    given: Sequence[str],
    overrides: Sequence[str] = (),
    like: Path | None = None,
    *,
    planning: bool = False,
    told: Told = silent,
) -> Comparison:
    """Resolve one or two sides. Raises UsageError for whatever cannot work, before anything is started.

    `planning` and `told` as in `sweeps.prepare.plan_to_start`.
    """
    if len(given) > 2:
        raise UsageError("tuner compare takes two configurations: more are a sweep, `tuner sweep`")
    sweeps = _sweeps(given, overrides, like)
    _check_agreement(given, sweeps)
    sides = [
        _side(name, text, sweep, planning, told)
        for name, text, sweep in zip(SIDES, given, sweeps, strict=False)
    ]
    names = [re.sub(r"[^A-Za-z0-9._-]+", "-", _short(text)).strip("-") for text in given]
    return Comparison("-".join(["compare", *names]), sides[0], sides[1] if len(sides) > 1 else None)


def _short(given: str) -> str:
    url = urlsplit(given)
    return url.netloc + url.path if url.scheme else Path(given).stem


def _is_url(text: str) -> bool:
    if "://" in text:
        return True
    if re.fullmatch(r"[\w.-]+:\d+(/.*)?", text) and not Path(text).exists():
        raise UsageError(f"{text}: no such file; a server is named by its URL: http://{text}")
    return False


def _sweeps(given: Sequence[str], overrides: Sequence[str], like: Path | None) -> list[Sweep]:
    """One Sweep a side. A URL takes what is shared from the other side, or from `like`, or the defaults."""
    files = [None if _is_url(text) else load_sweep(Path(text), overrides) for text in given]
    other = next((sweep for sweep in files if sweep is not None), None)
    if like is not None and other is not None:
        raise UsageError("--like gives the workload for URLs: a sweep file brings its own")
    if other is None:
        other = load_sweep(like, overrides) if like is not None else parse_sweep("", overrides, "--set")
    attached = sum(s is None or s.launcher == "attach" for s in files)
    pairing = {1: "adjacent", 2: "together" if attached == 2 else other.pairing}[len(given)]
    sweeps = [s or _sweep_of_url(text, other) for s, text in zip(files, given, strict=True)]
    return [
        s.model_copy(
            update={
                "confirm": s.confirm.model_copy(update={"finalists": 1}),
                "pairing": pairing if attached == 2 or len(given) == 1 else s.pairing,
            }
        )
        for s in sweeps
    ]


def _sweep_of_url(url: str, other: Sweep) -> Sweep:
    shared = {key: getattr(other, key) for key in (*SHARED, "budget", "model", "api_key_env")}
    return Sweep(launcher="attach", url=server_url(url), **shared)


def _check_agreement(given: Sequence[str], sweeps: Sequence[Sweep]) -> None:
    shared = [flat({key: s.public()[key] for key in SHARED}) for s in sweeps]
    hours = [{} if s.budget.hours is None else {"budget.hours": f"{s.budget.hours:g}"} for s in sweeps]
    first, last = ({**a, **b} for a, b in ((shared[0], hours[0]), (shared[-1], hours[-1])))
    differing = [
        f"{key} ({first.get(key, 'not set')} and {last.get(key, 'not set')})"
        for key in dict.fromkeys([*first, *last])
        if first.get(key) != last.get(key)
    ]
    if differing:
        raise UsageError(
            f"{' and '.join(given)} ask for different measurements: {', '.join(differing)}."
            " Only the servers may differ"
        )


def _side(name: str, given: str, sweep: Sweep, planning: bool, told: Told) -> Side:
    try:
        if sweep.launcher == "attach":
            plan = _attached(sweep)
        else:
            plan = plan_to_start(sweep, _one_point, planning=planning, told=told)
    except UsageError as error:
        raise UsageError(f"{name} ({given}): {error}") from None
    (point,) = plan.space.points.values()
    return Side(name, given, plan, replace(point, name=name))


def _attached(sweep: Sweep) -> Plan:
    defaults = Sweep()
    for key in CHOSEN:
        if getattr(sweep, key) != getattr(defaults, key):
            raise UsageError(f"{key}: it cannot be chosen for a server that runs already (launcher: attach)")
    engine = attach(server_url(sweep.url), sweep.model, os.environ.get(sweep.api_key_env, ""))
    known = sweep.model_copy(update={"url": engine.url, "model": engine.found.model})
    return plan_of(known, engine, _found_point)


def _found_point(engine: Engine, served: Served, sweep: Sweep) -> Space:
    (point,) = engine.starting_points(served)
    values = {knob: (value,) for knob, value in point.knobs.items()}
    return Space(engine, served, {point.method: values}, Rules(allow_lossy=True))


def _one_point(engine: Engine, served: Served, sweep: Sweep) -> Space:
    """The Space of a side that is started. Raises UsageError unless it has exactly one Point."""
    if [*sweep.space] == [BASELINE_METHOD]:
        if sweep.shared:
            raise UsageError("shared: a comparison chooses one value: put the setting under `args`")
        return Space(engine, served, {BASELINE_METHOD: {}})
    space = whole_space(engine, served, sweep)
    if len(space.points) > 1:
        raise UsageError(_several([*space.points.values()]))
    return space


def _several(points: Sequence[Point]) -> str:
    shown = ", ".join(point.label for point in points[:SHOWN_POINTS])
    more = ", ..." if len(points) > SHOWN_POINTS else ""
    first = points[0]
    knobs = ", ".join(f"{name}: {value}" for name, value in first.speculative.items())
    moved = "" if not any(p.shared for p in points) else "; settings of `shared` go under `args`"
    return (
        f"its space holds {len(points)} configurations ({shown}{more}), and a side of a comparison is one."
        f" Name it with one value for each knob, e.g. `space: {{{first.method}: {{{knobs}}}}}`, or"
        f" `space: {{none: }}` for the server without speculation{moved}"
    )
