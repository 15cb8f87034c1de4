"""With which earlier nights a night is compared, and what was different before."""

import math
from collections.abc import Iterable, Mapping, Sequence

from analysis.nightly.scale import is_judged, is_usable, on_scale
from analysis.words import UNKNOWN
from results.nights import Accepted, Night, NightVerdict

MOST_NIGHTS = 30  # older ones tell of another time


def of_the_same(history: Iterable[Night], tonight: Night) -> list[Night]:
    """Other nights of the same pin, kind and machine, by time; a record merged twice counts once."""
    same = {
        night.id: night
        for night in history
        if (night.machine, night.pin, night.kind) == (tonight.machine, tonight.pin, tonight.kind)
        and night.id != tonight.id
    }
    return sorted(same.values(), key=lambda night: (night.began_at, night.id))


def earlier(history: Iterable[Night], tonight: Night) -> list[Night]:
    """Those of them that began before it."""
    return [night for night in of_the_same(history, tonight) if night.began_at < tonight.began_at]


def segment(history: Iterable[Night], tonight: Night) -> list[Night]:
    """Earlier nights that were measured under the same conditions with the same effective settings.

    They need not follow each other: who goes back to the old driver is compared with the nights under it.
    """
    return [night for night in earlier(history, tonight) if is_comparable(night, tonight)]


def is_comparable(night: Night, tonight: Night) -> bool:
    """Whether figures of another night of the same pin, kind and machine say what to expect of this one."""
    same_settings = not _told_otherwise(night, tonight)
    return _measured(night) and night.segment == tonight.segment and same_settings


def reference(
    nights: Iterable[Night], tonight: Night, series: str, accepted: Sequence[Accepted] = ()
) -> list[float]:
    """What the series was in the nights of a segment since its last accepted shift: places on its scale.

    Nights in which it was an alarm do not count: they are what the reference must not get used to. Those
    that an accepted shift begins with do: they are what was accepted.
    """
    since_at = _since_at(series, tonight, accepted)
    counted, is_accepted = [], math.isfinite(since_at)
    for night in (n for n in nights if n.began_at >= since_at):
        is_accepted = is_accepted and series in night.alarms
        if is_accepted or series not in night.alarms:
            counted.append(settled(night, series))
    return [on_scale(series, value) for value in counted if value is not None and is_usable(series, value)]


def settled(night: Night, series: str) -> float | None:
    """The figure that stands for the night: its rerun where that did not confirm a breach.

    One measurement like that of any other night: the outlier would widen every later interval.
    """
    taken_back = series in night.breached and series not in night.alarms and series in night.again
    return night.again[series] if taken_back else night.values.get(series)


def changed_segment(history: Iterable[Night], tonight: Night) -> Mapping[str, tuple[str, str]]:
    """What began a new segment: condition -> before and tonight, against the last measured night.

    A condition that one of them did not tell is "unknown" there. Empty without such a night.
    """
    before = last_measured(history, tonight)
    changed = _changed(before.segment, tonight.segment) if before is not None else {}
    return {name: (was or UNKNOWN, now or UNKNOWN) for name, (was, now) in changed.items()}


def drift(history: Iterable[Night], tonight: Night) -> Mapping[str, tuple[str, str]]:
    """Settings that the servers run with other than in the last measured night: before and tonight.

    Empty without such a night.
    """
    before = last_measured(history, tonight)
    return _told_otherwise(before, tonight) if before is not None else {}


def lost(history: Iterable[Night], tonight: Night) -> tuple[str, ...]:
    """Judged series that the last measured night has and tonight has not, though it was measured."""
    before = last_measured(history, tonight) if tonight.failure is None else None
    return tuple(s for s in before.values if is_judged(s) and s not in tonight.values) if before else ()


def last_measured(history: Iterable[Night], tonight: Night) -> Night | None:
    """The last night before this one of the same pin, kind and machine that has figures."""
    return next((night for night in reversed(earlier(history, tonight)) if _measured(night)), None)


def _measured(night: Night) -> bool:
    """A night with a fault has settings and figures in part at best."""
    return night.failure is None and night.verdict is not NightVerdict.INVALID


def _since_at(series: str, tonight: Night, accepted: Sequence[Accepted]) -> float:
    return max(
        (
            shift.since_at
            for shift in accepted
            if shift.since_at <= tonight.began_at
            and shift.series in (series, "all")
            and shift.machine in (tonight.machine, "all")
        ),
        default=float("-inf"),
    )


def _told_otherwise(night: Night, tonight: Night) -> dict[str, tuple[str, str]]:
    """Settings that both nights told, and not alike.

    What one alone told is no other configuration: a new version of an engine has new settings at rest, and
    what it makes slower is to be found, not to be passed over.
    """
    before, now = night.effective, tonight.effective
    return {
        name: (before[name], now[name])
        for name in sorted(before.keys() & now.keys())
        if before[name] != now[name]
    }


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    names = sorted(before.keys() | now.keys())
    return {n: (before.get(n), now.get(n)) for n in names if before.get(n) != now.get(n)}
