"""What was measured in each Cell, as absolute figures: baseline beside the subject."""

from collections.abc import Sequence
from statistics import median

from analysis import findings, words
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table
from results.records import Cell, Measurement


def cells(report: ReportInput) -> Table:
    """Medians over Blocks; no rows for a comparison, whose sides have a table of their own."""
    point, name = findings.subject(report), findings.subject_name(report).capitalize()
    found = findings.windows_of_both(point, report.blocks) if point is not None else None
    columns = ("Cell", "Baseline", name, "Ratio", "In flight", "Requests", "Tokens")
    title = "Tokens per second in each Cell"
    if point is None or found is None or report.comparison is not None:
        return Table("cells", title, columns, ())
    theirs, ours = found
    rows = [_row(cell, theirs, ours) for cell in dict.fromkeys(m.cell for m in ours)]
    note = (
        f"{name}: {point.label}. Medians over Blocks of tokens/s; the ratio is of these medians, while every "
        f"speed-up above is paired within Blocks. {findings.place_note(point, report.blocks)}"
    )
    return Table("cells", title, columns, tuple(rows), frozenset(columns[1:]), note.strip())


def _row(cell: Cell, theirs: Sequence[Measurement], ours: Sequence[Measurement]) -> tuple[Entry, ...]:
    before, after = (findings.median_in(arm, cell, lambda m: m.tokens_per_s) for arm in (theirs, ours))
    ratio = after / before if before and after else None
    own = [m for m in ours if m.cell == cell]
    in_flight = median(m.concurrency for m in own)
    requests = sum(m.requests for m in own)
    tokens = sum(sum(m.tokens_by_prompt.values()) for m in own)
    return (
        Entry(cell.label),
        _rate(before),
        _rate(after),
        Entry(words.UNKNOWN if ratio is None else f"{ratio:.2f}x", ratio),
        Entry(f"{in_flight:.1f}", in_flight),
        Entry(f"{requests}", requests),
        Entry(f"{tokens}", tokens),
    )


def _rate(tokens_per_s: float | None) -> Entry:
    return Entry(words.UNKNOWN if tokens_per_s is None else f"{tokens_per_s:.1f}", tokens_per_s)
