"""How the baseline and the candidates stand to the limits of a sweep, and their goodput, as tables."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis import findings, hardware, words
from analysis.limits import median_ratios, shown
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table
from results.records import ArmRun, Phase, Point


def limits(report: ReportInput) -> Table:
    """How the baseline and the finalists stand to each limit; no rows without limits."""
    names = list(report.limits)
    judged = {p.label: _runs(p, report) for p in hardware.judged_points(report)} if names else {}
    rows = [
        (Entry(label, code=True), *_limit_entries(runs, report)) for label, runs in judged.items() if runs
    ]
    columns = ("Configuration", *(f"{n}, at most {shown(n, report.limits[n])}" for n in names))
    note = "The worst Cell of the median Block."
    return Table("limits", "Limits", columns, tuple(rows), frozenset(columns[1:]), note)


def _runs(point: Point, report: ReportInput) -> list[ArmRun]:
    """Whole runs of a Point, of the confirmation where there are some."""
    found = [
        (b.phase, run)
        for b in findings.valid(report.blocks)
        if (run := b.arm(point)) is not None
        and run.failure is None
        and run.complete
        and not run.stopped_early
    ]
    return [run for phase, run in found if phase is Phase.CONFIRM] or [run for _, run in found]


def _limit_entries(runs: Sequence[ArmRun], report: ReportInput) -> list[Entry]:
    ratios = median_ratios(runs, report.limits, report.weights)
    return [_limit_entry(name, ratio, report.limits[name]) for name, ratio in ratios.items()]


def _limit_entry(name: str, log_ratio: float | None, limit: float) -> Entry:
    if log_ratio is None:
        return Entry(words.UNKNOWN)
    reached = math.exp(log_ratio) * limit
    return Entry(f"{shown(name, reached)}, {'broken' if log_ratio > 0 else 'kept'}", reached)


def in_short(point: Point, report: ReportInput) -> str:
    """One line on how a Point stands to the limits; "" = there are none, or it was not measured."""
    runs = _runs(point, report) if report.limits else []
    ratios = median_ratios(runs, report.limits, report.weights) if runs else {}
    bounds = report.limits
    return ", ".join(
        f"{name} {_limit_entry(name, ratio, bounds[name]).text} (at most {shown(name, bounds[name])})"
        for name, ratio in ratios.items()
    )


@dataclass(frozen=True, slots=True)
class Goodput:
    """Of the baseline and the subject in one Cell: medians over Blocks."""

    cell: str
    share_before: float | None
    share: float | None  # of requests within the limits
    per_s_before: float | None
    per_s: float | None


def goodput_by_cell(report: ReportInput) -> list[Goodput]:
    """Empty if the sweep names no goodput, or nothing was measured."""
    point = findings.subject(report)
    theirs, ours = findings.windows_of_both(point, report.blocks) if point is not None else ([], [])
    cells = dict.fromkeys(m.cell for m in ours if m.goodput_per_s is not None)
    return [
        Goodput(
            cell.label,
            *(findings.median_in(arm, cell, lambda m: m.within_limits_share) for arm in (theirs, ours)),
            *(findings.median_in(arm, cell, lambda m: m.goodput_per_s) for arm in (theirs, ours)),
        )
        for cell in cells
    ]


def goodput(report: ReportInput) -> Table:
    rows = [
        (
            Entry(g.cell),
            Entry(f"{words.percent(g.share_before)} → {words.percent(g.share)}", g.share),
            Entry(f"{_rate(g.per_s_before)} → {_rate(g.per_s)}", g.per_s),
        )
        for g in goodput_by_cell(report)
    ]
    point, name = findings.subject(report), findings.subject_name(report)
    bounds = ", ".join(f"{bound} at most {shown(bound, limit)}" for bound, limit in report.goodput.items())
    reference = "A" if report.comparison else "Baseline"
    label = f" ({point.label})" if point is not None else ""
    note = f"{reference} → {name}{label}, medians over Blocks. A request counts with {bounds}."
    note = f"{note} {findings.place_note(point, report.blocks)}".strip()
    columns = ("Cell", "Requests within", "Goodput")
    return Table("goodput", "Goodput", columns, tuple(rows), frozenset(columns[1:]), note)


def _rate(per_s: float | None) -> str:
    return words.UNKNOWN if per_s is None else f"{per_s:.3g}/s"
