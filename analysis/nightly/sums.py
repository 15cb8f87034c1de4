"""Means and sums of squares of plain floats: quick, since the page asks for them night by night."""

from collections.abc import Sequence
from itertools import pairwise
from math import fsum


def mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)


def residuals(values: Sequence[float]) -> list[float]:
    centre = mean(values)
    return [value - centre for value in values]


def squares(values: Sequence[float]) -> float:
    """Sum of squares around the mean."""
    return fsum(r * r for r in residuals(values))


def neighbours(values: Sequence[float]) -> float:
    """Sum of products of neighbouring residuals: what is positive where a level lasts."""
    return fsum(a * b for a, b in pairwise(residuals(values)))


def variance(values: Sequence[float]) -> float:
    """Of at least two values, unbiased."""
    return squares(values) / (len(values) - 1)
