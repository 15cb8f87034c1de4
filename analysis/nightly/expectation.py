"""What tonight should measure: the prediction interval of one series, and when a figure is out of it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analysis.nightly.outliers import without_outliers
from analysis.nightly.scale import group_of, least_below
from analysis.nightly.segments import MOST_NIGHTS
from analysis.nightly.spread import spreads
from analysis.nightly.sums import mean

ALPHA = 0.01
FEWEST_NIGHTS = 14
MEMORY = 0.8  # of a level that lasts: half of it is gone after three nights


@dataclass(frozen=True, slots=True)
class Expectation:
    """Of one series for the next night; places are on its scale."""

    centre: float
    error: float  # standard deviation of the next night around the centre
    degrees: float  # of freedom that the error is known with
    least: float  # above this a loss is too small to matter

    @property
    def lowest(self) -> float:
        """Below it is out: less than one night in a hundred is by chance, and the loss matters."""
        return min(self.least, self.centre + self.error * self._quantile(ALPHA))

    def p_value(self, place: float) -> float:
        """How likely a night is as low as this by chance."""
        from scipy.special import stdtr

        return float(stdtr(self.degrees, (place - self.centre) / self.error))

    def _quantile(self, probability: float) -> float:
        from scipy.special import stdtrit

        return float(stdtrit(self.degrees, probability))


def expectations(
    references: Mapping[str, Sequence[float]], fewest: int = FEWEST_NIGHTS
) -> dict[str, Expectation]:
    """Of every series with enough nights in its reference (see `segments.reference`)."""
    enough = {s: without_outliers(r[-MOST_NIGHTS:]) for s, r in references.items() if len(r) >= fewest}
    groups = by_group(enough)
    return {series: found for group in groups for series, found in _of_group(group).items()}


def by_group(references: Mapping[str, Sequence[float]]) -> list[dict[str, Sequence[float]]]:
    """Parted into series whose noise may be alike."""
    names: Iterable[str] = dict.fromkeys(map(group_of, references))
    return [{s: r for s, r in references.items() if group_of(s) == name} for name in names]


def _of_group(references: Mapping[str, Sequence[float]]) -> dict[str, Expectation]:
    found = spreads({series: [nights] for series, nights in references.items()}, MEMORY)
    return {
        series: _expectation(
            series, mean(nights), math.sqrt(found[series].of_next(len(nights))), found[series].degrees
        )
        for series, nights in references.items()
    }


def _expectation(series: str, centre: float, error: float, degrees: float) -> Expectation:
    return Expectation(centre, error, degrees, least_below(series, centre))
