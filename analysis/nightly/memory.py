"""A machine has slow days and fast ones: what a level that lasts for some nights does to a spread.

The nights of a series are taken as a level that goes over into the next night (correlation `memory`)
plus noise of each night alone. The level's share of the variance is estimated; the rest is arithmetic:
how far the spread inside a few nights falls short of the true one, and how uncertain their mean is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import fsum


@dataclass(frozen=True, slots=True)
class Nights:
    """Expectations over n nights of variance 1."""

    mean: float  # variance of their mean
    squares: float  # sum of squares around the mean
    neighbours: float  # sum of products of neighbouring residuals
    next: float  # covariance of their mean with the night after them


@lru_cache(maxsize=1024)
def lasting(n: int, memory: float) -> Nights:
    """Of a level with this correlation from one night to the next; 0 = of independent nights."""
    rows = [fsum(memory ** abs(i - j) for j in range(n)) / n for i in range(n)]
    mean = fsum(rows) / n
    products = (n - 1) * (memory + mean) - 2 * fsum(rows) + rows[0] + rows[-1]
    return Nights(mean, n * (1 - mean), products, fsum(memory**k for k in range(1, n + 1)) / n)


def mixed(share: float, memory: float, n: int) -> Nights:
    """Of nights whose variance is a lasting level for this share."""
    alone, level = lasting(n, 0.0), lasting(n, memory)
    return Nights(
        *(
            (1 - share) * getattr(alone, name) + share * getattr(level, name)
            for name in ("mean", "squares", "neighbours", "next")
        )
    )


def share_of_level(correlation: float, sizes: Sequence[int], memory: float) -> float:
    """The level's share, [0, 1], by the method of moments.

    `correlation`: sum of products of neighbouring residuals / sum of squares, over runs of nights of these
    sizes. Exact in what few nights make of it (it is negative for independent ones).
    """
    alone, level = ([lasting(n, m) for n in sizes] for m in (0.0, memory))
    squares = [fsum(nights.squares for nights in group) for group in (alone, level)]
    products = [fsum(nights.neighbours for nights in group) for group in (alone, level)]
    slope = products[1] - products[0] - correlation * (squares[1] - squares[0])
    share = (correlation * squares[0] - products[0]) / slope if slope > 0 else 1.0
    return min(max(share, 0.0), 1.0)
