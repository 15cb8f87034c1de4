"""The tables of the trend page."""

from collections.abc import Sequence

from analysis import words
from analysis.nightly.course import (
    Begun,
    Course,
    Curve,
    Seen,
    segments_begun,
    shifts,
    versions_changed,
)
from analysis.nightly.figures import change_between, figure
from analysis.nightly.trend_content import SAID, explanation, since_said
from analysis.nightly.trend_series import short_title, title
from analysis.tables import Entry, Table
from results.nights import SPEED_UP, Night


def verdicts(found: Sequence[Course]) -> Table:
    """The last night of each pin and machine."""
    columns = ("Pin", "Machine", "Verdict", "Since", "Speed-up", "What it says")
    rows = [_verdict_row(course) for course in found if course.nights]
    return Table("verdicts", "Last night of each", columns, tuple(rows))


def _verdict_row(course: Course) -> tuple[Entry, ...]:
    last = course.nights[-1]
    return (
        Entry(course.pin),
        Entry(course.machine),
        Entry(SAID[last.verdict]),
        Entry(since_said(course)),
        value(SPEED_UP, last.values.get(SPEED_UP)),
        Entry(explanation(last)),
    )


def moment(night: Night) -> Entry:
    return Entry(words.moment(night.began_at), night.began_at)


def value(series: str, known: float | None) -> Entry:
    return Entry("") if known is None else Entry(figure(series, known), known)


def _count(number: int) -> Entry:
    return Entry(str(number), number)


def nights(course: Course) -> Table:
    columns = ("Night", "Verdict", "Speed-up", "Rerun", "Engine", "Failure", "Explanation")
    rows = tuple(_night_row(night) for night in reversed(course.nights))
    return Table("nights", f"{words.count(len(rows), 'night')}, newest first", columns, rows)


def _night_row(night: Night) -> tuple[Entry, ...]:
    again = night.again.get(SPEED_UP)
    return (
        moment(night),
        Entry(SAID[night.verdict]),
        value(SPEED_UP, night.values.get(SPEED_UP)),
        value(SPEED_UP, again) if again is not None else Entry("yes" if night.again else ""),
        Entry(night.versions.get("engine", ""), code=True),
        Entry(night.failure.reason.value if night.failure is not None else ""),
        Entry(explanation(night)),
    )


def of_curve(curve: Curve) -> Table:
    """What its chart shows, night by night."""
    columns = ("Night", "Measured", "Rerun", "Expected", "Lowest", "What it is")
    rows = tuple(_seen_row(curve.series, one) for one in reversed(curve.seen))
    return Table("curve", f"{title(curve.series)}, night by night", columns, rows)


def _seen_row(series: str, one: Seen) -> tuple[Entry, ...]:
    event = "alarm" if one.alarm else "breach" if one.breached else ""
    return (
        moment(one.night),
        value(series, one.value),
        value(series, one.again),
        *_bounds(series, one),
        Entry(event or ("not compared" if one.bound is None else "within")),
    )


def _bounds(series: str, one: Seen) -> tuple[Entry, Entry]:
    """Expected, lowest."""
    if one.bound is None:
        return Entry(""), Entry("")
    return value(series, one.bound.centre), value(series, one.bound.lowest)


def of_family(name: str, curves: Sequence[Curve]) -> Table:
    """The last night of each series that is drawn small."""
    counts = ("Nights", "Breaches", "Alarms")
    columns = ("Series", "Last", "Expected", "Lowest", "Change", *counts)
    rows = tuple((Entry(short_title(c.series)), *_series_row(c)) for c in curves)
    return Table("series", f"{name}: the last night of each", columns, rows, frozenset(counts))


def of_all(name: str, curves: Sequence[Curve]) -> Table:
    """The last night of every series of a course."""
    shown = of_family(name, curves)
    rows = tuple((Entry(title(c.series)), *_series_row(c)) for c in curves)
    return Table(shown.id, shown.title, shown.columns, rows, shown.numeric)


def _series_row(curve: Curve) -> tuple[Entry, ...]:
    last, series = curve.last, curve.series
    change = "" if last.bound is None else change_between(series, last.bound.centre, last.value)
    order = last.value / last.bound.centre if last.bound is not None and last.bound.centre else None
    return (
        value(series, last.value),
        *_bounds(series, last),
        Entry(change, order),
        _count(len(curve.seen)),
        _count(sum(one.breached for one in curve.seen)),
        _count(sum(one.alarm for one in curve.seen)),
    )


def began(course: Course, overall: Sequence[Curve]) -> Table:
    """What the marks on the axes say, newest first; change points of the overall series alone."""
    found = [
        *((one, "segment", "") for one in segments_begun(course.nights)),
        *((one, "version", "") for one in versions_changed(course.nights)),
        *((Begun(night, a.reason, ""), "accepted shift", a.series) for a, night in shifts(course)),
        *((_level(curve, one), "change point", curve.series) for curve in overall for one in curve.levels),
    ]
    found.sort(key=lambda entry: -entry[0].night.began_at)
    rows = tuple(
        (
            moment(one.night),
            Entry(kind),
            Entry(title(of) if of not in ("", "all") else "all"),
            Entry(one.what),
        )
        for one, kind, of in found
    )
    columns = ("Night", "What began", "Series", "Which")
    return Table("began", f"What began when: {words.count(len(rows), 'event')}, newest first", columns, rows)


def _level(curve: Curve, one: Seen) -> Begun:
    return Begun(one.night, f"first night {figure(curve.series, one.value)}", "")


def false_alarms(found: Sequence[Course]) -> Table:
    """What the gate said of nights in which there was nothing to find."""
    counts = ("A/A nights", "With a breach", "With an alarm")
    columns = ("Pin", "Machine", *counts)
    rows = tuple(_aa_row(course) for course in found if course.aa)
    return Table("aa", "The gate's own false alarms", columns, rows, frozenset(counts))


def _aa_row(course: Course) -> tuple[Entry, ...]:
    measured = [night for night in course.aa if night.values]
    return (
        Entry(course.pin),
        Entry(course.machine),
        _count(len(measured)),
        _count(sum(bool(night.breached) for night in measured)),
        _count(sum(bool(night.alarms) for night in measured)),
    )
