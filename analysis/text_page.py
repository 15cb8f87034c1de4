"""The report as Markdown: the answer first, then the same tables as the page."""

import re

from analysis import (
    capacity,
    cells,
    cost_section,
    crossover,
    failures,
    findings,
    hardware,
    limit_tables,
    map_tables,
    nodes,
    nodes_section,
    output_tables,
    profile_section,
    sides,
    tables,
    tradeoff,
    words,
)
from analysis.answer import answer, command_title
from analysis.labels import grouped
from analysis.loadmap import load_map
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table
from analysis.terms import definitions
from analysis.variables import variables

_MARKED = re.compile(r"([\\`*_\[\]<>|~])")


def text_page(report: ReportInput) -> str:
    said, compared = answer(report), report.comparison is not None
    missing = findings.missing(report)
    terms = definitions(report.objective, report.same_margin, comparison=compared)
    title = " ".join(filter(None, (said.big, said.unit)))
    parts = [
        f"# {as_text(title)}",
        as_text(report.headline),
        *(as_text(line) for line in crossover.sentences(load_map(report))),
        *(as_text(d) for d in said.details),
        f"Holds for: {as_text(grouped(said.holds_for))}." if said.holds_for else "",
        f"**Caution:** {as_text(report.banner)}" if report.banner else "",
        as_text(cost_section.ties_line(report)),
        as_list(f"What this run does not say{'' if report.finished or compared else ' yet'}", missing),
        f"## {command_title(report)}\n\n{_fenced(report.command)}" if report.command else "",
        *(as_table(t) for t in _tables(report)),
        _hardware(report),
        as_list("Nodes that differ", nodes.cautions(report)),
        as_list("Notes", list(report.notes)),
        f"## Sweep\n\n{_fenced(report.sweep_yaml)}" if report.sweep_yaml else "",
        as_list("Terms", [f"**{term}.** {meaning}" for term, meaning in terms.items()], marked=True),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _tables(report: ReportInput) -> tuple[Table, ...]:
    return (
        sides.named(report),
        sides.differences(report),
        sides.sides(report),
        tables.finalists(report),
        tables.classes(report),
        capacity.highest_loads(report),
        cells.cells(report),
        map_tables.grid(report),
        map_tables.per_cell(report),
        tables.latency(report),
        limit_tables.limits(report),
        limit_tables.goodput(report),
        tradeoff.table(report),
        tables.outputs(report),
        output_tables.accuracy(report),
        output_tables.divergence(report),
        output_tables.first_difference(report),
        tables.acceptance(report),
        *cost_section.both(report),
        nodes_section.by_place(report),
        nodes_section.per_cell(report),
        hardware.energy(report),
        hardware.gpus(report),
        hardware.host(report),
        *profile_section.profile_tables(report.profiles),
        tables.settings(report),
        variables(report),
        failures.failures(report),
        failures.invalid_blocks(report),
        tables.trials(report),
        tables.phases(report),
        tables.calibration(report),
        tables.environment(report),
    )


def _hardware(report: ReportInput) -> str:
    """What the tables of the hardware do not say."""
    absent = bool(hardware.measured_points(report)) and not hardware.has_gpus(report)
    notes = [*([hardware.NO_GPU] if absent else []), *hardware.cautions(report)]
    return as_list("GPUs", notes)


def as_table(table: Table) -> str:
    if not table.rows:
        return ""
    note = f"{as_text(table.note)}\n\n" if table.note else ""
    return f"## {table.title}\n\n{note}{rows(table)}"


def rows(table: Table) -> str:
    """The table alone, without its title and note."""
    rule = "|".join(" ---: " if c in table.numeric else " --- " for c in table.columns)
    lines = [f"| {' | '.join(as_text(c) for c in table.columns)} |", f"|{rule}|"]
    lines += [f"| {' | '.join(_entry(e) for e in row)} |" for row in table.rows]
    return "\n".join(lines)


def _entry(entry: Entry) -> str:
    return as_text(entry.text)


def as_text(value: str) -> str:
    """One line in which nothing of a record acts as Markdown."""
    return _MARKED.sub(r"\\\1", " ".join(words.clean(value).split()))


def as_list(title: str, items: list[str], marked: bool = False) -> str:
    lines = "\n".join(f"- {item if marked else as_text(item)}" for item in items)
    return f"## {title}\n\n{lines}" if items else ""


def _fenced(code: str) -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{words.clean(code).strip()}\n{fence}"
