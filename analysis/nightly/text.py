"""A night for people and for programs: the step summary in Markdown, the terminal, and JSON."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from analysis.nightly.figures import shown
from analysis.nightly.headline import headline, judged_table, measured_with, told_table
from analysis.nightly.judgement import Judgement, State
from analysis.renderables import BAD, CAUTION, GOOD, grid, plain, section, table, text
from analysis.tables import Entry, Table
from analysis.text_page import as_text, rows
from analysis.words import count
from results.nights import NightVerdict

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_ROWS = 20  # of the table that is not folded away
_COLOURS = {NightVerdict.PASS: GOOD, NightVerdict.REGRESSION: BAD}
_STATES: dict[str, str] = {
    State.PASS: GOOD,
    State.REGRESSION: BAD,
    State.LEAK: BAD,
    State.INSUFFICIENT: "dim",
}


def summary(judgement: Judgement) -> str:
    """Markdown as GitHub and GitLab render it: verdict, explanation, what was judged, what was told."""
    judged, told = judged_table(judgement.series), told_table(judgement.series)
    head, rest = (replace(judged, rows=part) for part in (judged.rows[:MOST_ROWS], judged.rows[MOST_ROWS:]))
    parts = [
        f"## {as_text(headline(judgement))}",
        "\n".join(f"- {as_text(said)}" for said in judgement.night.said),
        rows(head) if head.rows else "",
        _folded(count(len(rest.rows), "more series", "more series"), rest),
        _folded(told.title, told),
        _folded("Measured with", _measured_with(judgement)),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _folded(title: str, content: Table) -> str:
    """Blank lines around the table, or it is not read as one."""
    if not content.rows:
        return ""
    return f"<details><summary>{title}</summary>\n\n{rows(content)}\n\n</details>"


def _measured_with(judgement: Judgement) -> Table:
    found = tuple((Entry(shown(name)), Entry(shown(value))) for name, value in measured_with(judgement))
    return Table("measured-with", "Measured with", ("what", "value"), found)


def lines(judgement: Judgement) -> "Iterator[RenderableType]":
    """For a terminal: verdict, explanation, what was judged, what was told, what it was measured with."""
    yield text(headline(judgement), f"bold {_COLOURS.get(judgement.verdict, CAUTION)}")
    yield from (text(said) for said in judgement.night.said)
    if (judged := judged_table(judgement.series)).rows:
        yield from section(judged.title, _coloured(judged))
    if (told := told_table(judgement.series)).rows:
        yield from section(told.title, plain(told))
    named = [(shown(name), text(shown(value))) for name, value in measured_with(judgement)]
    yield from section("Measured with", grid(named, "dim"))


def _coloured(judged: Table) -> "RenderableType":
    """Its last column is the state."""
    drawn = table(judged.columns[0], *judged.columns[1:], figures=judged.numeric)
    for *figures, state in judged.rows:
        end = text(state.text, _STATES.get(state.text, CAUTION))
        drawn.add_row(*(text(entry.text) for entry in figures), end)
    return drawn


def as_json(judgement: Judgement) -> str:
    """The record of the night and of each series, as they are; what is no finite number is null."""
    document = {
        "verdict": judgement.verdict,
        "headline": headline(judgement),
        "night": asdict(judgement.night),
        "series": [asdict(judged) for judged in judgement.series],
    }
    return json.dumps(_finite(document), indent=2, allow_nan=False) + "\n"


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list | tuple) else value
