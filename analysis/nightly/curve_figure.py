"""The chart of one series over the nights: wide with all that is known, or small with what stands out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from analysis import svg, words
from analysis.marks import Key
from analysis.nightly import curve_axes, curve_labels, curve_marks
from analysis.nightly.course import Begun, Course, Curve, Seen, segments_begun, shifts_begun, versions_changed
from analysis.nightly.curve_axes import DAY_S, Days, Look, Scale
from analysis.nightly.curve_elements import BESIDE, elements
from analysis.nightly.curve_marks import Form, Mark
from analysis.nightly.figures import bare, change_between, figure
from analysis.nightly.trend_series import short_title, title
from analysis.plots import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SMALL = Look(width=290, left=50, plot=76, dates=3, values=3)
_WIDE = Look(width=svg.WHOLE, left=58, plot=170, dates=10, values=5)
_STANDS_OUT = (Form.BREACH, Form.AGAIN, Form.ALARM)
_NEAREST_TICKS = 4  # user units between two versions
_NEAREST_BOUNDS = 2  # user units; the band moves too slowly for more


@dataclass(frozen=True, slots=True)
class _Chart:
    curve: Curve
    look: Look
    days: Days
    scale: Scale
    begun: Sequence[Begun]
    marks: Sequence[Mark]
    versions: Sequence[Begun] = ()


def wide(course: Course, curve: Curve, id: str) -> Figure:
    """Every night with its text, and what began when."""
    begun, days = _begun(course, curve), curve_axes.days_of(course.nights, _WIDE)
    versions = _apart(versions_changed(course.nights), days)
    marks = (
        *curve_marks.of_values(curve),
        *curve_marks.of_lost(course.nights, curve.series),
        *curve_marks.of_levels(curve),
        *curve_marks.of_begun(begun),
        *curve_marks.of_versions(versions),
    )
    look = replace(_WIDE, lanes=curve_labels.lanes(curve_labels.labels(begun, days)))
    scale = curve_axes.scale_of(curve.seen)
    chart = _Chart(curve, look, days, scale, begun, marks, versions)
    return _figure(chart, id, title(curve.series), summary(course, curve), _keys(chart))


def small(course: Course, curve: Curve, id: str) -> Figure:
    """The line with its band; marks where something stands out, and on the last night."""
    begun, days, last = _begun(course, curve), curve_axes.days_of(course.nights, _SMALL), curve.last.night
    marks = (
        *(m for m in curve_marks.of_values(curve) if m.form in _STANDS_OUT or m.at == last.began_at),
        *curve_marks.of_levels(curve),
        *curve_marks.of_begun(begun),
    )
    chart = _Chart(curve, _SMALL, days, curve_axes.scale_of(curve.seen), begun, marks)
    return _figure(chart, id, short_title(curve.series), summary(course, curve))


def _begun(course: Course, curve: Curve) -> list[Begun]:
    both = [*segments_begun(course.nights), *shifts_begun(course, curve.series)]
    return sorted(both, key=lambda one: one.night.began_at)


def _apart(changed: Sequence[Begun], days: Days) -> list[Begun]:
    kept = curve_axes.apart([days.place(one.night) for one in changed], _NEAREST_TICKS)
    return [one for one, keep in zip(changed, kept, strict=True) if keep]


def _keys(chart: _Chart) -> tuple[Key, ...]:
    band = any(one.bound is not None for one in chart.curve.seen)
    return (*curve_marks.keys_of(chart.marks), *(curve_marks.BAND_KEYS if band else ()))


def summary(course: Course, curve: Curve) -> str:
    """The last night against what was expected of it, and what stood out in the others."""
    last, series = curve.last, curve.series
    is_last = last.night.id == course.nights[-1].id
    night = "Last night" if is_last else f"On {words.moment(last.night.began_at)}"
    said = f"{night} {figure(series, last.value)}"
    if last.bound is not None:
        said += (
            f", {change_between(series, last.bound.centre, last.value)} against the"
            f" {figure(series, last.bound.centre)} expected from {words.count(last.bound.nights, 'night')};"
            f" below {figure(series, last.bound.lowest)} is a breach"
        )
    return f"{said}{'; alarm' if last.alarm else ''}. {_counted(curve)}".strip()


def _counted(curve: Curve) -> str:
    breaches = sum(one.breached for one in curve.seen)
    alarms = sum(one.alarm for one in curve.seen)
    told = [words.count(breaches, "breach", "breaches")] if breaches else []
    told += [words.count(alarms, "alarm")] if alarms else []
    return f"{words.listed(told)} in {words.count(len(curve.seen), 'night')}." if told else ""


def _figure(chart: _Chart, id: str, name: str, caption: str, keys: tuple[Key, ...] = ()) -> Figure:
    look, placed = chart.look, list[str]()

    def paint(axes: "Axes") -> None:
        _axes(axes, chart)
        _lines(axes, chart)
        if look.width == svg.WHOLE:
            _texts(axes, chart)
        placed.append(elements(axes, chart.marks, chart.scale, look))

    name, caption = words.clean(name), words.clean(caption)
    drawn = svg.draw(id, name, caption, paint, look.height, look.left, look.width)
    return Figure(id, name, caption, svg.with_marks(drawn, "".join(placed)), keys)


def _axes(axes: "Axes", chart: _Chart) -> None:
    curve_axes.value_scale(axes, chart.scale, partial(bare, chart.curve.series), chart.look)
    curve_axes.date_scale(axes, chart.days, chart.look.dates)
    before = min(0.5, 6 * chart.days.per_unit)  # a line between two stretches, not through a night
    for one in chart.begun:
        axes.axvline(one.night.began_at / DAY_S - before, color=svg.INK, lw=0.9, ls=(0, (2, 2)))


def _lines(axes: "Axes", chart: _Chart) -> None:
    for stretch in chart.curve.stretches:
        _band(axes, stretch, chart.days)
        days = [one.night.began_at / DAY_S for one in stretch]
        values = [chart.scale.within(one.value) for one in stretch]
        axes.plot(days, values, color=svg.SERIES[0], lw=1.1, alpha=0.75)
    for one in chart.curve.seen:
        if one.breached and one.again is not None:
            day = one.night.began_at / DAY_S
            ends = [chart.scale.within(value) for value in (one.value, one.again)]
            axes.plot([day, day + BESIDE * chart.days.per_unit], ends, color=svg.BAD, lw=1.4)


def _band(axes: "Axes", stretch: Sequence[Seen], days: Days) -> None:
    known = [(one.night, one.bound) for one in stretch if one.bound is not None]
    kept = curve_axes.apart([days.place(night) for night, _ in known], _NEAREST_BOUNDS)
    known = [pair for pair, keep in zip(known, kept, strict=True) if keep or pair is known[-1]]
    at = [night.began_at / DAY_S for night, _ in known]
    lowest, centres = [bound.lowest for _, bound in known], [bound.centre for _, bound in known]
    axes.fill_between(at, lowest, centres, color=svg.MUTED, alpha=0.16, lw=0)
    axes.plot(at, centres, color=svg.MUTED, lw=0.9)
    axes.plot(at, lowest, color=svg.BAD, lw=0.9, ls=(0, (3, 2)))


def _texts(axes: "Axes", chart: _Chart) -> None:
    curve_labels.say_what_began(axes, curve_labels.labels(chart.begun, chart.days))
    curve_labels.say_versions(axes, chart.versions, chart.days)
    curve_labels.say_values_beyond(axes, chart.curve, chart.scale, chart.days)
