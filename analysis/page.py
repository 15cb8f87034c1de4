"""The report as one HTML page that needs nothing but itself."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis import (
    capacity,
    cells,
    limit_tables,
    map_tables,
    output_tables,
    profile_section,
    sections,
    tables,
    tradeoff,
    variables,
)
from analysis.answer import answer, command_title
from analysis.head import head
from analysis.heatmap import heat_map
from analysis.markup import command, folded, pair, section, table, text
from analysis.plots import Figure, figures
from analysis.report_input import ReportInput
from analysis.tables import Table

_FOLDER = Path(__file__).parent
# Nothing may be fetched, whatever a record contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
Figures = dict[str, Figure]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: `id` is its anchor, `link` its name in the navigation.

    `build` gives the whole `<section>` (`analysis.markup.section`), or "" if there is nothing to show.
    """

    id: str
    link: str
    build: Callable[[ReportInput, Figures], str]


def page(report: ReportInput) -> str:
    drawn = figures(report)
    built = {part: part.build(report, drawn) for part in SECTIONS}
    links = "".join(
        f'<li><a href="#{part.id}">{part.link}</a></li>' for part, inside in built.items() if inside
    )
    body = f"{head(report)}{''.join(built.values())}"
    return document(f"{report.name}: {answer(report).big}", links, body)


def document(title: str, links: str, body: str) -> str:
    """A whole page. `links` are the items of its navigation, `body` is its main part."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{text(title)}</title><style>{_asset('report.css')}</style></head><body>"
        '<a class="skip" href="#main">Skip to the answer</a>'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav><main id="main" tabindex="-1">{body}</main>'
        f"<script>{_asset('report.js')}</script></body></html>\n"
    )


@cache
def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _command(report: ReportInput, _: Figures) -> str:
    inside = command(report.command) if report.command else ""
    return section("command", command_title(report), inside)


def _evidence(report: ReportInput, drawn: Figures) -> str:
    return section(
        "evidence",
        "Does it hold?",
        pair(drawn.get("class-map"), drawn.get("confirmation")),
        table(tables.finalists(report)),
        table(tables.classes(report)),
        table(cells.cells(report)),
        table(tables.outputs(report)),
        table(output_tables.accuracy(report)),
        table(output_tables.divergence(report)),
        folded_table(output_tables.first_difference(report)),
    )


def folded_table(content: Table) -> str:
    return folded(content.title, table(content, titled=False)) if content.rows else ""


def _map(report: ReportInput, _: Figures) -> str:
    return section("map", "Where it holds", heat_map(report), table(map_tables.per_cell(report)))


def _capacity(report: ReportInput, _: Figures) -> str:
    return section("capacity", "Highest load", table(capacity.highest_loads(report), titled=False))


def _limits(report: ReportInput, _: Figures) -> str:
    kept, good = limit_tables.limits(report), limit_tables.goodput(report)
    return section("limits", "Limits", table(kept), table(good))


def _front(report: ReportInput, _: Figures) -> str:
    drawn, told = pair(tradeoff.figure(report)), table(tradeoff.table(report), titled=False)
    return section("front", tradeoff.TITLE, drawn, told)


def _profile(report: ReportInput, _: Figures) -> str:
    return profile_section.profile_section(report.profiles)


def _latencies(report: ReportInput, _: Figures) -> str:
    return section("latencies", "Latency: what a user feels", table(tables.latency(report), titled=False))


def _settings(report: ReportInput, _: Figures) -> str:
    return section("settings", "Settings in effect", table(tables.settings(report), titled=False))


def _variables(report: ReportInput, _: Figures) -> str:
    return section("variables", variables.TITLE, table(variables.variables(report), titled=False))


def _trials(report: ReportInput, _: Figures) -> str:
    return section("every-trial", "Every trial", table(tables.trials(report), titled=False))


# In the order of the page. A new part: one line here, its builder in a module of its own.
SECTIONS = (
    Section("command", "Command", _command),
    Section("sides", "A and B", sections.compared),
    Section("map", "Load map", _map),
    Section("evidence", "Evidence", _evidence),
    Section("capacity", "Highest load", _capacity),
    Section("latencies", "Latency", _latencies),
    Section("limits", "Limits", _limits),
    Section("front", "Front", _front),
    Section("search", "Search", sections.search),
    Section("acceptance", "Acceptance", sections.acceptance),
    Section("costs", "Costs", sections.costs),
    Section("timeline", "Over time", sections.over_time),
    Section("nodes", "Nodes", sections.nodes),
    Section("hardware", "Hardware", sections.hardware_seen),
    Section("profile", "Profile", _profile),
    Section("settings", "Settings", _settings),
    Section("variables", "Variables", _variables),
    Section("failed", "Failures", sections.failed),
    Section("every-trial", "Trials", _trials),
    Section("run", "Run", sections.run),
    Section("reproduce", "Reproduce", sections.again),
    Section("terms", "Terms", sections.terms),
)
