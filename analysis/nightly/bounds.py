"""The prediction interval of every night, from the nights before it: what the trend page draws."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from analysis.nightly.expectation import Expectation, expectations
from analysis.nightly.rule import references
from analysis.nightly.scale import group_of, is_judged, off_scale
from analysis.nightly.segments import MOST_NIGHTS
from results.nights import Accepted, Night

Bounds = dict[str, "Bound"]


@dataclass(frozen=True, slots=True)
class Bound:
    """The prediction interval of one series in one night, in the units of the series."""

    centre: float
    lowest: float  # below this is a breach
    nights: int  # that it is made of


def bounds(history: Sequence[Night], series: str, accepted: Sequence[Accepted] = ()) -> list[Bound | None]:
    """One for each night of the history, in its order; None where the night has no interval."""
    alike = [_with_group_of(series, night) for night in history]
    return all_bounds(alike, accepted).get(series, [None] * len(history))


def all_bounds(history: Sequence[Night], accepted: Sequence[Accepted] = ()) -> dict[str, list[Bound | None]]:
    """Those of every judged series: cheaper than one after the other, since they are found together."""
    nights = [_of_night(history, night, accepted) for night in history]
    names = dict.fromkeys(s for night in history for s in night.values if is_judged(s))
    return {series: [found.get(series) for found in nights] for series in names}


def _of_night(history: Sequence[Night], night: Night, accepted: Sequence[Accepted]) -> Bounds:
    before = references(history, night, accepted)
    found = expectations(before)
    return {s: _bound(s, expected, len(before[s][-MOST_NIGHTS:])) for s, expected in found.items()}


def _bound(series: str, expected: Expectation, nights: int) -> Bound:
    return Bound(off_scale(series, expected.centre), off_scale(series, expected.lowest), nights)


def _with_group_of(series: str, night: Night) -> Night:
    """All that its interval depends on."""
    return replace(night, values={s: v for s, v in night.values.items() if group_of(s) == group_of(series)})
