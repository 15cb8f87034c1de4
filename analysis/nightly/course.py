"""The nights of one pin on one machine, and each of their series as the trend page draws it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, nan

from analysis.nightly.bounds import Bound, all_bounds
from analysis.nightly.change_points import change_points
from analysis.nightly.changed import differences, settings
from results.nights import Accepted, Night, NightKind, NightVerdict


@dataclass(frozen=True, slots=True)
class Trend:
    """A history, in any order, and what was accepted of it."""

    nights: Sequence[Night]
    accepted: Sequence[Accepted] = ()


@dataclass(frozen=True, slots=True)
class Course:
    """One pin on one machine, oldest night first."""

    pin: str
    machine: str
    nights: tuple[Night, ...]  # of the pinned winner
    aa: tuple[Night, ...]  # of the baseline against itself
    accepted: tuple[Accepted, ...]  # for this machine

    @property
    def name(self) -> str:
        return f"{self.pin} on {self.machine}"


@dataclass(frozen=True, slots=True)
class Begun:
    """Something that began with a night."""

    night: Night
    what: str  # driver 570.86 -> 580.65, gpu H100 -> H200
    brief: str  # to stand in a chart
    accepted: bool = False  # by a committed line; else by itself


@dataclass(frozen=True, slots=True)
class Seen:
    """One series in one night."""

    night: Night
    value: float
    again: float | None
    bound: Bound | None
    breached: bool
    alarm: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """One series over the nights that have a figure of it."""

    series: str
    stretches: tuple[tuple[Seen, ...], ...]  # not empty; nights of one are compared with each other
    levels: tuple[Seen, ...]  # where a new level begins within a stretch

    @property
    def seen(self) -> tuple[Seen, ...]:
        return tuple(one for stretch in self.stretches for one in stretch)

    @property
    def last(self) -> Seen:
        return self.stretches[-1][-1]


def courses(trend: Trend) -> list[Course]:
    """One for each pin and machine; those whose last night is a regression first, then by name."""
    in_order = sorted(trend.nights, key=lambda n: (n.began_at, n.id))
    names = sorted({(night.pin, night.machine) for night in in_order})
    found = [
        Course(
            pin,
            machine,
            _of(in_order, pin, machine, NightKind.CHECK),
            _of(in_order, pin, machine, NightKind.AA),
            tuple(a for a in trend.accepted if a.machine in ("all", machine)),
        )
        for pin, machine in names
    ]
    return sorted(found, key=lambda c: verdict_of(c) is not NightVerdict.REGRESSION)


def _of(nights: Sequence[Night], pin: str, machine: str, kind: NightKind) -> tuple[Night, ...]:
    return tuple(n for n in nights if (n.pin, n.machine, n.kind) == (pin, machine, kind))


def verdict_of(course: Course) -> NightVerdict | None:
    """Of the last night; None if only A/A nights are known."""
    return course.nights[-1].verdict if course.nights else None


def since(course: Course) -> Night:
    """The first of the unbroken run of nights that end with the last verdict."""
    first = course.nights[-1]
    for night in reversed(course.nights):
        if night.verdict is not first.verdict:
            break
        first = night
    return first


def last_good(course: Course) -> Night | None:
    return next((n for n in reversed(course.nights) if n.verdict is NightVerdict.PASS), None)


def series_in(nights: Sequence[Night]) -> list[str]:
    """Every series that some night has a figure of, in the order of their first night."""
    return list(dict.fromkeys(s for night in nights for s, value in night.values.items() if isfinite(value)))


def segments_begun(nights: Sequence[Night]) -> list[Begun]:
    """Nights not to be compared with the one before, and what differs; a night with a fault begins none."""
    found = []
    for before, after in _neighbours(nights):
        changed = [f"{name} {old} -> {new}" for name, old, new in differences(before.segment, after.segment)]
        if changed := [*changed, *settings(before, after)]:
            found.append(Begun(after, ", ".join(changed), changed[0]))
    return found


def versions_changed(nights: Sequence[Night]) -> list[Begun]:
    """Nights before which a version changed, unless that began a segment."""
    found = []
    for before, after in _neighbours(nights):
        changed = [c for c in differences(before.versions, after.versions) if c[0] not in after.segment]
        if changed:
            name, _, new = changed[0]
            what = ", ".join(f"{name} {old} -> {new}" for name, old, new in changed)
            found.append(Begun(after, what, f"{name} {new}"))
    return found


def _neighbours(nights: Sequence[Night]) -> Iterator[tuple[Night, Night]]:
    measured = [n for n in nights if n.failure is None and n.verdict is not NightVerdict.INVALID]
    return pairwise(measured)


def shifts(course: Course) -> list[tuple[Accepted, Night]]:
    """The accepted shifts, each with the night that it began with."""
    firsts = [next((n for n in course.nights if n.began_at >= a.since_at), None) for a in course.accepted]
    return [(a, n) for a, n in zip(course.accepted, firsts, strict=True) if n is not None]


def shifts_begun(course: Course, series: str) -> list[Begun]:
    """Nights that an accepted shift of this series began with."""
    of_it = [(one, night) for one, night in shifts(course) if one.series in ("all", series)]
    return [Begun(night, one.reason, one.reason, accepted=True) for one, night in of_it]


def curves(course: Course) -> tuple[Curve, ...]:
    """Of every series that some night has."""
    bounds = all_bounds(course.nights, course.accepted)
    unknown = [None] * len(course.nights)
    return tuple(_curve(course, name, bounds.get(name, unknown)) for name in series_in(course.nights))


def _curve(course: Course, series: str, bounds: Sequence[Bound | None]) -> Curve:
    firsts = {b.night.id for b in (*segments_begun(course.nights), *shifts_begun(course, series))}
    stretches: list[list[Seen]] = [[]]
    for night, bound in zip(course.nights, bounds, strict=True):
        if night.id in firsts:
            stretches.append([])
        if isfinite(night.values.get(series, nan)):
            stretches[-1].append(_seen(night, series, bound))
    drawn = tuple(tuple(stretch) for stretch in stretches if stretch)
    return Curve(series, drawn, tuple(one for stretch in drawn for one in _levels(stretch)))


def _seen(night: Night, series: str, bound: Bound | None) -> Seen:
    again = night.again.get(series)
    return Seen(night, night.values[series], again, bound, series in night.breached, series in night.alarms)


def _levels(stretch: Sequence[Seen]) -> list[Seen]:
    return [stretch[i] for i in change_points([one.value for one in stretch])]
