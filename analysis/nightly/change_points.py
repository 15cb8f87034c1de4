"""Where the level of a series changed, for the picture alone: no verdict rests on it."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

SHORTEST = 5  # nights of one level
_REACH = 3  # neighbours on either side that say what is usual
_USUAL = 3.0  # standard deviations
_PENALTY = 8.0  # times log(nights), in squared standard deviations: room for nights that resemble each other
_FINEST = 1e-3  # of the level: series without noise have steps too, but not such small ones


def change_points(values: Sequence[float]) -> list[int]:
    """Indices at which a new level begins, ascending; empty = one level, or too few nights for two.

    Optimal partitioning (Jackson 2005): of all ways to cut the series into pieces of `SHORTEST` nights or
    more, the one with the least squared error about the means of its pieces plus a penalty for each. The
    noise is that of the differences between neighbours, which a step hardly touches.
    A lone outlier would buy a piece for itself and its neighbours: a night beyond three standard deviations
    of the median of the seven around it counts as one at that distance.
    """
    if len(values) < 2 * SHORTEST:
        return []
    noise = _noise(values)
    usual = [_pulled_in(values, i, _USUAL * noise) / noise for i in range(len(values))]
    return best_cuts(usual, _PENALTY * math.log(len(values)))


def _noise(values: Sequence[float]) -> float:
    """Standard deviation of one night, from the median difference between neighbours."""
    typical = median(abs(b - a) for a, b in pairwise(values))
    return max(1.4826 * typical / math.sqrt(2), _FINEST * abs(median(values)), 1e-12)


def _pulled_in(values: Sequence[float], index: int, most: float) -> float:
    """The value, no further than that from the median of its neighbourhood."""
    begin = min(max(0, index - _REACH), len(values) - 2 * _REACH - 1)
    middle = median(values[begin : begin + 2 * _REACH + 1])
    return min(max(values[index], middle - most), middle + most)


def best_cuts(values: Sequence[float], penalty: float) -> list[int]:
    """The cheapest cuts: squared error within the pieces, plus `penalty` for each cut."""
    import numpy as np

    sums = np.concatenate([[0.0], np.cumsum(values)])
    squares = np.concatenate([[0.0], np.cumsum(np.square(values))])
    cheapest = np.full(len(values) + 1, np.inf)  # of the first n values
    cheapest[0] = -penalty
    came_from = [0] * (len(values) + 1)
    for end in range(SHORTEST, len(values) + 1):
        begins = np.arange(end - SHORTEST + 1)
        within = squares[end] - squares[begins] - (sums[end] - sums[begins]) ** 2 / (end - begins)
        costs = cheapest[begins] + within + penalty
        came_from[end] = int(np.argmin(costs))
        cheapest[end] = costs[came_from[end]]
    return _cuts(came_from)


def _cuts(came_from: Sequence[int]) -> list[int]:
    cuts, end = [], len(came_from) - 1
    while (end := came_from[end]) > 0:
        cuts.append(end)
    return cuts[::-1]
