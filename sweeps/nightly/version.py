"""Other versions of a pinned server: the same configuration and load on another image, build or setting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from analysis.nightly.contrast import MIN_LOSS, Pair, Reading
from launchers.containers.image import Told, silent
from results.environment import short_hash
from results.errors import UsageError
from results.records import IMAGE, Point
from sweeps.mistakes import nearest
from sweeps.nightly.pin import Pin
from sweeps.prepare import Plan
from sweeps.sides import flat
from sweeps.sweep import Sweep, parse_sweep

# What makes another version. The rest of a pinned sweep is what is asked of the server: it stays.
CHANGEABLE = ("server", "container", "model", "draft", "args", "env")
IMAGE_KEY = "container.image"


@dataclass(frozen=True)
class Version:
    """One version, resolved and checked; nothing has been started yet."""

    name: str
    plan: Plan
    pair: Pair  # the pinned Points, named after the version

    def settings(self) -> Mapping[str, str]:
        """All that makes this version what it is, as far as it is known before it is measured."""
        told = {"engine version": self.plan.engine.version()}
        return told | flat({key: self.plan.sweep.public()[key] for key in CHANGEABLE})

    def identity(self) -> str:
        """Hash of what decides its measurement."""
        return short_hash([self.plan.sweep.identity(), self.pair.baseline.key, self.pair.winner.key])


def version(pin: Pin, name: str, changes: Sequence[str] = (), told: Told = silent) -> Version:
    """The pinned configuration with some keys changed (`KEY=VALUE`, as for --set).

    Raises UsageError, before anything is started: a key that is no part of a version, an image that is not
    to be had, a knob of the winner that this version of the engine does not know.
    """
    changed = changed_pin(pin, changes)
    try:
        plan = changed.plan(told)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    return Version(name, plan, named(changed, name))


def named(pin: Pin, name: str) -> Pair:
    """The pinned Points with the name of a version, so that those of several fit into one Block."""
    return Pair(replace(pin.baseline, name=name), replace(pin.winner, name=name))


def changed_pin(pin: Pin, changes: Sequence[str]) -> Pin:
    """What is pinned, with some keys changed; no engine is asked yet. Raises UsageError."""
    keys = [change.partition("=")[0].strip() for change in changes]
    for key in keys:
        first = key.partition(".")[0]
        if first not in CHANGEABLE:
            raise UsageError(
                f"{key}: it is no part of a version{nearest(first, CHANGEABLE)};"
                " what is asked of the server stays as it is pinned"
            )
    sweep = parse_sweep(yaml.safe_dump(pin.sweep.model_dump(mode="json")), changes, "the pinned sweep")
    changed = replace(pin, sweep=_for_four_arms(sweep))
    return _without_image(changed) if IMAGE_KEY in keys else changed


def _for_four_arms(sweep: Sweep) -> Sweep:
    """Every Block has three arms beside the one that it is compared with."""
    return sweep.model_copy(update={"confirm": sweep.confirm.model_copy(update={"finalists": 3})})


def _without_image(pin: Pin) -> Pin:
    """An image that a Point names itself would hide the one of the version."""
    shared = {name: values for name, values in pin.sweep.shared.items() if name != IMAGE}
    return replace(
        pin,
        baseline=_point_without_image(pin.baseline),
        winner=_point_without_image(pin.winner),
        sweep=pin.sweep.model_copy(update={"shared": shared}),
    )


def _point_without_image(point: Point) -> Point:
    return replace(point, knobs={name: value for name, value in point.knobs.items() if name != IMAGE})


def reading_of(sweep: Sweep) -> Reading:
    """How Blocks of this sweep are read. A margin of the SAME below the least loss that counts is no use."""
    return Reading(
        objective=sweep.objective,
        looks=tuple(sweep.confirm.looks),
        alpha=sweep.confirm.alpha,
        margin=max(MIN_LOSS, sweep.confirm.same_margin),
        weights=sweep.weights.to_record(),
        limits=sweep.limits,
    )


def environment_of(versions: Sequence[Version], asked: str) -> Mapping[str, object]:
    """Fingerprint of what is measured and where; `asked` is what decides it beside these versions."""
    of: dict[str, Mapping[str, Any]] = {v.name: v.plan.environment() for v in versions}
    first = of[versions[0].name]
    engines = "; ".join(f"{v.name}: {v.plan.engine.version()}" for v in versions)
    return {
        **first,
        "host": {**first["host"], "engine": engines},
        "served": {name: environment["served"] for name, environment in of.items()},
        "images": {name: digest for e in of.values() for name, digest in e["images"].items()},
        "sides": {**{v.name: v.identity() for v in versions}, "asked": short_hash([asked])},
    }


def differences(old: Version, new: Version) -> list[tuple[str, str, str]]:
    """(setting, in the old version, in the new one) of what differs as asked for."""
    ours, theirs = old.settings(), new.settings()
    return [
        (name, ours.get(name, "not set"), theirs.get(name, "not set"))
        for name in dict.fromkeys([*ours, *theirs])
        if ours.get(name) != theirs.get(name)
    ]


def image_change(pin: Pin, image: str) -> str:
    """The change that takes another container image. Raises UsageError without containers."""
    if pin.sweep.launcher != "docker":
        raise UsageError(
            "an image needs `launcher: docker`, and the pinned servers are processes of this machine: name"
            " what changes, e.g. --candidate server=~/venvs/new/bin/python"
        )
    return f"{IMAGE_KEY}={image}"
