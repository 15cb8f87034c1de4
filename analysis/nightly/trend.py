"""The nights of a history as a page, as Markdown, as CSV and as JSON."""

import csv as csv_format
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime

from analysis.nightly import trend_content, trend_page, trend_tables
from analysis.nightly.course import (
    Course,
    Curve,
    Seen,
    Trend,
    courses,
    last_good,
    segments_begun,
    shifts,
    since,
    versions_changed,
)
from analysis.nightly.trend_content import Drawn
from analysis.text_page import as_table, as_text
from results.nights import Night

__all__ = ["Trend", "as_json", "csv", "html", "markdown"]

SCHEMA = 1  # of the JSON document
_COLUMNS = (
    "pin",
    "machine",
    "night",
    "began_at",
    "verdict",
    "series",
    "value",
    "rerun",
    "expected",
    "lowest",
    "breach",
    "alarm",
    "stretch",
)


def html(trend: Trend) -> str:
    """One page that loads nothing, of at least one night."""
    return trend_page.page(trend)


def markdown(trend: Trend) -> str:
    """The verdicts, the last night of each series, and what began when."""
    found = courses(trend)
    parts = [
        f"# Nightly gate: {as_text(trend_content.headline(found))}",
        as_table(trend_tables.verdicts(found)),
    ]
    for one in trend_content.drawn(found):
        parts += [
            as_table(trend_tables.of_all(as_text(one.course.name), one.curves)),
            as_table(trend_tables.began(one.course, one.overall)),
        ]
    parts.append(as_table(trend_tables.false_alarms(found)))
    return "\n\n".join(filter(None, parts)) + "\n"


def csv(trend: Trend) -> str:
    """One row per night and series, oldest first; nights without figures have no row."""
    written = io.StringIO()
    writer = csv_format.writer(written, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for one in trend_content.drawn(courses(trend)):
        for curve in one.curves:
            writer.writerows(_rows(one.course, curve))
    return written.getvalue()


def _rows(course: Course, curve: Curve) -> Iterator[tuple[object, ...]]:
    for number, stretch in enumerate(curve.stretches):
        for seen in stretch:
            night, bound = seen.night, seen.bound
            yield (
                *(course.pin, course.machine, night.id, _iso(night), night.verdict.value),
                *(curve.series, seen.value, _or_empty(seen.again)),
                *(("", "") if bound is None else (bound.centre, bound.lowest)),
                *(int(seen.breached), int(seen.alarm), number),
            )


def _or_empty(value: float | None) -> object:
    return "" if value is None else value


def _iso(night: Night) -> str:
    return datetime.fromtimestamp(night.began_at, UTC).isoformat(timespec="seconds")


def as_json(trend: Trend) -> str:
    """The last night of each pin, machine and series for other programs; null where there is none."""
    found = trend_content.drawn(courses(trend))
    document = {"schema": SCHEMA, "courses": [_course(one) for one in found]}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _course(one: Drawn) -> dict[str, object]:
    course = one.course
    last = course.nights[-1]
    good = last_good(course)
    return {
        "pin": course.pin,
        "machine": course.machine,
        "nights": len(course.nights),
        "last": _night(last),
        "since": _iso(since(course)),
        "last_good": _iso(good) if good is not None else None,
        "series": [_series(curve) for curve in one.curves],
        "segments": [{"at": _iso(b.night), "what": b.what} for b in segments_begun(course.nights)],
        "versions": [{"at": _iso(b.night), "what": b.what} for b in versions_changed(course.nights)],
        "accepted": [{"at": _iso(n), "series": a.series, "reason": a.reason} for a, n in shifts(course)],
        "aa": {
            "nights": sum(bool(n.values) for n in course.aa),
            "breaches": sum(bool(n.breached) for n in course.aa),
            "alarms": sum(bool(n.alarms) for n in course.aa),
        },
    }


def _night(night: Night) -> dict[str, object]:
    return {
        "id": night.id,
        "began_at": _iso(night),
        "verdict": night.verdict.value,
        "failure": night.failure.reason.value if night.failure is not None else None,
        "said": list(night.said),
    }


def _series(curve: Curve) -> dict[str, object]:
    return {
        "series": curve.series,
        "nights": len(curve.seen),
        "last": _seen(curve.last),
        "breaches": [_iso(seen.night) for seen in curve.seen if seen.breached],
        "alarms": [_iso(seen.night) for seen in curve.seen if seen.alarm],
        "change_points": [_iso(seen.night) for seen in curve.levels],
    }


def _seen(seen: Seen) -> dict[str, object]:
    bound = seen.bound
    return {
        "at": _iso(seen.night),
        "value": seen.value,
        "rerun": seen.again,
        "expected": bound.centre if bound is not None else None,
        "lowest": bound.lowest if bound is not None else None,
    }
