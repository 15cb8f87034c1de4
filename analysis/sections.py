"""The parts of the page that are more than a table: each gives a whole section, or "" if it has nothing."""

from collections.abc import Mapping, Sequence

from analysis import (
    cost_section,
    failures,
    hardware,
    nodes_section,
    reproduce,
    searched,
    sides,
    tables,
    timeline_figure,
    words,
)
from analysis.failures import Case
from analysis.markup import block, command, figure, folded, pair, paragraph, section, table, text
from analysis.plots import Figure
from analysis.report_input import ReportInput
from analysis.terms import definitions

_ACCEPTANCE_WARNING = (
    "Acceptance is a diagnosis, not the objective. Within one configuration it goes with speed; across "
    "configurations a longer acceptance is often bought with more drafting than it saves."
)
_MANY_ROWS = 8  # more are folded where a figure says the same
Figures = Mapping[str, Figure]


def compared(report: ReportInput, _: Figures) -> str:
    if report.comparison is None:
        return ""
    return section(
        "sides",
        "What was compared" if len(report.comparison.sides) > 1 else "What was measured",
        table(sides.named(report), titled=False),
        table(sides.differences(report)),
        table(sides.sides(report)),
    )


def search(report: ReportInput, drawn: Figures) -> str:
    knobs = drawn.get("knobs")
    meanings = definitions()
    cautions = [paragraph(meanings[term]) for term in ("Effect of a knob", "Search estimate")]
    return section(
        "search",
        "The search",
        pair(drawn.get("convergence"), drawn.get("ranking")),
        paragraph(said, "note") if (said := searched.how_compared(report)) else "",
        paragraph(ties) if (ties := cost_section.ties_line(report)) else "",
        beside(knobs, *cautions) if knobs is not None else "",
    )


def beside(drawn: Figure, *parts: str) -> str:
    """A figure with what to keep in mind at its side."""
    return f'<div class="pair">{figure(drawn)}<div class="beside">{"".join(parts)}</div></div>'


def costs(report: ReportInput, _: Figures) -> str:
    return section("costs", cost_section.TITLE, *(table(t) for t in cost_section.both(report)))


def acceptance(report: ReportInput, drawn: Figures) -> str:
    shown = pair(drawn.get("positions"), drawn.get("lengths"))
    warning = paragraph(_ACCEPTANCE_WARNING, "note") if shown else ""
    counted = tables.acceptance(report)
    whole = table(counted)
    if len(counted.rows) > _MANY_ROWS:
        whole = folded(
            f"{counted.title}: all {len(counted.rows)} configurations", table(counted, titled=False)
        )
    return section("acceptance", "Acceptance", warning, shown, whole)


def over_time(report: ReportInput, _: Figures) -> str:
    drawn = timeline_figure.figure(report.timeline)
    if drawn is None or report.timeline is None:
        return ""
    no_gpu = "" if report.timeline.of("power_w") else paragraph(timeline_figure.NO_GPU)
    inside = beside(drawn, paragraph(timeline_figure.HOW_TO_READ), no_gpu)
    return section("timeline", "Over time", inside)


def hardware_seen(report: ReportInput, _: Figures) -> str:
    if not hardware.measured_points(report):
        return ""
    on_gpus = hardware.has_gpus(report)
    return section(
        "hardware",
        "What the hardware did",
        "" if on_gpus else paragraph(hardware.NO_GPU, "note"),
        *(paragraph(caution) for caution in hardware.cautions(report)),
        table(hardware.energy(report)),
        table(hardware.gpus(report)),
        table(hardware.host(report), titled=on_gpus),
    )


def nodes(report: ReportInput, _: Figures) -> str:
    return nodes_section.section_of(report)


def failed(report: ReportInput, _: Figures) -> str:
    return section(
        "failed",
        "What failed",
        table(failures.failures(report)),
        _logs(failures.cases(report)),
        table(failures.invalid_blocks(report)),
        empty="Nothing failed and no Block was thrown away." if report.blocks or report.comparison else "",
    )


def _logs(cases: Sequence[Case]) -> str:
    if not cases:
        return ""
    shown = "".join(folded(f"{case.title}: {case.failure.reason.value}", _log(case)) for case in cases)
    return f"<h3>What their logs say</h3>{shown}"


def _log(case: Case) -> str:
    where = "the line in question is marked" if case.excerpt.shows is not None else "its end"
    lines = "".join(
        f"<mark>{text(line)}</mark>\n" if i == case.excerpt.shows else f"{text(line)}\n"
        for i, line in enumerate(failures.lines_of(case))
    )
    label = text(f"Log of {case.title}")
    return (
        f"{paragraph(f'From logs/{case.log}, {where}. {words.REMEDIES[case.failure.reason]}', 'note')}"
        f'<pre class="log" tabindex="0" role="region" aria-label="{label}"><code>{lines}</code></pre>'
    )


def run(report: ReportInput, _: Figures) -> str:
    notes = "".join(f"<li>{text(note)}</li>" for note in report.notes)
    return section(
        "run",
        "The run",
        f"<ul>{notes}</ul>" if notes else "",
        table(tables.phases(report)),
        table(tables.calibration(report)),
        folded("Environment: hardware, software and hashes", table(tables.environment(report), titled=False)),
    )


def again(report: ReportInput, _: Figures) -> str:
    steps = "".join(
        f"<li>{paragraph(step.what)}{command(step.command)}</li>" for step in reproduce.steps(report)
    )
    yaml = block(report.sweep_yaml) if report.sweep_yaml else ""
    return section(
        "reproduce",
        "How to reproduce it",
        f'<ol class="steps">{steps}</ol>' if steps else "",
        paragraph(reproduce.NOTE, "note") if steps else "",
        table(reproduce.versions(report)),
        folded("The sweep as it was asked for", yaml),
    )


def terms(report: ReportInput, _: Figures) -> str:
    meanings = definitions(report.objective, report.same_margin, comparison=report.comparison is not None)
    shown = "".join(f"<div><dt>{text(t)}</dt><dd>{text(d)}</dd></div>" for t, d in meanings.items())
    return section("terms", "What the words mean", f'<dl class="terms">{shown}</dl>')
