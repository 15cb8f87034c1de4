"""The first bad one of a list of versions, from noisy comparisons with the good one.

Every Block holds the good version and one other; it gives d = log(other / good). The versions before the
first bad one have the mean 0, the others have one common mean; the noise of a Block is the same for all.
Neither that mean nor the noise is known, so both are integrated out (flat priors for the mean and for the
logarithm of the noise): what is left is the probability of each version to be the first bad one, given all
Blocks so far. It needs no threshold, and every Block of every version counts.
"""

import math
from collections.abc import Sequence
from statistics import fmean

CERTAIN = 0.97  # probability at which a version is named
AT_LEAST = 2  # Blocks of the version named and of the one before it: one may be an outlier
_LEAST = 1e-12  # a sum of squares that is 0 has no logarithm

LogRatios = Sequence[float]


def shares(groups: Sequence[LogRatios]) -> list[float]:
    """Probability of each version to be the first bad one.

    `groups` are the log ratios of every version against the good one, in order: that of the good one
    itself is empty, the last one is known to be bad and has some. The share of the good one is 0.
    """
    logs = [_log_likelihood(groups, first) for first in range(1, len(groups))]
    top = max(logs)
    weights = [math.exp(log - top) for log in logs]
    return [0.0, *(weight / sum(weights) for weight in weights)]


def _log_likelihood(groups: Sequence[LogRatios], first: int) -> float:
    """Of all figures, if `first` is the first bad one, up to a constant."""
    good = [d for group in groups[:first] for d in group]
    bad = [d for group in groups[first:] for d in group]
    mean = fmean(bad)
    squares = sum(d * d for d in good) + sum((d - mean) ** 2 for d in bad)
    return -0.5 * math.log(len(bad)) - 0.5 * (len(good) + len(bad) - 1) * math.log(max(squares, _LEAST))


def next_probe(groups: Sequence[LogRatios], certain: float = CERTAIN) -> int | None:
    """The version to measure next; None if the first bad one is known.

    The one that halves the probability: whether it is good or bad is what is known least.
    """
    found = shares(groups)
    best = likeliest(found)
    if found[best] >= certain:
        return next((v for v in (best, best - 1) if v > 0 and len(groups[v]) < AT_LEAST), None)
    bad_up_to = [sum(found[: v + 1]) for v in range(len(groups) - 1)]
    return min(range(1, len(groups) - 1), key=lambda v: abs(bad_up_to[v] - 0.5))


def likeliest(found: Sequence[float]) -> int:
    return max(range(len(found)), key=lambda v: found[v])


def plausible(found: Sequence[float], certain: float = CERTAIN) -> tuple[int, int]:
    """The smallest range of versions (both ends inside) that holds the first bad one for certain."""
    ranges = [(low, high) for low in range(1, len(found)) for high in range(low, len(found))]
    whole = [r for r in ranges if sum(found[r[0] : r[1] + 1]) >= certain - 1e-9]
    return min(whole, key=lambda r: r[1] - r[0])
