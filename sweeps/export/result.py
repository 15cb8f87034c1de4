"""The answer of a run for programs: what to start, what it gains, and for what that holds."""

import math
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from results.records import Effect, KnobValue
from sweeps.export.about import served_of
from sweeps.export.choice import Why
from sweeps.export.deployable import Deployable

SCHEMA = 1


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Speedup(_Model):
    """Ratio to what it was compared with; above 1 is better."""

    ratio: float
    low: float
    high: float
    blocks: int


class Configuration(_Model):
    """The Point."""

    label: str
    key: str
    method: str = Field(description="none = without speculation")
    knobs: dict[str, KnobValue]


class Start(_Model):
    """What to start."""

    command: str = Field(description="one line for a shell")
    nodes: int = Field(description="such commands that a server takes, one a node; this is rank 0's")
    argv: list[str] = Field(description="of the server itself; <secret> stands for what was not recorded")
    env: dict[str, str] = Field(description="variables to set, without the secrets")
    unset: list[str] = Field(description="variables to take away")
    secrets: list[str] = Field(description="variables that whoever starts it must set")
    image: str = Field(description="container image as it was started; empty = a process")
    image_digest: str
    host: str
    port: int
    health: str = Field(description="path that answers 200 once requests are served")
    gpus: int = Field(description="GPUs that the server was on")


class Result(_Model):
    """`tuner export --as json`."""

    schema_version: int = SCHEMA
    run: str
    what: Why = Field(description="baseline: nothing beats it; named: chosen with --point or --trial")
    confirmed: bool = Field(description="whether it is the confirmed answer of the run")
    headline: str
    notes: str
    engine: str
    engine_version: str
    model: dict[str, str] = Field(description="what was served, by content")
    configuration: Configuration
    start: Start
    objective: str = Field(description="what the speed-up is a ratio of")
    speedup: Speedup | None = Field(description="confirmed; null = not confirmed")
    by_class: dict[str, Speedup]
    by_cell: dict[str, Speedup]
    cells: list[str] = Field(description="for which it holds; nothing is claimed beyond")
    in_search: float | None = Field(description="ratio in the search, optimistic for the best of many")
    acceptance_length: float | None
    identical_share: float | None = Field(description="greedy outputs identical to the baseline's")
    environment: dict[str, Any] = Field(description="fingerprint of machine and software")


def result(what: Deployable) -> str:
    """The result as JSON."""
    return result_of(what).model_dump_json(indent=2) + "\n"


def result_of(what: Deployable) -> Result:
    """The result of one exported configuration."""
    choice, verdict = what.choice, what.choice.verdict
    return Result(
        run=what.name,
        what=choice.why,
        confirmed=choice.is_confirmed,
        headline=choice.report.headline,
        notes=choice.note,
        engine=choice.sweep.engine,
        engine_version=what.engine_version,
        model={name: str(value) for name, value in served_of(choice).items()},
        configuration=_configuration(what),
        start=_start(what),
        objective=choice.report.objective,
        speedup=_speedup(choice.effect),
        by_class={n: s for n, e in (verdict.by_class if verdict else {}).items() if (s := _speedup(e))},
        by_cell={n: s for n, e in (verdict.by_cell if verdict else {}).items() if (s := _speedup(e))},
        cells=list(verdict.cells) if verdict else [],
        in_search=_ratio(choice.trial.log_speedup) if choice.trial else None,
        acceptance_length=verdict.acceptance_length if verdict else None,
        identical_share=verdict.identical_share if verdict else None,
        environment=dict(choice.report.environment),
    )


def _configuration(what: Deployable) -> Configuration:
    point = what.choice.point
    return Configuration(label=point.label, key=point.key, method=point.method, knobs=dict(point.knobs))


def _start(what: Deployable) -> Start:
    server = what.server
    return Start(
        command=server.one_line,
        nodes=what.nodes,
        argv=list(server.argv),
        env=dict(server.given),
        unset=list(server.gone),
        secrets=list(server.secrets),
        image=server.container.launch.image or "" if server.container else "",
        image_digest=what.image,
        host=server.host,
        port=server.port,
        health=server.engine.health,
        gpus=what.gpus,
    )


def _ratio(log_ratio: float | None) -> float | None:
    return None if log_ratio is None else math.exp(log_ratio)


def _speedup(effect: Effect | None) -> Speedup | None:
    if effect is None:
        return None
    low, high = math.exp(effect.low), math.exp(effect.high)
    return Speedup(ratio=math.exp(effect.log_ratio), low=low, high=high, blocks=effect.blocks)
