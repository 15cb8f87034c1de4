"""The report as Markdown: the answer first, then the same tables as the page."""

import re

from analysis import crossover, findings, hardware, map_tables, sides, tables, words
from analysis.answer import answer, command_title
from analysis.labels import grouped
from analysis.loadmap import load_map
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table
from analysis.variables import variables

_MARKED = re.compile(r"([\\`*_\[\]<>|~])")


def text_page(report: ReportInput) -> str:
    said, compared = answer(report), report.comparison is not None
    missing = findings.missing(report)
    terms = words.definitions(report.objective, report.same_margin, comparison=compared)
    title = " ".join(filter(None, (said.big, said.unit)))
    parts = [
        f"# {_text(title)}",
        _text(report.headline),
        *(_text(sentence) for sentence in crossover.sentences(load_map(report))),
        *(_text(d) for d in said.details),
        f"Holds for: {_text(grouped(said.holds_for))}." if said.holds_for else "",
        f"**Caution:** {_text(report.banner)}" if report.banner else "",
        _list(f"What this run does not say{'' if report.finished or compared else ' yet'}", missing),
        f"## {command_title(report)}\n\n{_fenced(report.command)}" if report.command else "",
        *(_table(t) for t in _tables(report)),
        _hardware(report),
        _list("Notes", list(report.notes)),
        f"## Sweep\n\n{_fenced(report.sweep_yaml)}" if report.sweep_yaml else "",
        _list("Terms", [f"**{term}.** {meaning}" for term, meaning in terms.items()], marked=True),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _tables(report: ReportInput) -> tuple[Table, ...]:
    return (
        sides.named(report),
        sides.differences(report),
        sides.sides(report),
        tables.finalists(report),
        tables.classes(report),
        map_tables.grid(report),
        map_tables.per_cell(report),
        tables.latency(report),
        tables.outputs(report),
        tables.acceptance(report),
        hardware.energy(report),
        hardware.gpus(report),
        hardware.host(report),
        tables.settings(report),
        variables(report),
        tables.failures(report),
        tables.invalid_blocks(report),
        tables.trials(report),
        tables.phases(report),
        tables.calibration(report),
        tables.environment(report),
    )


def _hardware(report: ReportInput) -> str:
    """What the tables of the hardware do not say."""
    absent = bool(hardware.measured_points(report)) and not hardware.has_gpus(report)
    notes = [*([hardware.NO_GPU] if absent else []), *hardware.cautions(report)]
    return _list("GPUs", notes)


def _table(table: Table) -> str:
    if not table.rows:
        return ""
    rule = "|".join(" ---: " if c in table.numeric else " --- " for c in table.columns)
    lines = [f"| {' | '.join(_text(c) for c in table.columns)} |", f"|{rule}|"]
    lines += [f"| {' | '.join(_entry(e) for e in row)} |" for row in table.rows]
    note = f"{_text(table.note)}\n\n" if table.note else ""
    return f"## {table.title}\n\n{note}" + "\n".join(lines)


def _entry(entry: Entry) -> str:
    return _text(entry.text)


def _text(value: str) -> str:
    """One line in which nothing of a record acts as Markdown."""
    return _MARKED.sub(r"\\\1", " ".join(words.clean(value).split()))


def _list(title: str, items: list[str], marked: bool = False) -> str:
    lines = "\n".join(f"- {item if marked else _text(item)}" for item in items)
    return f"## {title}\n\n{lines}" if items else ""


def _fenced(code: str) -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{words.clean(code).strip()}\n{fence}"
