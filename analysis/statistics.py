"""Intervals, quantiles and budgets. The unit of evidence is the Block: n is Blocks, never requests."""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean, stdev

from results.records import Quantiles

LOOKS = (4, 8, 12, 20)  # numbers of Blocks after which a confirmation may be decided


@lru_cache(maxsize=1024)
def t_quantile(degrees: float, probability: float) -> float:
    """Quantile of Student's t with `degrees` of freedom, whole or not, 0 < probability < 1."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


def t_interval(values: Sequence[float], alpha: float) -> tuple[float, float, float]:
    """Mean and the bounds of its two-sided 1 - alpha Student-t interval.

    `values` holds one figure per Block. Raises ValueError for fewer than two or a non-finite one.
    """
    if len(values) < 2:
        raise ValueError("an interval needs at least two Blocks")
    if not all(map(math.isfinite, values)):
        raise ValueError("a non-finite value has no place in an interval")
    mean = fmean(values)
    half = t_quantile(len(values) - 1, 1 - alpha / 2) * stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def look_alpha(alpha: float, looks: int, finalists: int) -> float:
    """Error probability of one interval when `finalists` are each looked at `looks` times (Bonferroni)."""
    return alpha / (max(looks, 1) * max(finalists, 1))


def smallest_effect(block_sd: float, blocks: int, alpha: float, power: float = 0.8) -> float:
    """Smallest true log ratio whose interval excludes 0 with probability `power`.

    `block_sd` is the standard deviation of the log ratio between Blocks, `alpha` that of one
    two-sided interval (see look_alpha). Exact for normal Blocks (non-central t).
    """
    from scipy.special import nctdtrinc

    if blocks < 2:
        raise ValueError("an interval needs at least two Blocks")
    critical = t_quantile(blocks - 1, 1 - alpha / 2)
    return float(nctdtrinc(blocks - 1, 1 - power, critical)) * block_sd / math.sqrt(blocks)


def quantiles(values: Sequence[float]) -> Quantiles | None:
    """p50, p95 and p99 by linear interpolation over the finite values; None if there is none."""
    ordered = sorted(v for v in values if math.isfinite(v))
    if not ordered:
        return None
    return Quantiles(*(_quantile(ordered, share) for share in (0.50, 0.95, 0.99)))


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def geometric_mean(values: Sequence[float]) -> float | None:
    """Geometric mean of positive finite values; None if there is none or one is not positive."""
    if not values or not all(math.isfinite(v) and v > 0 for v in values):
        return None
    return math.exp(fmean(math.log(v) for v in values))


def ratio(part: float, whole: float) -> float | None:
    """part / whole, or None where that is no finite number."""
    if whole == 0 or not math.isfinite(part) or not math.isfinite(whole):
        return None
    share = part / whole
    return share if math.isfinite(share) else None
