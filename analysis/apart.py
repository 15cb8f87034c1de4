"""Which places differ from the others by more than the noise between launches on one place.

Values are log figures, one per Block. Each place is compared with the mean of those that do not differ:
Welch's t, at alpha / places each (Bonferroni), for the variance of a few launches alone is a guess: those
of all places are moderated (see analysis.nightly.moderation), so alike places share one and a restless one
keeps its own. The place that stands out most is set aside first, else it would make the others look odd.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.anchor import Place
from analysis.nightly.moderation import Variance, moderated
from analysis.statistics import t_quantile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALPHA = 0.05  # that any place is said to differ although none does
_SMALLEST = 1e-12  # variance of a figure that never changes: rounding
_FEWEST_DEGREES = 1.0  # in all; with fewer nothing is known of the noise


@dataclass(frozen=True, slots=True)
class Value:
    """One Block's figure at its place."""

    place: Place
    log: float
    kind: str = ""  # only values of one kind compare: the same server, the same prompts


@dataclass(frozen=True, slots=True)
class Gap:
    """A place against the mean of the others that do not differ, as a log ratio; > 0 is higher."""

    place: Place
    log_ratio: float
    low: float  # of the interval that holds for all places together
    high: float
    differs: bool  # by more than the noise, and by enough to matter


def gaps(values: Sequence[Value], margin: float, alpha: float = ALPHA) -> list[Gap]:
    """One for every place that can be compared; empty if the noise is not known or there is one place.

    `margin`: the log ratio below which nobody cares. Of two places that differ the lower one is named.
    """
    places = list(dict.fromkeys(v.place for v in values))
    fit = _fitted(values, places) if len(places) > 1 else None
    if fit is None:
        return []
    odd: list[Place] = []
    while len(places) - len(odd) > 1:
        found = [g for p in places if p not in odd and (g := fit.gap(p, odd, margin, alpha)) is not None]
        far = [g for g in found if g.differs]
        if not far:
            break
        odd.append(max(far, key=lambda g: (round(_surety(g), 6), -g.log_ratio)).place)
    last = (fit.gap(p, odd, margin, alpha) for p in places)
    return [g for g in last if g is not None]


def _surety(gap: Gap) -> float:
    return abs(gap.log_ratio) / max(gap.high - gap.low, _SMALLEST)


def half_widths(values: Sequence[Value], alpha: float = ALPHA) -> dict[Place, float]:
    """Of the interval of each place's own mean, by the moderated noise; empty if that is not known.

    Of values of one kind.
    """
    places = list(dict.fromkeys(v.place for v in values))
    fit = _fitted(values, places) if values else None
    if fit is None:
        return {}
    found = {}
    for place in places:
        noise, count = fit.noise[place], sum(v.place == place for v in values)
        t = t_quantile(min(noise.degrees, fit.degrees), 1 - alpha / 2)
        found[place] = t * math.sqrt(noise.value / count)
    return found


def at_least_by_node(values: Sequence[Value]) -> list[Value]:
    """The same values, by node alone if the places are too many to tell the noise on one."""
    places = {v.place for v in values}
    if len(values) >= 2 * len(places):
        return list(values)
    return [Value((v.place[0], ()), v.log, v.kind) for v in values]


@dataclass(frozen=True)
class _Fit:
    """log = place + kind + noise, by least squares; the noise is that of its place."""

    places: Sequence[Place]
    of: Sequence[Place]  # each value's
    logs: "NDArray[np.float64]"
    design: "NDArray[np.float64]"  # columns: places, then kinds
    inverse: "NDArray[np.float64]"
    noise: dict[Place, Variance]
    degrees: float  # of all places together

    def gap(self, place: Place, odd: Collection[Place], margin: float, alpha: float) -> Gap | None:
        """None where there is nothing to compare with, or no kind in common."""
        import numpy as np

        others = [p for p in self.places if p != place and p not in odd]
        if not others:
            return None
        contrast = np.zeros(self.design.shape[1])
        contrast[self.places.index(place)] = 1.0
        contrast[[self.places.index(p) for p in others]] = -1.0 / len(others)
        weights = contrast @ self.inverse
        if not np.allclose(weights @ self.design, contrast, atol=1e-6):
            return None
        log_ratio = float(weights @ self.logs)
        tests = len(self.places) if len(self.places) > 2 else 1  # of two, either comparison is the other
        half = self._half_width(weights, alpha / tests)
        differs = abs(log_ratio) > max(half, margin)
        return Gap(place, log_ratio, log_ratio - half, log_ratio + half, differs)

    def _half_width(self, weights: "NDArray[np.float64]", alpha: float) -> float:
        """Satterthwaite: how well the variance of a contrast is known, at most as well as all together."""
        parts = dict.fromkeys(self.places, 0.0)
        for place, weight in zip(self.of, weights, strict=True):
            parts[place] += float(weight) ** 2 * self.noise[place].value
        whole = math.fsum(parts.values())
        degrees = whole**2 / math.fsum(part**2 / self.noise[p].degrees for p, part in parts.items())
        return t_quantile(min(degrees, self.degrees), 1 - alpha / 2) * math.sqrt(whole)


def _fitted(values: Sequence[Value], places: Sequence[Place]) -> _Fit | None:
    import numpy as np

    kinds = list(dict.fromkeys(v.kind for v in values))
    columns = [[v.place == p for v in values] for p in places] + [
        [v.kind == k for v in values] for k in kinds[1:]
    ]
    design = np.array(columns, dtype=float).T
    logs = np.array([v.log for v in values])
    inverse = np.linalg.pinv(design)
    hat = design @ inverse
    squares, free = (logs - hat @ logs) ** 2, 1.0 - np.diag(hat)
    degrees = float(free.sum())
    if degrees < _FEWEST_DEGREES - 1e-6:
        return None
    of = [v.place for v in values]
    noise = _noise(places, of, squares.tolist(), free.tolist())
    return _Fit(places, of, logs, design, inverse, noise, degrees)


def _noise(
    places: Sequence[Place], of: Sequence[Place], squares: Sequence[float], free: Sequence[float]
) -> dict[Place, Variance]:
    """Of one launch at each place. One with a single launch has the noise of all."""
    sums = {
        p: [math.fsum(x for x, q in zip(xs, of, strict=True) if q == p) for xs in (squares, free)]
        for p in places
    }
    pooled = math.fsum(s for s, _ in sums.values()) / math.fsum(d for _, d in sums.values())
    told = {p: Variance(s / d, d) for p, (s, d) in sums.items() if d >= _FEWEST_DEGREES / 2}
    shared = dict(zip(told, moderated([*told.values()]), strict=True))
    every = Variance(pooled, math.fsum(d for _, d in sums.values()))
    found = {p: shared.get(p, every) for p in places}
    return {p: Variance(max(v.value, _SMALLEST), v.degrees) for p, v in found.items()}
