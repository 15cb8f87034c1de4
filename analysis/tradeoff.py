"""Throughput against latency: the front as a figure, as a table, and for other programs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from analysis import places, svg, words
from analysis.findings import valid
from analysis.marks import Key
from analysis.pareto import Choice, choices, front, latency_of
from analysis.plots import Figure
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table
from results.records import Phase

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Throughput against latency"
_FIGURE = "What can be had of both"
_HEIGHT = 320  # user units
_FEWEST = 3  # choices to draw, the baseline among them
_NORMALISED = (
    "Both figures are geometric means over the Cells. A machine drifts, so each configuration has its ratio "
    "to the baseline of the same Blocks, times what the baseline reaches in the median Block."
)
_ON_FRONT = (
    "On the front: no other configuration that keeps the limits is at least as good in both figures and "
    "better in one. A search estimate is one Block, and the best of many is partly luck."
)


def table(report: ReportInput) -> Table:
    """Every choice, those on the front first; no rows where there is no choice."""
    found = choices(report)
    best = front(found)
    ordered = [*best, *sorted((c for c in found if c not in best), key=lambda c: -c.tokens_per_s)]
    limited = ("Keeps the limits",) if report.limits else ()
    latency = words.latency_name(latency_of(report))
    columns = ("Trial", "Configuration", "Tokens/s", latency, "On the front", *limited, "Known from")
    rows = [_row(choice, choice in best, bool(limited)) for choice in ordered if len(found) > 1]
    of_confirmation = [b for b in valid(report.blocks) if b.phase is Phase.CONFIRM]
    note = f"{_ON_FRONT} {_NORMALISED} {places.only_of(of_confirmation or valid(report.blocks))}".strip()
    return Table("front", TITLE, columns, tuple(rows), frozenset(columns[2:4]), note)


def _row(choice: Choice, is_best: bool, limited: bool) -> tuple[Entry, ...]:
    where = "the confirmation" if choice.confirmed else "the search"
    keeps = (Entry(f"no: {choice.breaks}" if choice.breaks else "yes"),) if limited else ()
    return (
        Entry("baseline") if choice.trial is None else Entry(_called(choice), choice.trial),
        Entry(choice.label, code=True),
        Entry(f"{choice.tokens_per_s:.1f}", choice.tokens_per_s),
        Entry(words.short_time(choice.latency_s), choice.latency_s),
        Entry("yes" if is_best else "no"),
        *keeps,
        Entry(f"{words.count(choice.blocks, 'Block')} of {where}"),
    )


def as_records(report: ReportInput) -> list[dict[str, object]]:
    """The choices for other programs."""
    found = choices(report)
    best = front(found)
    return [{**asdict(choice), "latency": latency_of(report), "on_front": choice in best} for choice in found]


def figure(report: ReportInput) -> Figure | None:
    found = choices(report)
    if len(found) < _FEWEST:
        return None
    best = front(found)

    def paint(axes: "Axes") -> None:
        from matplotlib.ticker import MaxNLocator

        latencies_s, speeds = [c.latency_s for c in best], [c.tokens_per_s for c in best]
        axes.plot(latencies_s, speeds, color=svg.INK, lw=1.4, drawstyle="steps-post")
        for choice in found:
            _mark(axes, choice)
            if choice.is_baseline or choice in best:
                _name(axes, choice)
        axes.margins(x=0.14, y=0.14)
        axes.grid(visible=True)
        axes.xaxis.set_major_formatter(lambda value, _: words.short_time(value))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel(f"{words.latency_name(latency_of(report))}: further left is quicker")
        axes.text(-0.1, 1.045, "tokens/s", transform=axes.transAxes, color=svg.MUTED)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4))

    caption = words.clean(_caption(found, best, latency_of(report)))
    drawn = svg.draw("figure-front", _FIGURE, caption, paint, _HEIGHT)
    return Figure("front", _FIGURE, caption, drawn, _keys(found, bool(best), bool(report.limits)))


def _mark(axes: "Axes", choice: Choice) -> None:
    """By shape: round keeps the limits, a cross breaks one, the baseline is square. Hollow = an estimate."""
    colour = svg.BAD if choice.breaks else svg.INK if choice.is_baseline else svg.SERIES[0]
    kept, broken = ("s", "X") if choice.is_baseline else ("o", "x")
    shape, face = broken if choice.breaks else kept, colour if choice.confirmed else svg.PAPER
    axes.plot(choice.latency_s, choice.tokens_per_s, shape, ms=7, mfc=face, mec=colour, mew=1.5)


def _name(axes: "Axes", choice: Choice) -> None:
    text = f"{_called(choice)}{', breaks a limit' if choice.breaks else ''}".removeprefix("the ")
    place = (choice.latency_s, choice.tokens_per_s)
    axes.annotate(text, place, (7, 5), textcoords="offset points", color=svg.INK, fontsize=11)


def _keys(found: Sequence[Choice], has_front: bool, limited: bool) -> tuple[Key, ...]:
    """What is in the picture, in words."""
    keeps = "keeps the limits, " if limited else ""
    ours = [c for c in found if not c.is_baseline]
    kept = [c for c in ours if not c.breaks]
    keys = {
        Key("the front", "━", "--ink"): has_front,
        Key("baseline", "✖", "--bad") if found[0].breaks else Key("baseline", "■", "--ink"): True,
        Key(f"{keeps}confirmed", "●", "--series-0"): any(c.confirmed for c in kept),
        Key(f"{keeps}search estimate", "○", "--series-0"): any(not c.confirmed for c in kept),
        Key("breaks a limit", "✕", "--bad"): any(c.breaks for c in ours),
    }
    return tuple(key for key, is_there in keys.items() if is_there)


def _caption(found: Sequence[Choice], best: Sequence[Choice], latency: str) -> str:
    broken = sum(bool(c.breaks) for c in found)
    they = "breaks a limit and is" if broken == 1 else "break a limit and are"
    lost = f"; {broken} of {len(found)} {they} on no front" if broken else ""
    if not best:
        return f"None of {len(found)} configurations keeps the limits."
    ends = [f"{words.short_time(c.latency_s)} at {c.tokens_per_s:.1f} tokens/s ({_called(c)})" for c in best]
    span = f"from {ends[0]} to {ends[-1]}" if len(best) > 1 else ends[0]
    share = f"{len(best)} of {words.count(len(found), 'configuration')}"
    verb = "is" if len(best) == 1 else "are"
    guessed = sum(not c.confirmed for c in best)
    estimates = f", {guessed} of them by a search estimate" if guessed else ""
    return f"{share} {verb} on the front of {words.latency_name(latency)}{estimates}: {span}{lost}."


def _called(choice: Choice) -> str:
    return "the baseline" if choice.is_baseline else f"#{choice.trial}"
