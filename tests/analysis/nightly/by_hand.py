"""Nights with figures by hand, for the tests of the rule."""

from dataclasses import replace
from typing import Any

from results.nights import SPEED_UP, Night
from tests.analysis.nightly.simulated import night

STEADY = (1.49, 1.51, 1.50, 1.52, 1.48, 1.50, 1.495, 1.505, 1.51, 1.49, 1.50, 1.515, 1.485, 1.50)


def of(number: int, speed_up: float, **other: Any) -> Night:
    """One night with this overall speed-up; `other` replaces fields of the record."""
    return replace(night(number, {SPEED_UP: speed_up}), **other)


def steady(count: int, first: int = 0, **other: Any) -> list[Night]:
    """Nights around 1.5 with a standard deviation of 0.8 %."""
    return [of(first + i, STEADY[i % len(STEADY)], **other) for i in range(count)]
