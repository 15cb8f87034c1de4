"""Two versions of a server in the same Blocks, each with and without speculation: how much of what changed.

A Block launches four arms. Within it every figure of the new version is divided by that of the old one,
so that a drift of the machine, which meets all four alike, cancels. The speed-up's contrast is the
difference of two: log(new winner / old winner) - log(new baseline / old baseline).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analysis import words
from analysis.acceptance import over_windows
from analysis.block import limited_cells, log_speedup, mean_log_speedup
from analysis.statistics import look_alpha, t_interval
from analysis.verdict import decide
from results.nights import BASELINE, LENGTH, SPEED_UP
from results.records import ArmRun, Block, Effect, Measurement, Phase, Point, VerdictKind, Weights

WINNER = "winner"  # the name of a contrast; the others have those of the series of a night
JUDGED = (WINNER, SPEED_UP)  # alpha is split over these; the others tell where a loss comes from
MIN_LOSS = 0.03  # a smaller one is not worth an alarm


@dataclass(frozen=True, slots=True)
class Pair:
    """One version: its server without speculation and the pinned winner on it, named after the version."""

    baseline: Point
    winner: Point


@dataclass(frozen=True, slots=True)
class Reading:
    """How Blocks are read. `margin` is the share within which a version is the SAME."""

    objective: str
    looks: tuple[int, ...]
    alpha: float
    margin: float
    weights: Weights
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def look_alpha(self) -> float:
        """Error probability of one interval."""
        return look_alpha(self.alpha, len(self.looks), len(JUDGED))

    def decide(self, log_ratios: Sequence[float]) -> tuple[VerdictKind, Effect | None]:
        """What one figure a Block comes to, at the planned looks."""
        return decide(
            log_ratios,
            looks=self.looks,
            alpha=self.alpha,
            finalists=len(JUDGED),
            same_margin=math.log1p(self.margin),
        )

    def is_loss(self, kind: VerdictKind, effect: Effect | None) -> bool:
        """Whether a loss is certain, and large enough to count, however wide the margin of the SAME is."""
        if kind is not VerdictKind.WORSE or effect is None:
            return False
        return effect.log_ratio <= math.log1p(-MIN_LOSS)


@dataclass(frozen=True, slots=True)
class Contrast:
    """New against old in one figure, as log ratios turned so that > 0 is better."""

    name: str
    kind: VerdictKind
    effect: Effect | None  # None before the first look, or where the figure is not known
    by_cell: Mapping[str, Effect] = field(default_factory=dict)
    is_loss: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Runs:
    """The four arms of one Block."""

    old_baseline: ArmRun
    old_winner: ArmRun
    new_baseline: ArmRun
    new_winner: ArmRun


def usable(blocks: Sequence[Block]) -> list[Block]:
    return [b for b in blocks if b.invalid is None and b.phase is Phase.CONFIRM]


def runs_of(blocks: Sequence[Block], old: Pair, new: Pair) -> list[Runs]:
    """Of the usable Blocks those in which all four arms were measured."""
    arms = (old.baseline, old.winner, new.baseline, new.winner)
    found = [[run for point in arms if (run := measured(b, point)) is not None] for b in usable(blocks)]
    return [Runs(*runs) for runs in found if len(runs) == len(arms)]


def measured(block: Block, point: Point) -> ArmRun | None:
    """The arm of a Point, if it has figures."""
    run = block.arm(point)
    return run if run is not None and run.failure is None and run.complete else None


def contrasts(blocks: Sequence[Runs], reading: Reading) -> tuple[Contrast, ...]:
    """Winner, baseline, speed-up and acceptance length, in that order."""
    left_out = {cell for runs in blocks for cell in _limited(runs)}

    def over_all(old: ArmRun, new: ArmRun) -> float | None:
        return mean_log_speedup(old, new, reading.objective, reading.weights, left_out)

    def by_cell(old: ArmRun, new: ArmRun) -> dict[str, float]:
        found = log_speedup(old, new, reading.objective)
        return {cell: ratio for cell, ratio in found.items() if cell not in left_out}

    winners = [over_all(r.old_winner, r.new_winner) for r in blocks]
    baselines = [over_all(r.old_baseline, r.new_baseline) for r in blocks]
    winner_cells = [by_cell(r.old_winner, r.new_winner) for r in blocks]
    baseline_cells = [by_cell(r.old_baseline, r.new_baseline) for r in blocks]
    speed_ups = [minus(w, b) for w, b in zip(winners, baselines, strict=True)]
    cells = [_each_minus(w, b) for w, b in zip(winner_cells, baseline_cells, strict=True)]
    lengths = [_log_lengths(r.old_winner.measurements, r.new_winner.measurements) for r in blocks]
    return (
        _contrast(WINNER, winners, winner_cells, reading),
        _contrast(BASELINE, baselines, baseline_cells, reading),
        _contrast(SPEED_UP, speed_ups, cells, reading),
        _contrast(LENGTH, lengths, [_length_by_cell(r) for r in blocks], reading),
    )


def _limited(runs: Runs) -> set[str]:
    """Cells whose load some arm could not admit: they count nowhere."""
    pairs = ((runs.old_baseline, runs.old_winner), (runs.new_baseline, runs.new_winner))
    return {cell for a, b in pairs for cell in limited_cells(a, b)}


def minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _each_minus(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    return {cell: a[cell] - b[cell] for cell in a if cell in b}


def _length_by_cell(runs: Runs) -> dict[str, float]:
    pairs = [(m, runs.new_winner.cell(m.cell)) for m in runs.old_winner.measurements]
    found = {old.cell.label: _log_lengths([old], [new]) for old, new in pairs if new is not None}
    return {cell: ratio for cell, ratio in found.items() if ratio is not None}


def _log_lengths(old: Sequence[Measurement], new: Sequence[Measurement]) -> float | None:
    a, b = over_windows(old).length, over_windows(new).length
    return math.log(b / a) if a and b else None


def _contrast(
    name: str, ratios: Sequence[float | None], cells: Sequence[Mapping[str, float]], reading: Reading
) -> Contrast:
    """From one figure a Block, over all Cells and by Cell."""
    known = [ratio for ratio in ratios if ratio is not None]
    if len(known) < len(ratios):
        note = f"not known in {len(ratios) - len(known)} of {words.count(len(ratios), 'Block')}"
        return Contrast(name, VerdictKind.UNDECIDED, None, note=note)
    kind, effect = reading.decide(known)
    if effect is None:
        return Contrast(name, kind, None)
    used = cells[: effect.blocks]
    return Contrast(name, kind, effect, _effects(used, reading.look_alpha), reading.is_loss(kind, effect))


def _effects(blocks: Sequence[Mapping[str, float]], alpha: float) -> dict[str, Effect]:
    """Of the Cells that every Block has."""
    shared = [cell for cell in blocks[0] if all(cell in block for block in blocks)]
    return {
        cell: Effect(*t_interval([block[cell] for block in blocks], alpha), blocks=len(blocks))
        for cell in shared
    }
