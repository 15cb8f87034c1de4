"""What the gate measures every night: one configuration beside its baseline, pinned with its workload."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from analysis.findings import compared_with
from analysis.nightly.series import series, settings
from launchers.containers.image import Told, silent
from results.errors import UsageError
from results.nights import SPEED_UP
from results.records import Block, Point, Verdict
from results.secrets import HIDDEN
from results.store import RunFolder
from sweeps.confirm import confirmation
from sweeps.export.choice import Why, choose
from sweeps.nightly.fingerprint import segment_of, versions_of
from sweeps.outcome import SIDES_FILE
from sweeps.prepare import Plan, plan_to_start, whole_space
from sweeps.strict_yaml import read_yaml
from sweeps.sweep import Sweep, parse_sweep

BLOCKS = 4  # of one night, and again after a breach


@dataclass(frozen=True)
class Pin:
    """The content of a pinned file."""

    name: str
    baseline: Point
    winner: Point
    sweep: Sweep  # whose space holds the winner alone
    blocks: int = BLOCKS
    expected: Mapping[str, float] = field(default_factory=dict)  # series as they were confirmed
    segment: Mapping[str, str] = field(default_factory=dict)  # as in results.nights.Night
    versions: Mapping[str, str] = field(default_factory=dict)
    effective: Mapping[str, str] = field(default_factory=dict)

    def plan(self, told: Told = silent) -> Plan:
        """What a night needs, resolved. Raises UsageError, e.g. if the engine no longer knows a knob.

        `told` gets lines about images that are pulled.
        """
        plan = plan_to_start(self.sweep, whole_space, told=told)
        if self.winner.key not in plan.space.points:
            raise UsageError(f"{self.winner.label}: {plan.engine.version()} makes something else of it")
        return plan


class _Point(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    method: str
    knobs: dict[str, bool | int | float | str] = {}

    def to_record(self) -> Point:
        return Point(self.method, self.knobs)


class _File(BaseModel):
    """The YAML of a pinned file."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    blocks: int = Field(default=BLOCKS, ge=2, le=20)
    baseline: _Point
    winner: _Point
    expected: dict[str, float] = {}
    segment: dict[str, str] = {}
    versions: dict[str, str] = {}
    effective: dict[str, str] = {}
    sweep: dict[str, Any]


def pin_of(folder: RunFolder, point: str | None = None, blocks: int = BLOCKS) -> Pin:
    """Pin the winner of a run, or the confirmed configuration named. Raises UsageError."""
    if folder.read_json(SIDES_FILE):
        raise UsageError(f"{folder.path} holds a comparison: pin the winner of a sweep")
    chosen = choose(folder, point)
    if chosen.why is Why.BASELINE or chosen.point.is_baseline:
        raise UsageError(
            f"nothing to pin: {chosen.report.headline} The gate follows a winner over its baseline"
        )
    baseline = compared_with(chosen.report.blocks)
    measured = _confirmed(chosen.report.blocks, baseline, chosen.point, chosen.verdict)
    sweep, environment = _narrowed(chosen.sweep, baseline, chosen.point), chosen.report.environment
    return Pin(
        name=sweep.name,
        baseline=baseline,
        winner=chosen.point,
        sweep=sweep,
        blocks=blocks,
        expected=series(measured, baseline, chosen.point, sweep.objective, sweep.weights.to_record()),
        segment=segment_of(environment, sweep, baseline, chosen.point),
        versions=versions_of(environment),
        effective=settings(measured, {"baseline": baseline, "winner": chosen.point}),
    )


def _confirmed(
    blocks: Sequence[Block], baseline: Point, winner: Point, verdict: Verdict | None
) -> list[Block]:
    """The Blocks that say what to expect of it."""
    found = [b for b in confirmation(blocks, baseline) if b.arm(winner) is not None]
    if verdict is None or not found:
        raise UsageError(
            f"{winner.label} was not confirmed: only a confirmed configuration is worth guarding"
        )
    return found


def _narrowed(sweep: Sweep, baseline: Point, winner: Point) -> Sweep:
    """The same sweep with no other configuration in it."""
    chosen = {
        name: list(dict.fromkeys(p.knobs[name] for p in (baseline, winner) if name in p.knobs))
        for name in sweep.shared
    }
    return sweep.model_copy(
        update={
            "space": {winner.method: dict(winner.speculative)},
            "shared": {name: values for name, values in chosen.items() if values},
        }
    )


def pin_text(pin: Pin, origin: str, at: float | None = None) -> str:
    """The text of a pinned file; `origin` is the run that it comes from."""
    day = time.strftime("%Y-%m-%d", time.gmtime(at if at is not None else time.time()))
    head = (
        f"# {pin.winner.label} of {origin}, pinned on {day}: {pin.expected.get(SPEED_UP, 0):.2f}x as fast as"
        f" {pin.baseline.label}.\n"
        "# tuner check FILE --history DIR measures both again and says whether something got worse.\n"
        "# Commit this file. To pin another configuration run `tuner pin` again.\n"
    )
    content = {
        "name": pin.name,
        "blocks": pin.blocks,
        "baseline": {"method": pin.baseline.method, "knobs": dict(pin.baseline.knobs)},
        "winner": {"method": pin.winner.method, "knobs": dict(pin.winner.knobs)},
        "expected": {name: float(f"{value:.6g}") for name, value in pin.expected.items()},
        "segment": dict(pin.segment),
        "versions": dict(pin.versions),
        "effective": dict(pin.effective),
        "sweep": yaml.safe_load(pin.sweep.to_yaml()),
    }
    return head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)


def read_pin(path: Path) -> Pin:
    """Raises UsageError with the place and the remedy."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read the pinned file {path}: {why} (`tuner pin RUN` writes one)") from error
    try:
        content = read_yaml(text, str(path))
        found = _File.model_validate(content if isinstance(content, dict) else {})
    except ValidationError as error:
        places = ", ".join(sorted({".".join(map(str, e["loc"])) for e in error.errors()}))
        raise UsageError(
            f"{path} is no pinned file (wrong or missing: {places}); `tuner pin RUN` writes one"
        ) from None
    sweep = parse_sweep(yaml.safe_dump(_with_secrets(found.sweep, path)), where=f"{path}, sweep")
    return Pin(
        name=found.name,
        baseline=found.baseline.to_record(),
        winner=found.winner.to_record(),
        sweep=sweep,
        blocks=found.blocks,
        expected=found.expected,
        segment=found.segment,
        versions=found.versions,
        effective=found.effective,
    )


def _with_secrets(sweep: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """What was hidden comes from tuner's own environment."""
    env = dict(sweep.get("env") or {})
    for name in [name for name, value in env.items() if value == HIDDEN]:
        if name not in os.environ:
            raise UsageError(f"{path} does not keep the value of {name}: set it in the environment of tuner")
        env[name] = os.environ[name]
    return {**sweep, "env": env}
