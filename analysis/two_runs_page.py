"""Two runs side by side as a page, as Markdown and as JSON."""

import json

from analysis import two_runs, two_runs_tables
from analysis.markup import paragraph, section, table, text
from analysis.page import document
from analysis.tables import Table
from analysis.terms import definitions
from analysis.text_page import as_list, as_table, as_text
from analysis.two_runs import TwoRuns

_TITLE = "Two runs side by side"
_TERMS = ("Speed-up", "Block", "Cell", "Interval", "Search estimate", "Confirmed")
_EQUAL = {
    "sweeps": "The sweep files ask for the same.",
    "environments": "The fingerprints of the environment are equal.",
    "speedups": "No configuration has a speed-up in both runs.",
    "throughput": "No Cell was measured in both runs.",
}


def html(two: TwoRuns) -> str:
    parts = {
        "sides": ("Verdicts", "What each run says", [two_runs_tables.verdicts(two)]),
        "speedups": ("Speed-ups", "Did a speed-up move?", [two_runs_tables.speedups(two)]),
        "throughput": ("Throughput", "Absolute throughput", [two_runs_tables.throughput(two)]),
        "differences": (
            "Differences",
            "What was different",
            [two_runs_tables.sweeps(two), two_runs_tables.environments(two)],
        ),
    }
    built = {
        id: section(id, title, *(_table_or_why(t, titled=len(shown) > 1) for t in shown))
        for id, (_, title, shown) in parts.items()
    }
    links = "".join(f'<li><a href="#{id}">{name}</a></li>' for id, (name, _, _) in parts.items())
    return document(
        f"{two.a.name} and {two.b.name}",
        f'{links}<li><a href="#terms">Terms</a></li>',
        f"{_head(two)}{''.join(built.values())}{_terms(two)}",
    )


def _table_or_why(shown: Table, *, titled: bool) -> str:
    if shown.rows:
        return table(shown, titled=titled)
    title = f"<h3>{text(shown.title)}</h3>" if titled else ""
    return title + paragraph(_EQUAL[shown.id], "empty")


def _head(two: TwoRuns) -> str:
    names = " and ".join(f"{name}: {report.folder or report.name}" for name, report in two.runs.items())
    warnings = "".join(
        f'<p class="warning" role="note"><strong>Caution</strong> {text(said)}</p>'
        for said in two_runs.cautions(two)
    )
    return (
        f'<header class="open"><p class="eyebrow">{text(names)}</p>'
        f'<h1 class="sentence"><span>{_TITLE}</span></h1>'
        f"{paragraph(two_runs.sentence(two), 'headline')}{warnings}</header>"
        f'<aside class="missing"><h2>What two runs do not say</h2>{paragraph(two_runs.NOT_PAIRED)}</aside>'
    )


def _terms(two: TwoRuns) -> str:
    meanings = definitions(two.a.objective, two.a.same_margin)
    shown = "".join(f"<div><dt>{text(t)}</dt><dd>{text(meanings[t])}</dd></div>" for t in _TERMS)
    return section("terms", "What the words mean", f'<dl class="terms">{shown}</dl>')


def markdown(two: TwoRuns) -> str:
    tables = (
        two_runs_tables.verdicts(two),
        two_runs_tables.speedups(two),
        two_runs_tables.throughput(two),
        two_runs_tables.sweeps(two),
        two_runs_tables.environments(two),
    )
    parts = [
        f"# {_TITLE}",
        as_text(two_runs.sentence(two)),
        as_text(two_runs.NOT_PAIRED),
        as_list("Cautions", two_runs.cautions(two)),
        *(as_table(t) or f"## {t.title}\n\n{_EQUAL[t.id]}" for t in tables),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def as_json(two: TwoRuns) -> str:
    return json.dumps(two_runs_tables.document(two), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
