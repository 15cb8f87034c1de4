"""The two sides of a comparison: what each reaches, what differs, and the one sentence that it comes to."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from analysis import findings, places, words
from analysis.acceptance import over_windows
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table
from results.records import (
    Acceptance,
    AcceptanceState,
    Cell,
    Effect,
    Measurement,
    Quantiles,
    Verdict,
    VerdictKind,
)


def sentence(verdict: Verdict, objective: str) -> str:
    """What a comparison says, in one sentence."""
    effect = verdict.effect
    if effect is None or verdict.kind is VerdictKind.INVALID:
        return f"Nothing can be said of B against A: {verdict.why}"
    bounds = f"{words.signed_percent(effect.low)} to {words.signed_percent(effect.high)}"
    shown = f"({bounds} over {words.count(effect.blocks, 'Block')})"
    of = f" {words.use_of(objective)}".rstrip()
    (better, worse), equally = words.signs(objective), words.equally(objective)
    share = f"{100 * abs(math.expm1(effect.log_ratio)):.1f} %"
    return {
        VerdictKind.BETTER: f"B is {share} {better}{of} than A {shown}.",
        VerdictKind.WORSE: f"B is {share} {worse}{of} than A {shown}.",
        VerdictKind.SAME: f"B is {equally}{of} as A {shown}.",
    }.get(verdict.kind, f"It is not decided which is {better}{of}: B is at {_at(effect)} of A {shown}.")


def _at(effect: Effect) -> str:
    return words.times(effect.log_ratio, 3 if effect.high - effect.low < words.NARROW else 2)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one side of a comparison reaches in one Cell: medians over the Blocks of one place."""

    side: str
    cell: Cell
    tokens_per_s: float | None
    ttft_s: Quantiles | None
    tpot_s: Quantiles | None
    acceptance: Acceptance


def figures(report: ReportInput) -> list[Figures]:
    """Of every side in every Cell; empty if this is no comparison."""
    sides = report.comparison.sides if report.comparison is not None else ()
    blocks = places.of_one(findings.valid(report.blocks))
    return [
        Figures(
            side.name,
            cell,
            median(speeds) if (speeds := [m.tokens_per_s for m in own if m.tokens_per_s]) else None,
            findings.median_quantiles(own, cell, lambda m: m.ttft_s),
            findings.median_quantiles(own, cell, lambda m: m.tpot_s),
            Acceptance(AcceptanceState.NOT_SPECULATING) if side.point.is_baseline else over_windows(own),
        )
        for side in sides
        for cell, own in _by_cell(findings.windows(side.point, blocks)).items()
    ]


def _by_cell(measurements: Iterable[Measurement]) -> dict[Cell, list[Measurement]]:
    found: dict[Cell, list[Measurement]] = {}
    for measurement in measurements:
        found.setdefault(measurement.cell, []).append(measurement)
    return found


def named(report: ReportInput) -> Table:
    """Who is who."""
    sides = report.comparison.sides if report.comparison is not None else ()
    rows = [
        (
            Entry(s.name),
            Entry(s.given, code=True),
            Entry(s.point.label.removeprefix(f"{s.name}: "), code=True),
        )
        for s in sides
    ]
    return Table("named", "A and B", ("Side", "Given as", "Configuration"), tuple(rows))


def differences(report: ReportInput) -> Table:
    """What was asked for differently on the two sides of a comparison."""
    found = report.comparison.differences if report.comparison is not None else ()
    rows = [(Entry(name, code=True), Entry(a, code=True), Entry(b, code=True)) for name, a, b in found]
    return Table("differences", "What differs", ("Setting", "A", "B"), tuple(rows))


def sides(report: ReportInput) -> Table:
    """What each side of a comparison reaches in each Cell."""
    rows = [
        (
            Entry(f.side),
            Entry(f.cell.label),
            Entry("" if f.tokens_per_s is None else f"{f.tokens_per_s:.1f}", f.tokens_per_s),
            Entry(words.short_time(_p50(f.ttft_s)), _p50(f.ttft_s)),
            Entry(words.short_time(_p50(f.tpot_s)), _p50(f.tpot_s)),
            Entry(_length(f.acceptance), f.acceptance.length),
        )
        for f in figures(report)
    ]
    columns = ("Side", "Cell", "Tokens/s", "TTFT p50", "TPOT p50", "Acceptance length")
    note = f"Medians over Blocks. {places.only_of(findings.valid(report.blocks))}".strip()
    return Table("sides", "Measured", columns, tuple(rows), frozenset(columns[2:]), note)


def _length(found: Acceptance) -> str:
    return found.state.value if found.length is None else f"{found.length:.2f}"


def _p50(quantiles: Quantiles | None) -> float | None:
    return quantiles.p50 if quantiles is not None else None
