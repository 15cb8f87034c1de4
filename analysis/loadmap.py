"""The load map: in every Cell the best configuration, what it gains, and what one for all Cells loses there.

Confirmed figures come first. Where there is none, the best search estimate stands in, labelled as such:
it is one Block, the best of many, and no winner.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from analysis import findings, places
from analysis.report_input import ReportInput
from analysis.verdict import kind_of
from results.records import (
    Block,
    Cell,
    Effect,
    Measurement,
    Phase,
    Point,
    Trial,
    TrialState,
    Verdict,
    VerdictKind,
)


class State(StrEnum):
    """What is known of a Cell: the first four are confirmed."""

    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    UNDECIDED = "not decided"
    SEARCHED = "search estimate"
    LIMITED = "capacity-limited"
    UNKNOWN = "no number"


# The first of these that any finalist reaches is the state of the Cell.
_IN_ORDER = (
    (VerdictKind.BETTER, State.FASTER),
    (VerdictKind.UNDECIDED, State.UNDECIDED),
    (VerdictKind.SAME, State.SAME),
    (VerdictKind.WORSE, State.SLOWER),
)


@dataclass(frozen=True, slots=True)
class Standing:
    """One configuration in one Cell, against the baseline."""

    point: Point
    log_speedup: float
    effect: Effect | None = None  # None = a search estimate


@dataclass(frozen=True, slots=True)
class Figures:
    """What a server reaches in a Cell: medians over the Blocks of one place; None = not known."""

    tokens_per_s: float | None = None
    tpot_s: float | None = None  # p50


@dataclass(frozen=True, slots=True)
class CellAnswer:
    """What is known of one Cell."""

    cell: Cell
    state: State
    best: Point | None  # None = speculation off: nothing is faster with certainty
    shown: Standing | None  # the best, or what comes closest to it where that is off
    compromise: float | None  # log speed-up of the configuration for all Cells; None = no figure of this kind
    loss: float | None  # log ratio of the best to the compromise, >= 0
    weight: float
    prompt_tokens: float | None  # median, as the server counted
    baseline: Figures
    figures: Figures  # of the configuration shown
    limited: str = ""  # who could not admit the load, and how one saw it


@dataclass(frozen=True, slots=True)
class LoadMap:
    """The Cells ordered by class, length and pace, and the one configuration for all of them."""

    cells: tuple[CellAnswer, ...]
    compromise: Point | None  # None = speculation off
    confirmed: bool  # whether `compromise` and the losses are; else they are search estimates
    gain: float | None  # log ratio, weighted mean: what a choice for every Cell would gain over it

    @property
    def points(self) -> list[Point]:
        """Every configuration that the map names."""
        named = [self.compromise, *(a.shown.point for a in self.cells if a.shown)]
        return list({p.key: p for p in named if p is not None}.values())


def load_map(report: ReportInput) -> LoadMap | None:
    """The map of a sweep; None of a comparison, and where there is only one Cell."""
    cells = _ordered({m.cell: None for m in _all_windows(report.blocks)})
    if report.comparison is not None or len(cells) < 2:
        return None
    judged = [v for v in report.verdicts if v.effect is not None and v.kind is not VerdictKind.INVALID]
    tried = [t for t in findings.measured(report.trials) if t.state is TrialState.MEASURED and not t.lossy]
    compromise = _compromise(report, judged)
    answers = tuple(_answer(report, cell, judged, tried, compromise) for cell in cells)
    counted = [(a.loss, a.weight) for a in answers if a.loss is not None and a.weight > 0]
    gain = fmean([loss for loss, _ in counted], [w for _, w in counted]) if counted else None
    return LoadMap(answers, compromise, bool(judged), gain)


def pace_order(pace: str) -> tuple[str, float] | None:
    """Kind of load and how much of it, e.g. ("closed", 4); None for a replay, which has no order."""
    found = re.fullmatch(r"(closed|poisson)\(([\d.e+-]+)(?:/s)?\)", pace)
    return (found.group(1), float(found.group(2))) if found else None


def _ordered(cells: Iterable[Cell]) -> list[Cell]:
    """Classes in the order of the sweep, then by length, then by load."""
    known = list(cells)
    classes = list(dict.fromkeys(c.workload_class for c in known))

    def order(cell: Cell) -> tuple[int, int, tuple[str, float], str]:
        load = pace_order(cell.pace) or ("replay", 0.0)
        return classes.index(cell.workload_class), cell.context_tokens or 0, load, cell.pace

    return sorted(known, key=order)


def _all_windows(blocks: Iterable[Block]) -> Iterable[Measurement]:
    return (m for b in findings.valid(blocks) for arm in b.arms for m in arm.measurements)


def _compromise(report: ReportInput, judged: Sequence[Verdict]) -> Point | None:
    """The winner, which has the largest weighted mean of all that are faster with certainty.

    Before any verdict: the best search estimate, if it is above the baseline.
    """
    if judged:
        return report.winner.point if report.winner is not None else None
    best = findings.best_trial(report.trials)
    return best.point if best is not None and (best.log_speedup or 0.0) > 0 else None


def _answer(
    report: ReportInput,
    cell: Cell,
    judged: Sequence[Verdict],
    tried: Sequence[Trial],
    compromise: Point | None,
) -> CellAnswer:
    confirmed = [Standing(v.point, e.log_ratio, e) for v in judged if (e := v.by_cell.get(cell.label))]
    searched = [Standing(t.point, t.by_cell[cell.label]) for t in tried if cell.label in t.by_cell]
    if any(cell.label in v.limited for v in judged):
        searched = []  # the confirmation knows better
    limited = _limited(report.blocks, cell)
    state, shown = _state(confirmed, searched, math.log1p(report.same_margin), limited)
    best = shown if _beats_off(state, shown) else None
    ours = _log_of(compromise, confirmed or ([] if judged else searched))  # evidence of one kind
    phase = _of_phase(report.blocks, Phase.CONFIRM if confirmed else Phase.SEARCH)
    having = [b for b in phase if shown is not None and b.arm(shown.point) is not None]
    blocks = places.at(places.busiest(having or phase), phase)
    off = [m for b in blocks if b.baseline is not None for m in b.baseline.measurements]
    return CellAnswer(
        cell,
        state,
        best.point if best is not None else None,
        shown,
        ours,
        None if ours is None else max(0.0, (best.log_speedup if best is not None else 0.0) - ours),
        report.weights.of(cell),
        findings.median_in(off, cell, lambda m: m.prompt_tokens),
        _figures(off, cell),
        _figures(findings.windows(shown.point, blocks) if shown is not None else [], cell),
        limited,
    )


def _beats_off(state: State, shown: Standing | None) -> bool:
    """With certainty, or by a search estimate where there is nothing else."""
    return state is State.FASTER or (state is State.SEARCHED and shown is not None and shown.log_speedup > 0)


def _state(
    confirmed: Sequence[Standing], searched: Sequence[Standing], margin: float, limited: str
) -> tuple[State, Standing | None]:
    kinds = [(kind_of(s.effect, margin), s) for s in confirmed if s.effect is not None]
    for kind, state in _IN_ORDER:
        if reached := [s for found, s in kinds if found is kind]:
            return state, _fastest(reached)
    if searched:
        return State.SEARCHED, _fastest(searched)
    return (State.LIMITED if limited else State.UNKNOWN), None


def _fastest(standings: Sequence[Standing]) -> Standing:
    return max(standings, key=lambda s: s.log_speedup)


def _log_of(point: Point | None, standings: Sequence[Standing]) -> float | None:
    """Of the compromise in a Cell: 0 where it is off and something else was measured."""
    if point is None:
        return 0.0 if standings else None
    return next((s.log_speedup for s in standings if s.point.key == point.key), None)


def _limited(blocks: Iterable[Block], cell: Cell) -> str:
    """The first sign of a server that could not admit the load."""
    for block in findings.valid(blocks):
        for arm in block.arms:
            found = arm.cell(cell)
            if found is not None and found.capacity_limited:
                off = arm.point.key == block.compared_with.key
                return f"{'the baseline' if off else arm.point.label}: {found.capacity_limited}"
    return ""


def _of_phase(blocks: Iterable[Block], phase: Phase) -> list[Block]:
    return [b for b in findings.valid(blocks) if b.phase is phase]


def _figures(windows: Iterable[Measurement], cell: Cell) -> Figures:
    admitted = [m for m in windows if not m.capacity_limited]
    return Figures(
        findings.median_in(admitted, cell, lambda m: m.tokens_per_s),
        findings.median_in(admitted, cell, lambda m: m.tpot_s.p50 if m.tpot_s else None),
    )
