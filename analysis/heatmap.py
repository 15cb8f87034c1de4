"""The load map as a table coloured like a heat map: every field says in words what its colour means."""

import math
from collections.abc import Mapping, Sequence

from analysis import words
from analysis.crossover import all_sentences
from analysis.labels import short_labels
from analysis.loadmap import CellAnswer, LoadMap, State, load_map
from analysis.map_tables import (
    OFF,
    compromise_sentence,
    has_lengths,
    paces_of,
    rows_of,
    state_word,
)
from analysis.markup import paragraph, text
from analysis.report_input import ReportInput

_SYMBOLS = {
    State.FASTER: "▲",
    State.SLOWER: "▼",
    State.SAME: "=",
    State.UNDECIDED: "?",
    State.SEARCHED: "~",
    State.LIMITED: "⊘",
    State.UNKNOWN: "–",
}
_MEANINGS = {
    State.FASTER: "the whole interval is above the baseline",
    State.SAME: "the interval lies within the margin called the same",
    State.SLOWER: "every finalist lies below the baseline: leave speculation off here",
    State.UNDECIDED: "the interval does not settle it",
    State.SEARCHED: "of the search, not confirmed: no winner",
    State.LIMITED: "a server could not admit the load, so there is no number",
    State.UNKNOWN: "nothing valid was measured",
}
_FULL = math.log(1.6)  # the speed-up, or its inverse, of the strongest colour


def heat_map(report: ReportInput) -> str:
    """The map with its legend and what one sees in it; empty where there is no map."""
    drawn = load_map(report)
    if drawn is None:
        return ""
    seen = "".join(f"<li>{text(sentence)}</li>" for sentence in all_sentences(drawn))
    return (
        f"{paragraph(compromise_sentence(drawn))}{_table(drawn, report)}{_legend(drawn, report.objective)}"
        f"{f'<h3>Where speculation pays</h3><ul>{seen}</ul>' if seen else ''}"
    )


def _table(drawn: LoadMap, report: ReportInput) -> str:
    names, paces = short_labels(drawn.points), paces_of(drawn)
    lengths = has_lengths(drawn)
    heads = ("Class", *(["Prompts"] if lengths else []), *paces)
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in heads)
    rows = rows_of(drawn)
    body, earlier = "", ""
    for (name, length), found in rows.items():
        of_class = sum(1 for other, _ in rows if other == name)
        first = f'<th scope="rowgroup" rowspan="{of_class}">{text(name)}</th>' if name != earlier else ""
        earlier = name
        second = f'<th scope="row">{text(length)}</th>' if lengths else ""
        fields = "".join(_field(found[p], names, report) if p in found else "<td></td>" for p in paces)
        body += f"<tr>{first}{second}{fields}</tr>"
    caption = f"Speed-up over {report.reference} and the best configuration, by class, prompts and load"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Load map">'
        f'<table class="heat"><caption>{text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _field(answer: CellAnswer, names: Mapping[str, str], report: ReportInput) -> str:
    word = state_word(answer.state, report.objective)
    css = f'class="{answer.state.name.lower()}{_direction(answer)}"'
    said = f'<span class="state">{_symbol(answer.state)} {text(word)}</span>'
    if answer.shown is None:
        return f'<td {css} title="{text(answer.limited)}">{said}</td>'
    number = words.times(answer.shown.log_speedup)
    name = names[answer.shown.point.key]
    which = name if answer.best is not None else f"{OFF}; closest: {name}"
    weight = "" if answer.weight else '<span class="which">not counted</span>'
    return (
        f'<td {css} style="--strength:{_strength(answer.shown.log_speedup)}%"'
        f' title="{text(answer.shown.point.label)}"><strong>{number}</strong>{said}'
        f'<span class="which">{text(which)}</span>{weight}</td>'
    )


def _direction(answer: CellAnswer) -> str:
    if answer.shown is None or answer.state in (State.SAME, State.UNDECIDED):
        return ""
    return " above" if answer.shown.log_speedup > 0 else " below"


def _strength(log_speedup: float) -> int:
    """Share of the colour in the field, in percent: text stays readable on the strongest."""
    return round(12 + 38 * min(1.0, abs(log_speedup) / _FULL))


def _symbol(state: State) -> str:
    return f'<span aria-hidden="true">{_SYMBOLS[state]}</span>'


def _legend(drawn: LoadMap, objective: str) -> str:
    """Only of the states that are there."""
    there: Sequence[State] = [s for s in State if any(a.state is s for a in drawn.cells)]
    items = "".join(
        f"<li>{_symbol(s)} {text(state_word(s, objective))}: {text(_MEANINGS[s])}</li>" for s in there
    )
    return f'<ul class="heat-keys">{items}</ul>'
