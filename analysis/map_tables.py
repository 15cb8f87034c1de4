"""The load map as tables: the grid for a terminal or Markdown, and one row for every Cell."""

import math
from collections.abc import Callable, Mapping

from analysis import words
from analysis.anchor import place_of
from analysis.labels import context_label, short_labels
from analysis.loadmap import CellAnswer, LoadMap, State, load_map
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table, effect_entry
from results.records import Point

OFF = "off"


def state_word(state: State, objective: str) -> str:
    """What is known of a Cell, e.g. `faster`; of an energy objective `more frugal`."""
    better, worse = words.signs(objective)
    return {
        State.FASTER: better,
        State.SLOWER: worse,
        State.SEARCHED: "one Block, optimistic",
    }.get(state, state.value)


def rows_of(drawn: LoadMap) -> dict[tuple[str, str], dict[str, CellAnswer]]:
    """(class, length in words) -> load -> what is known there: the map as a grid."""
    found: dict[tuple[str, str], dict[str, CellAnswer]] = {}
    for a in drawn.cells:
        length = context_label(a.cell).removeprefix("prompts ")
        found.setdefault((a.cell.workload_class, length), {})[a.cell.pace] = a
    return found


def paces_of(drawn: LoadMap) -> list[str]:
    """The columns of the grid."""
    return list(dict.fromkeys(a.cell.pace for a in drawn.cells))


def has_lengths(drawn: LoadMap) -> bool:
    """Whether a row must say how long its prompts are."""
    return any(a.cell.context_tokens is not None for a in drawn.cells)


def grid(report: ReportInput) -> Table:
    """Classes and lengths down, loads across; without rows where there is no map."""
    drawn = load_map(report)
    if drawn is None:
        return Table("load-map", "Load map", ("Class",), ())
    names, paces = short_labels(drawn.points), paces_of(drawn)
    lengths = has_lengths(drawn)
    rows = [
        (
            Entry(name),
            *([Entry(length)] if lengths else []),
            *(Entry(in_words(found[p], names, report.objective) if p in found else "") for p in paces),
        )
        for (name, length), found in rows_of(drawn).items()
    ]
    columns = ("Class", *(["Prompts"] if lengths else []), *paces)
    return Table("load-map", "Load map", columns, tuple(rows), note=compromise_sentence(drawn))


def in_words(answer: CellAnswer, names: Mapping[str, str], objective: str) -> str:
    """`1.46x faster, ngram-simple`; `off: the closest is 0.94x, slower`; never a number without its kind."""
    if answer.shown is None:
        return answer.state.value
    name, number = names[answer.shown.point.key], words.times(answer.shown.log_speedup)
    word = state_word(answer.state, objective)
    if answer.best is not None:
        return f"{number} {word}, {name}"
    return f"{OFF}; {name} {number}, {word}"


def per_cell(report: ReportInput) -> Table:
    """One row for every Cell; without rows where there is no map."""
    drawn = load_map(report)
    weighted = drawn is not None and len({a.weight for a in drawn.cells}) > 1
    columns = (
        "Cell",
        "Prompt tokens",
        "Best",
        "Answer",
        "Speed-up",
        "One for all",
        "Its loss",
        "Tokens/s",
        "TPOT p50",
        *(["Weight"] if weighted else []),
    )
    rows = [_row(a, report.objective, weighted) for a in drawn.cells] if drawn is not None else []
    numeric = frozenset({"Prompt tokens", "Tokens/s", "TPOT p50", "One for all", "Its loss", "Weight"})
    several = len(set(map(place_of, report.blocks))) > 1
    where = " of the place that measured most of them: those of several places do not average" * several
    note = f"Tokens/s and TPOT: baseline → configuration, medians over Blocks{where}."
    return Table("cells", "Every Cell", columns, tuple(rows), numeric, note)


def _row(a: CellAnswer, objective: str, weighted: bool) -> tuple[Entry, ...]:
    return (
        Entry(a.cell.label),
        Entry(words.UNKNOWN) if a.prompt_tokens is None else Entry(f"{a.prompt_tokens:.0f}", a.prompt_tokens),
        Entry(label_of(a.best) if a.shown or a.best else "", code=True),
        Entry(state_word(a.state, objective) + (f" ({words.clean(a.limited)})" if a.limited else "")),
        _speedup(a),
        Entry("", None) if a.compromise is None else Entry(words.times(a.compromise), a.compromise),
        Entry("", None) if a.loss is None else Entry(loss_percent(a.loss), a.loss),
        _both(a.baseline.tokens_per_s, a.figures.tokens_per_s, "{:.4g}".format),
        _both(a.baseline.tpot_s, a.figures.tpot_s, words.short_time),
        *([Entry(f"{a.weight:g}", a.weight)] if weighted else []),
    )


def _speedup(a: CellAnswer) -> Entry:
    if a.shown is None:
        return Entry(words.UNKNOWN)
    shown = effect_entry(a.shown.effect) if a.shown.effect else Entry(words.times(a.shown.log_speedup))
    if a.best is not None:
        return shown
    return Entry(f"{shown.text}, {a.shown.point.label}", shown.order, shown.interval)


def _both(baseline: float | None, ours: float | None, say: Callable[[float], str]) -> Entry:
    if baseline is None:
        return Entry(words.UNKNOWN)
    return Entry(say(baseline) if ours is None else f"{say(baseline)} → {say(ours)}", ours or baseline)


def label_of(point: Point | None) -> str:
    """A configuration in full, or `off`."""
    return point.label if point is not None else OFF


def loss_percent(loss: float) -> str:
    """How far behind: `12.0 %` of the best is lost."""
    return f"{-100 * math.expm1(-loss):.1f}\N{NO-BREAK SPACE}%"


def compromise_sentence(drawn: LoadMap) -> str:
    """The one configuration for all Cells, and what it costs not to choose for each."""
    known = [a for a in drawn.cells if a.loss is not None]
    which = "speculation off" if drawn.compromise is None else drawn.compromise.label
    origin = "" if drawn.confirmed else ", by search estimates alone"
    said = f"One configuration for all Cells, by their weights: {which}{origin}."
    worst = max(known, key=lambda a: a.loss or 0.0, default=None)
    if worst is None or drawn.gain is None:
        return said
    if not worst.loss:
        return f"{said} In no Cell {'is' if drawn.confirmed else 'was'} another one faster."
    best = f"{label_of(worst.best)} in {worst.cell.label}"
    return (
        f"{said} It is at most {loss_percent(worst.loss)} behind the best of a Cell ({best}); a choice for"
        f" every Cell would gain {words.signed_percent(drawn.gain).lstrip('+')} on the whole."
    )
