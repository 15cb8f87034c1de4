"""How the baseline and the candidates stand to the limits of a sweep, and their goodput, as tables."""

import math
from collections.abc import Sequence
from statistics import median

from analysis import findings, words
from analysis.limits import median_ratios, shown
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table
from results.records import BASELINE, ArmRun, Cell, Measurement, Phase, Point


def limits(report: ReportInput) -> Table:
    """How the baseline and the finalists stand to each limit; no rows without limits."""
    names = list(report.limits)
    points = _judged(report) if names else {}
    rows = [
        (Entry(label, code=True), *_limit_entries(_runs(point, report), report))
        for label, point in points.items()
        if _runs(point, report)
    ]
    columns = ("Configuration", *(f"{n}, at most {shown(n, report.limits[n])}" for n in names))
    note = "The worst Cell of the median Block."
    return Table("limits", "Limits", columns, tuple(rows), frozenset(columns[1:]), note)


def _judged(report: ReportInput) -> dict[str, Point]:
    """The baseline, then the finalists, or the best of the search; of a comparison both sides."""
    if report.comparison is not None:
        return findings.shown_points(report)
    subject = findings.subject(report)
    others = [v.point for v in report.verdicts] or ([subject] if subject is not None else [])
    return {p.label: p for p in (_compared_with(report), *others)}


def _compared_with(report: ReportInput) -> Point:
    return next((b.compared_with for b in reversed(report.blocks)), BASELINE)


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


def goodput(report: ReportInput) -> Table:
    """Of the baseline and the subject in each Cell: medians over Blocks; no rows if none was asked for."""
    point, name = findings.subject(report), findings.subject_name(report)
    theirs, ours = findings.windows_of_both(point, report.blocks) if point is not None else ([], [])
    cells = dict.fromkeys(m.cell for m in ours if m.goodput_per_s is not None)
    rows = [(Entry(cell.label), _share(theirs, ours, cell), _rate(theirs, ours, cell)) for cell in cells]
    bounds = ", ".join(f"{bound} at most {shown(bound, limit)}" for bound, limit in report.goodput.items())
    reference = "A" if report.comparison else "Baseline"
    label = f" ({point.label})" if point is not None else ""
    note = f"{reference} → {name}{label}, medians over Blocks. A request counts with {bounds}."
    columns = ("Cell", "Requests within", "Goodput")
    return Table("goodput", "Goodput", columns, tuple(rows), frozenset(columns[1:]), note)


def _share(theirs: Sequence[Measurement], ours: Sequence[Measurement], cell: Cell) -> Entry:
    shares = [
        [m.within_limits_share for m in windows if m.cell == cell and m.within_limits_share is not None]
        for windows in (theirs, ours)
    ]
    before, after = (median(found) if found else None for found in shares)
    return Entry(f"{words.percent(before)} → {words.percent(after)}", after)


def _rate(theirs: Sequence[Measurement], ours: Sequence[Measurement], cell: Cell) -> Entry:
    rates = [
        [m.goodput_per_s for m in windows if m.cell == cell and m.goodput_per_s is not None]
        for windows in (theirs, ours)
    ]
    before, after = (median(found) if found else None for found in rates)
    said = [words.UNKNOWN if rate is None else f"{rate:.3g}/s" for rate in (before, after)]
    return Entry(" → ".join(said), after)
