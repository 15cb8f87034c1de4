"""A measured table replayed as if its servers were launched: an engine, a Space, and Blocks with noise."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from launchers.engines.engine import Engine, Knob, Served
from results.errors import UsageError
from results.records import (
    BASELINE,
    BASELINE_METHOD,
    Acceptance,
    AcceptanceState,
    ArmRun,
    Block,
    Cell,
    DraftShape,
    KnobValue,
    Measurement,
    Phase,
    Point,
    SpecCounters,
    Telemetry,
    Trial,
    TrialState,
)
from sweeps.space import Space

SERVED = Served("model", None, {}, {})
BASE_TOKENS_PER_S = 100.0


@dataclass(frozen=True)
class Measured:
    """One Point in one Cell: its true log speed-up, and what was counted, if anything was."""

    log_speedup: float
    counts: SpecCounters | None = None
    steps: float = 0.0


@dataclass(frozen=True)
class Landscape:
    """A table of configurations that were really measured."""

    name: str
    table: Mapping[str, Mapping[Cell, Measured]]  # Point key -> Cell -> what was measured
    points: Mapping[str, Point]
    shapes: Mapping[str, DraftShape] = field(default_factory=dict)
    starts: Sequence[Point] = ()  # what the engine would guess first
    noise: float = 0.02  # standard deviation of one Block's log speed-up

    @cached_property
    def truth(self) -> dict[str, float]:
        """Log speed-up by Point key: the mean over Cells."""
        return {k: sum(m.log_speedup for m in cells.values()) / len(cells) for k, cells in self.table.items()}

    @property
    def table_name(self) -> str:
        """Of the table it is a part of."""
        return self.name if self.name.startswith("own") else self.name.partition(" ")[0]

    @property
    def best(self) -> float:
        return max(self.truth.values())

    @cached_property
    def space(self) -> Space:
        knobs: dict[str, dict[str, list[KnobValue]]] = {}
        for point in self.points.values():
            of_method = knobs.setdefault(point.method, {})
            for name, value in point.knobs.items():
                if value not in of_method.setdefault(name, []):
                    of_method[name].append(value)
        methods = {m: {k: tuple(sorted(v, key=_order)) for k, v in of.items()} for m, of in knobs.items()}
        return Space(cast(Engine, TableEngine(self)), SERVED, methods)

    def block(self, number: int, point: Point, rng: random.Random) -> Block:
        """One Block of the baseline and a Point."""
        slip = rng.gauss(0.0, self.noise)
        cells = self.table[point.key]
        ours = [_window(c, BASE_TOKENS_PER_S * math.exp(m.log_speedup + slip), m) for c, m in cells.items()]
        theirs = [_window(c, BASE_TOKENS_PER_S, Measured(0.0)) for c in cells]
        arms = (_arm(BASELINE, theirs, None), _arm(point, ours, self.shapes.get(point.key)))
        return Block(number, Phase.SEARCH, 0.0, 1.0, "", arms)

    def trial(self, number: int, point: Point, source: str, block: Block) -> Trial:
        logs = [
            math.log((m.tokens_per_s or 0.0) / BASE_TOKENS_PER_S) for m in block.candidates[0].measurements
        ]
        return Trial(number, point, source, TrialState.MEASURED, sum(logs) / len(logs), {}, (number,))


class TableEngine:
    """Knows the Points of a table and no others."""

    name = "replay"
    no_custom_all_reduce = ""
    memory_settings: Mapping[str, bool] = {}

    def __init__(self, landscape: Landscape) -> None:
        self._landscape = landscape

    def methods(self, served: Served) -> Mapping[str, tuple[Knob, ...]]:
        return {BASELINE_METHOD: ()}

    def check(self, point: Point, served: Served) -> None:
        if self.canonical(point).key not in self._landscape.points:
            raise UsageError(f"{point.label} was not measured")

    def lossy(self, point: Point, served: Served) -> str:
        return ""

    def canonical(self, point: Point) -> Point:
        """The Point of the table: a knob that it does not have there is dead."""
        if point.key in self._landscape.points:
            return point
        for known in self._landscape.points.values():
            if known.method == point.method and known.knobs.items() <= point.knobs.items():
                return known
        return point

    def draft_shape(self, point: Point) -> DraftShape | None:
        return self._landscape.shapes.get(point.key)

    def starting_points(self, served: Served) -> Sequence[Point]:
        return self._landscape.starts


def grid(landscape: Landscape) -> list[Point]:
    """Every Point in the fixed order of nested loops."""
    found: dict[str, Point] = {}
    for method, knobs in landscape.space.methods.items():
        for values in itertools.product(*knobs.values()):
            point = landscape.space.point(method, dict(zip(knobs, values, strict=True)))
            if point is not None:
                found.setdefault(point.key, point)
    return [*found.values()]


def _order(value: KnobValue) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return (not number, float(value) if isinstance(value, int | float) else 0.0, str(value))


def _arm(point: Point, windows: Sequence[Measurement], shape: DraftShape | None) -> ArmRun:
    return ArmRun(point, (), 0.0, 0.0, 1.0, {}, tuple(windows), shape=shape)


def _window(cell: Cell, tokens_per_s: float, measured: Measured) -> Measurement:
    counts = measured.counts
    tokens = round(measured.steps) + (counts.accepted_tokens if counts else 0)
    return Measurement(
        cell=cell,
        requests=1,
        failed=0,
        first_error=None,
        output_tokens=tokens,
        wall_s=1.0,
        tokens_per_s=tokens_per_s,
        mean_request_tokens_per_s=tokens_per_s,
        ttft_s=None,
        tpot_s=None,
        chunk_gap_s=None,
        end_to_end_s=None,
        concurrency=1.0,
        empty_share=0.0,
        truncated_share=0.0,
        degenerate_share=0.0,
        tokens_by_prompt={"all": tokens},
        acceptance=Acceptance(
            AcceptanceState.MEASURED if counts else AcceptanceState.UNKNOWN, counters=counts
        ),
        telemetry=Telemetry(1.0),
    )
