"""The slow leak: no single night is out, but the last week lies below the first nights of the segment."""

import math
from collections.abc import Mapping, Sequence

from analysis.nightly.discoveries import discoveries
from analysis.nightly.expectation import by_group
from analysis.nightly.scale import least_below
from analysis.nightly.spread import Spread, spreads
from analysis.nightly.sums import mean

ALPHA = 0.01
FIRST, LAST = 14, 7  # nights
MEMORY = 0.9  # longer than for one night: a level that wanders for weeks looks like a leak


def is_due(nights: int) -> bool:
    """Whether a series with so many nights in its segment is checked: weekly, from the third week on.

    A night in which it was an alarm does not count, so a leak is checked again every night until it
    is mended or accepted.
    """
    return nights >= FIRST + LAST and nights % LAST == 0


def leaks(references: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """The series that leak, of places on their scale since the segment began, tonight's the last.

    Out is a mean of the last week that lies below that of the first nights by more than matters, and by
    more than chance explains once all series that are due tonight are looked at together.
    """
    due = {series: places for series, places in references.items() if is_due(len(places))}
    chances = {s: p for group in by_group(due) for s, p in _p_values(group).items()}
    return discoveries({s: chances[s] if _matters(s, places) else 1.0 for s, places in due.items()}, ALPHA)


def _matters(series: str, places: Sequence[float]) -> bool:
    return mean(places[-LAST:]) < least_below(series, mean(places[:FIRST]))


def _p_values(alike: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """One-sided, by Welch's idea of two means, with the noise inside both stretches of nights.

    The spread around one mean over the whole segment would count the leak itself as noise.
    """
    found = spreads({s: (places[:FIRST], places[-LAST:]) for s, places in alike.items()}, MEMORY)
    return {series: _p_value(places, found[series]) for series, places in alike.items()}


def _p_value(places: Sequence[float], spread: Spread) -> float:
    from scipy.special import stdtr

    error = math.sqrt(spread.of_mean(FIRST) + spread.of_mean(LAST))
    return float(stdtr(spread.degrees, (mean(places[-LAST:]) - mean(places[:FIRST])) / error))
