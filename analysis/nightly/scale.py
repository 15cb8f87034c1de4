"""On which scale a series is judged, and what of it is too little to matter.

Speeds and lengths are judged by their logarithm, since what makes them vary is a factor. A share
accepted at a position is judged as it is, in points.
"""

import math

from results.nights import BASELINE, LENGTH, POSITION, SPEED_UP, kind_of

_LEAST_LOSS = {SPEED_UP: 0.03, BASELINE: 0.05, LENGTH: 0.03, POSITION: 0.03}  # of a share: points
WIDE_LOSS = 0.10  # the guard while there are too few nights


def group_of(series: str) -> str:
    """Series whose noise may be alike: those of one kind; the positions are one kind together."""
    kind = kind_of(series)
    return POSITION if kind.startswith(POSITION) else kind


def is_judged(series: str) -> bool:
    """Whether a loss in it can be a regression. What is not judged is told."""
    return group_of(series) in _LEAST_LOSS


def is_share(series: str) -> bool:
    return group_of(series) == POSITION


def is_usable(series: str, value: float | None) -> bool:
    """Whether there is a figure that has a place on the scale."""
    return value is not None and math.isfinite(value) and (is_share(series) or value > 0)


def on_scale(series: str, value: float) -> float:
    return value if is_share(series) else math.log(value)


def off_scale(series: str, place: float) -> float:
    """The inverse of `on_scale`."""
    return place if is_share(series) else math.exp(place)


def below(series: str, place: float, loss: float) -> float:
    """The place on the scale that lies a loss below: a share of the value; of a share, points."""
    return place - loss if is_share(series) else place + math.log1p(-loss)


def least_below(series: str, place: float) -> float:
    """Above this a loss is too small to matter, however certain it is."""
    return below(series, place, _LEAST_LOSS[group_of(series)])


def change(series: str, value: float, expected: float) -> float:
    """value / expected - 1; of a share the difference in points (0.01 = one point)."""
    return value - expected if is_share(series) else value / expected - 1
