"""The verdict of a night in words, and its table: the same in a terminal, in Markdown and in JUnit."""

from collections.abc import Sequence

from analysis.nightly.figures import bare, change, failed, figure, is_share, name_of, unit_of, worst_first
from analysis.nightly.judgement import Judged, Judgement, State
from analysis.tables import Entry, Table
from analysis.words import count, moment
from results.nights import SPEED_UP, NightKind, NightVerdict

_COLUMNS = ("series", "tonight", "rerun", "expected", "lowest", "change", "nights", "state")
_FIGURES = frozenset(_COLUMNS) - {"series", "state"}


def headline(judgement: Judgement) -> str:
    """What became of the night, for somebody who reads nothing else."""
    said = {
        NightVerdict.PASS: _passed,
        NightVerdict.REGRESSION: _regression,
        NightVerdict.INSUFFICIENT: _insufficient,
        NightVerdict.CONFIG_DRIFT: _drift,
        NightVerdict.INVALID: _invalid,
    }
    return said[judgement.verdict](judgement)


def _passed(judgement: Judgement) -> str:
    ratio = speed_up(judgement)
    if judgement.night.kind is NightKind.AA:
        return "Passed: the gate tells no difference between the baseline and itself"
    if ratio is None:
        return "Passed: nothing got worse"
    return f"Passed: {figure(SPEED_UP, ratio.value)} the speed of the baseline, nothing got worse"


def _regression(judgement: Judgement) -> str:
    night, down = judgement.night, failed(judgement.series)
    if night.kind is NightKind.AA:
        return "False alarm: the gate tells a difference between the baseline and itself"
    if night.failure is not None:
        return "Regression: the pinned configuration is broken"
    if not down:
        return "Regression"
    worst = _most_telling(down)
    more = f", and {count(len(down) - 1, 'more series', 'more series')}" if len(down) > 1 else ""
    if worst.state is State.LEAK:
        return f"Regression: {name_of(worst.series)} is lost slowly over the nights{more}"
    expected, now = figure(worst.series, worst.expected), figure(worst.series, worst.value)
    return f"Regression: {name_of(worst.series)} fell from {expected} to {now}{more}"


def _most_telling(down: Sequence[Judged]) -> Judged:
    """The speed-up over all Cells, if it failed; else the worst."""
    return next((j for j in down if j.series == SPEED_UP and j.state is State.REGRESSION), down[0])


def _insufficient(judgement: Judgement) -> str:
    ratio = speed_up(judgement)
    said = "Not judged yet: too few nights to compare with"
    return f"{said}; tonight {figure(SPEED_UP, ratio.value)} the speed of the baseline" if ratio else said


def _drift(judgement: Judgement) -> str:
    return "Not comparable: the server ran with other settings than in the nights before"


def _invalid(judgement: Judgement) -> str:
    if judgement.series:
        return "Not judged: not everything could be measured"
    return "Not measured: nothing is known of tonight"


def speed_up(judgement: Judgement) -> Judged | None:
    """Over all Cells."""
    return next((j for j in judgement.series if j.series == SPEED_UP), None)


def judged_table(series: Sequence[Judged]) -> Table:
    """What was judged, worst first; without the columns that nothing stands in. The last is the state."""
    rows = [_row(j) for j in worst_first(series) if j.state is not State.TOLD]
    used = [column for column in _COLUMNS if any(row[column] for row in rows)]
    entries = tuple(tuple(Entry(row[column]) for column in used) for row in rows)
    return Table("judged", "Judged", tuple(used), entries, _FIGURES)


def _row(judged: Judged) -> dict[str, str]:
    """Units stand with the name: the figures below each other are narrow."""
    series, unit = judged.series, unit_of(judged.series)
    figures = (judged.value, judged.again, judged.expected, judged.lowest)
    return {
        "series": f"{name_of(series)} ({unit})" if unit else name_of(series),
        **dict(
            zip(("tonight", "rerun", "expected", "lowest"), (bare(series, v) for v in figures), strict=True)
        ),
        "change": _change(judged),
        "nights": str(judged.nights),
        "state": state(judged),
    }


def _change(judged: Judged) -> str:
    if judged.expected is not None and is_share(judged.series):
        return f"{judged.value - judged.expected:+.3f}"
    return change(judged)


def state(judged: Judged) -> str:
    """`PASS`, `PASS, warning`, `INSUFFICIENT`."""
    return f"{judged.state}, warning" if judged.warning and judged.state is not State.LEAK else judged.state


def told_table(series: Sequence[Judged]) -> Table:
    """What is shown and never judged."""
    told = [j for j in series if j.state is State.TOLD]
    rows = tuple((Entry(name_of(j.series)), Entry(figure(j.series, j.value))) for j in told)
    return Table("told", "Told, not judged", ("series", "tonight"), rows, _FIGURES)


def measured_with(judgement: Judgement) -> list[tuple[str, str]]:
    """Who measured what, when, and with which software."""
    night = judgement.night
    of = (
        "pinned configuration against baseline"
        if night.kind is NightKind.CHECK
        else "baseline against itself"
    )
    return [
        ("pin", night.pin),
        ("machine", night.machine),
        ("when", f"{moment(night.began_at)}, {count(night.blocks, 'Block')}, {of}"),
        *{**night.versions, **night.segment}.items(),
    ]
