"""Variances of many series told together: fourteen nights alone tell a spread badly.

Empirical Bayes (Smyth 2004, https://doi.org/10.2202/1544-6115.1027): the variances of alike series are
taken as draws around one of their own; how far they lie apart tells how alike the series are. If they
differ more than chance explains, each keeps its own variance, and the rule is plain Student t.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from statistics import variance as variance_of

_EXACT = 1e-12  # a variance below is that of a figure that never changes: it tells nothing of the others


@dataclass(frozen=True, slots=True)
class Variance:
    """A variance and how well it is known."""

    value: float
    degrees: float  # of freedom


def moderated(variances: Sequence[Variance]) -> list[Variance]:
    """Each moved towards what is common to all. Degrees are never more than those of all together."""
    common = _prior([v for v in variances if v.value > _EXACT])
    if common is None:
        return list(variances)
    most = math.fsum(v.degrees for v in variances)
    return [_together(v, common, most) for v in variances]


def _together(own: Variance, common: Variance, most: float) -> Variance:
    if math.isinf(common.degrees):
        return Variance(common.value, most)
    degrees = own.degrees + common.degrees
    value = (own.degrees * own.value + common.degrees * common.value) / degrees
    return Variance(value, min(degrees, most))


def _prior(variances: Sequence[Variance]) -> Variance | None:
    """The common variance, with the degrees that it is worth; infinite where they are all alike."""
    from scipy.special import digamma, polygamma

    if len(variances) < 2:
        return None
    halves = [v.degrees / 2 for v in variances]
    logs = [math.log(v.value * h) - float(digamma(h)) for v, h in zip(variances, halves, strict=True)]
    centre = fmean(logs)
    apart = variance_of(logs) - fmean(float(polygamma(1, h)) for h in halves)
    if apart <= _EXACT:
        return Variance(math.exp(centre), math.inf)
    half = trigamma_inverse(apart)
    return Variance(math.exp(centre + float(digamma(half))) / half, 2 * half)


def trigamma_inverse(value: float) -> float:
    """The x > 0 with trigamma(x) = value > 0: Newton's method on 1 / trigamma, which is nearly straight."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-10 * x:
            break
    return x
