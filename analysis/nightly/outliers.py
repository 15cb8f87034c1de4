"""Earlier nights that must not widen the interval of every night to come."""

import math
from collections.abc import Sequence

from analysis.nightly.sums import mean, variance
from analysis.statistics import t_quantile

ALPHA = 0.01
MOST_SHARE = 0.1  # of the nights: what happens more often is the noise of this machine


def without_outliers(values: Sequence[float]) -> list[float]:
    """The values in their order, less the outliers on either side."""
    left_out = outliers(values, round(MOST_SHARE * len(values)), ALPHA)
    return [value for place, value in enumerate(values) if place not in left_out]


def outliers(values: Sequence[float], most: int, alpha: float) -> set[int]:
    """Places of the outliers by the generalised extreme Studentised deviate test (Rosner 1983).

    It looks for `most` of them at once, so two alike do not hide each other. `alpha` is the chance that
    normal values have one. At least three values stay.
    """
    places, found, removed = list(range(len(values))), 0, []
    for count in range(1, min(most, len(values) - 3) + 1):
        left = [values[place] for place in places]
        centre, spread = mean(left), math.sqrt(variance(left))
        farthest = max(places, key=lambda place: abs(values[place] - centre))
        if spread > 0 and abs(values[farthest] - centre) / spread > _critical(len(left), alpha):
            found = count
        places.remove(farthest)
        removed.append(farthest)
    return set(removed[:found])


def _critical(n: int, alpha: float) -> float:
    """What the largest deviate of n normal values exceeds with probability alpha at most."""
    t = t_quantile(n - 2, 1 - alpha / (2 * n))
    return (n - 1) * t / math.sqrt((n - 2 + t * t) * n)
