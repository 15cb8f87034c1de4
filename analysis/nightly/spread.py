"""How much a series varies between nights, as far as those before tell.

The interval inside one night says nothing of this: twelve nights of one configuration lay 17 to 27 %
above their baseline, each sure of its own figure to a point or two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from analysis.nightly.memory import mixed, share_of_level
from analysis.nightly.moderation import Variance, moderated
from analysis.nightly.sums import neighbours, squares

_SMALLEST = 1e-12  # variance of a figure that never changes: rounding

Runs = Sequence[Sequence[float]]  # nights in a row, each run around a mean of its own


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one series, on its scale."""

    variance: float  # of one night
    degrees: float  # of freedom that it is known with
    share: float  # of the variance that is a level lasting for some nights
    memory: float  # correlation of that level from one night to the next

    def of_next(self, n: int) -> float:
        """Variance of the next night's distance to the mean of the n before."""
        nights = mixed(self.share, self.memory, n)
        return self.variance * (1 + nights.mean - 2 * nights.next)

    def of_mean(self, n: int) -> float:
        """Variance of the mean of n nights in a row."""
        return self.variance * mixed(self.share, self.memory, n).mean


def spreads(alike: Mapping[str, Runs], memory: float) -> dict[str, Spread]:
    """Of every series of one kind; each needs two nights in a run at least.

    A level that lasts makes the nights of a run resemble each other: what they vary less is put back.
    """
    share = _share_of_level(list(alike.values()), memory)
    apart = [Variance(_squares(runs) / _degrees(runs), _degrees(runs)) for runs in alike.values()]
    return {
        series: Spread(
            max(found.value, _SMALLEST) * _degrees(runs) / _expected_squares(runs, share, memory),
            found.degrees,
            share,
            memory,
        )
        for (series, runs), found in zip(alike.items(), moderated(apart), strict=True)
    }


def _share_of_level(kind: Sequence[Runs], memory: float) -> float:
    """Over all series of a kind, each counted by its nights and not by its noise."""
    varying = [runs for runs in kind if _squares(runs) / _degrees(runs) > _SMALLEST]
    if not varying:
        return 0.0
    degrees = [_degrees(runs) for runs in varying]
    products = fsum(
        d * fsum(map(neighbours, runs)) / _squares(runs) for d, runs in zip(degrees, varying, strict=True)
    )
    sizes = [len(run) for runs in varying for run in runs]
    return share_of_level(products / fsum(degrees), sizes, memory)


def _squares(runs: Runs) -> float:
    return fsum(map(squares, runs))


def _degrees(runs: Runs) -> int:
    return sum(len(run) - 1 for run in runs)


def _expected_squares(runs: Runs, share: float, memory: float) -> float:
    return fsum(mixed(share, memory, len(run)).squares for run in runs)
