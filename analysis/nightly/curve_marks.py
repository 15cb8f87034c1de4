"""What can be pointed at in a chart of nights: each mark with its place, its form and its text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from analysis.marks import Key
from analysis.nightly.course import Begun, Curve, Seen
from analysis.nightly.figures import figure
from analysis.nightly.trend_content import explanation
from analysis.words import moment
from results.nights import Night, NightVerdict


class Form(StrEnum):
    """Of a mark; its class in the style sheet."""

    NIGHT = "night"
    UNJUDGED = "unjudged"  # other settings, or too few nights
    BREACH = "breach"  # the first measurement is out
    AGAIN = "again"  # the rerun is not
    ALARM = "alarm"
    INVALID = "invalid"
    LEVEL = "level"
    SEGMENT = "segment"
    ACCEPTED = "accepted"
    VERSION = "version"


KEYS = {
    Form.NIGHT: Key("one night", "●", "--series-0"),
    Form.UNJUDGED: Key("not judged", "○", "--series-0"),
    Form.BREACH: Key("breach: the first measurement", "▽", "--bad"),
    Form.AGAIN: Key("its rerun, within", "◆", "--ink"),
    Form.ALARM: Key("alarm", "▼", "--bad"),
    Form.INVALID: Key("no figures", "×", "--bad"),
    Form.SEGMENT: Key("a new segment", "┇", "--ink"),
    Form.ACCEPTED: Key("accepted shift", "✓", "--good"),
    Form.VERSION: Key("another version", "│", "--muted"),
    Form.LEVEL: Key("change point, not judged", "△", "--series-3"),
}
BAND_KEYS = (Key("expected", "─", "--muted"), Key("below this is a breach", "╌", "--bad"))
_UNJUDGED = (NightVerdict.CONFIG_DRIFT, NightVerdict.INSUFFICIENT)


@dataclass(frozen=True, slots=True)
class Mark:
    form: Form
    at: float  # Unix time
    said: str
    value: float | None = None  # in the units of the series; None: its place is on the edge of the chart
    rerun: bool = False  # drawn beside the first measurement


def of_values(curve: Curve) -> list[Mark]:
    return [mark for one in curve.seen for mark in _of_night(curve.series, one)]


def _of_night(series: str, one: Seen) -> list[Mark]:
    at = one.night.began_at
    first = Mark(_form(one), at, night_text(series, one), one.value)
    if one.again is None or not one.breached:
        return [first]
    said = f"{moment(at)}: the rerun, {figure(series, one.again)}{'; alarm' if one.alarm else ''}"
    return [first, Mark(Form.ALARM if one.alarm else Form.AGAIN, at, said, one.again, rerun=True)]


def _form(one: Seen) -> Form:
    if one.breached and (one.again is not None or not one.alarm):
        return Form.BREACH
    if one.alarm:  # one that no rerun shows: a slow loss
        return Form.ALARM
    return Form.UNJUDGED if one.night.verdict in _UNJUDGED else Form.NIGHT


def night_text(series: str, one: Seen) -> str:
    """`2026-11-28 02:10 UTC: 1.310x, expected 1.600x, lowest 1.550x; breach, rerun 1.312x, alarm`."""
    figures = [figure(series, one.value)]
    if one.bound is not None:
        figures.append(f"expected {figure(series, one.bound.centre)}")
        figures.append(f"lowest {figure(series, one.bound.lowest)}")
    events = [
        "breach" if one.breached else "",
        f"rerun {figure(series, one.again)}" if one.breached and one.again is not None else "",
        "alarm" if one.alarm else "",
        "other settings than before" if one.night.verdict is NightVerdict.CONFIG_DRIFT else "",
    ]
    parts = [", ".join(filter(None, part)) for part in (figures, events)]
    return f"{moment(one.night.began_at)}: {'; '.join(filter(None, parts))}"


def of_lost(nights: Iterable[Night], series: str) -> list[Mark]:
    """Nights that a fault left without a figure: those of the pinned configuration are alarms."""
    lost = [n for n in nights if series not in n.values and _has_fault(n)]
    return [
        Mark(_form_of_lost(n), n.began_at, f"{moment(n.began_at)}: no figures. {explanation(n)}")
        for n in lost
    ]


def _has_fault(night: Night) -> bool:
    return night.failure is not None or night.verdict is NightVerdict.INVALID


def _form_of_lost(night: Night) -> Form:
    return Form.ALARM if night.verdict is NightVerdict.REGRESSION else Form.INVALID


def of_levels(curve: Curve) -> list[Mark]:
    said = "another level seems to begin here; no verdict rests on it"
    return [
        Mark(Form.LEVEL, one.night.began_at, f"{moment(one.night.began_at)}: {said}") for one in curve.levels
    ]


def of_begun(begun: Iterable[Begun]) -> list[Mark]:
    marks = []
    for one in begun:
        form, said = (Form.ACCEPTED, "accepted shift") if one.accepted else (Form.SEGMENT, "a new segment")
        at = one.night.began_at
        marks.append(Mark(form, at, f"{moment(at)}: {said}, {one.what}"))
    return marks


def of_versions(changed: Iterable[Begun]) -> list[Mark]:
    nights = [(one.night.began_at, one.what) for one in changed]
    return [Mark(Form.VERSION, at, f"{moment(at)}: {what}") for at, what in nights]


def keys_of(marks: Sequence[Mark]) -> tuple[Key, ...]:
    there = {mark.form for mark in marks}
    return tuple(key for form, key in KEYS.items() if form in there)
