"""The nodes of a cluster run, as tables and a figure. Nothing for a run that one machine measured itself."""

import math
from typing import TYPE_CHECKING

from analysis import findings, nodes, places, svg, words
from analysis.anchor import place_of
from analysis.block import HIGHER_IS_BETTER, mean_log_speedup
from analysis.interaction import Pair, SpeedUp, by_node, depends, speedups
from analysis.marks import BASELINE_KEY, Row, draw_rows, effect_row, rows_height, sign_keys
from analysis.markup import figure as drawn_figure
from analysis.markup import paragraph, section, table
from analysis.nodes import AtPlace
from analysis.plots import Figure
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Nodes"
_LEFT = 12  # user units: no scale at the left
_MOST_PLACES = 8  # in the figure; beyond, one row for each node


def section_of(report: ReportInput) -> str:
    """The part of the page; "" if nothing was measured on a node."""
    found = nodes.by_place(report)
    if not found:
        return ""
    drawn = figure(report)
    cautions = "".join(paragraph(c, "warning") for c in nodes.cautions(report))
    told = f'<div class="beside">{paragraph(_HOW_TO_READ)}{paragraph(_dependence(report))}</div>'
    shown = f'<div class="pair">{drawn_figure(drawn)}{told}</div>' if drawn is not None else ""
    return section(
        "nodes", TITLE, cautions, shown, table(by_place(report), titled=False), table(per_cell(report))
    )


_HOW_TO_READ = (
    "A Block happens on one node and one set of its GPUs, and a speed-up is the ratio within a Block: so "
    "ratios of different places may be put together, absolute figures never."
)


def _dependence(report: ReportInput) -> str:
    told = depends(_pairs(report), math.log1p(report.same_margin))
    if told:
        return f"The speed-up depends on the place by more than the noise: {told}."
    if any(s.effect is None for s in shown_speedups(report)):
        return "Whether the speed-up depends on the place is not known: too few Blocks at each."
    return "No place differs from the others in its speed-up by more than the noise."


def by_place(report: ReportInput) -> Table:
    """A row for each node and set of GPUs."""
    found = nodes.by_place(report)
    rows = [_row(report, at) for at in found]
    columns = ("Node", "GPUs", "Blocks", "Time in Blocks", "Baseline", "Against the others")
    note = f"Baseline: {_level_words(report)}. {_gap_words(report)}"
    return Table(
        "nodes", TITLE, columns, tuple(rows), frozenset({"Blocks", "Time in Blocks", "Baseline"}), note
    )


def _row(report: ReportInput, at: AtPlace) -> tuple[Entry, ...]:
    node, gpus = at.place
    thrown = f", {at.invalid} thrown away" if at.invalid else ""
    return (
        Entry(node or "this machine"),
        Entry(places.gpus_named(gpus) or (str(at.gpus) if at.gpus else "none")),
        Entry(f"{at.blocks}{thrown}", at.blocks),
        Entry(_hours(at), at.hours),
        Entry(words.UNKNOWN if at.level is None else _said(report.objective, at.level), at.level),
        _against(at),
    )


def _hours(at: AtPlace) -> str:
    spent = words.long_time(at.hours * nodes.SECONDS_PER_HOUR)
    return f"{spent}, {at.gpu_hours:.2g} GPU hours" if at.gpus else spent


def _against(at: AtPlace) -> Entry:
    gap = at.gap
    if gap is None:
        return Entry("")
    low, middle, high = (words.signed_percent(v) for v in (gap.low, gap.log_ratio, gap.high))
    told = f"{middle} ({low} to {high})"
    return Entry(f"{told}: differs" if gap.differs else told, gap.log_ratio)


def _level_words(report: ReportInput) -> str:
    if report.objective == "tokens_per_s":
        return "tokens/s of the server without speculation, the geometric mean over Cells and Blocks"
    return f"{report.objective} of the server without speculation, the geometric mean over Cells and Blocks"


def _gap_words(report: ReportInput) -> str:
    if why := nodes.unknown(report):
        return why
    if len(nodes.by_place(report)) < 2:
        return ""
    return (
        "Against the others: the mean of the places that do not differ, with an interval that holds for all "
        f"places together (95 %). One differs where that interval excludes 0 and the gap is above"
        f" {100 * report.same_margin:g} %; above 0 is {words.signs(report.objective)[0]}."
    )


def _said(objective: str, level: float) -> str:
    return f"{level:.4g}" if objective in HIGHER_IS_BETTER else words.short_time(level)


def per_cell(report: ReportInput) -> Table:
    """The Baseline's level in each Cell at each place; no rows with one Cell or one place."""
    found = [at for at in nodes.by_place(report) if at.by_cell]
    cells = list(dict.fromkeys(cell for at in found for cell in at.by_cell))
    labels = [places.label(at.place) for at in found]
    rows = [
        (Entry(cell), *(Entry(_said(report.objective, at.by_cell[cell]), at.by_cell[cell]) for at in found))
        for cell in cells
        if len(cells) > 1 and len(found) > 1
    ]
    return Table("nodes-cells", "Baseline by node", ("Cell", *labels), tuple(rows), frozenset(labels))


def shown_speedups(report: ReportInput) -> list[SpeedUp]:
    """Of the subject at each place; by node where there are many places."""
    pairs = _pairs(report)
    found = speedups(pairs)
    return found if len(found) <= _MOST_PLACES else by_node(pairs)


def _pairs(report: ReportInput) -> list[Pair]:
    point = findings.subject(report)
    blocks = findings.shared_blocks(point, report.blocks) if point is not None else []
    logs = [
        (place_of(b), mean_log_speedup(theirs, ours, report.objective, report.weights))
        for b in blocks
        if point is not None and (theirs := b.baseline) is not None and (ours := b.arm(point)) is not None
    ]
    return [(place, log) for place, log in logs if log is not None]


def figure(report: ReportInput) -> Figure | None:
    """The speed-up of the subject at each place; None with one place."""
    point, found = findings.subject(report), shown_speedups(report)
    if point is None or len(found) < 2:
        return None
    rows = [_drawn(s) for s in found]

    def paint(axes: "Axes") -> None:
        draw_rows(axes, rows)

    title = "Speed-up by node"
    phase = "confirmed" if any(v.point.key == point.key for v in report.verdicts) else "in the search"
    caption = f"{point.label}, {phase}, with the 95 % interval of each place by the noise of all."
    drawn = svg.draw("figure-nodes", title, words.clean(caption), paint, rows_height(rows), _LEFT)
    return Figure("nodes", title, words.clean(caption), drawn, (*sign_keys(report.objective), BASELINE_KEY))


def _drawn(s: SpeedUp) -> Row:
    name = f"{places.label(s.place)}, {words.count(s.blocks, 'Block')}"
    if s.effect is not None:
        return effect_row(name, s.effect)
    return Row(name, words.times(s.log_ratio), words.factor(s.log_ratio) or 0.0)


def as_records(report: ReportInput) -> list[dict[str, object]]:
    """The same for other programs."""
    of = {s.place: s for s in speedups(_pairs(report))}
    return [
        {
            "node": at.place[0],
            "gpus": list(at.place[1]),
            "blocks": at.blocks,
            "invalid_blocks": at.invalid,
            "hours": at.hours,
            "gpu_hours": at.gpu_hours,
            "baseline": at.level,
            "baseline_by_cell": dict(at.by_cell),
            "baseline_against_others": _gap(at),
            "speedup": words.factor(of[at.place].log_ratio) if at.place in of else None,
            "speedup_blocks": of[at.place].blocks if at.place in of else 0,
        }
        for at in nodes.by_place(report)
    ]


def _gap(at: AtPlace) -> dict[str, object] | None:
    if at.gap is None:
        return None
    low, middle, high = (words.factor(v) for v in (at.gap.low, at.gap.log_ratio, at.gap.high))
    return {"ratio": middle, "low": low, "high": high, "differs": at.gap.differs}
