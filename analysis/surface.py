"""A smooth surface through noisy values at places: Gaussian-process regression (kriging).

Rasmussen & Williams 2006, algorithm 2.1, with a Matern 5/2 kernel; scale and noise are chosen by the
marginal likelihood from a short list, the signal's variance in closed form.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.costmodel.places import Array, squared_distances

SCALES = (0.3, 0.6, 1.2, 2.4)  # of one knob's range
NOISES = (0.02, 0.1, 0.4)  # variance, as a share of the signal's


@dataclass(frozen=True, slots=True)
class Surface:
    places: Array
    scale: float
    variance: float
    chol: Array  # of the correlations with noise
    weights: Array

    def at(self, where: Array) -> tuple[Array, Array]:
        """(mean, standard deviation) without noise at each place."""
        near = _correlation(where, self.places, self.scale)
        explained = np.linalg.solve(self.chol, near.T)
        spread = self.variance * np.maximum(1.0 - np.sum(explained * explained, axis=0), 1e-9)
        return near @ self.weights, np.sqrt(spread)


def fit_surface(
    where: Array,
    values: Sequence[float],
    scales: Sequence[float] = SCALES,
    noises: Sequence[float] = NOISES,
) -> Surface:
    """Through values that are 0 where nothing is known; the likeliest of these scales and noises."""
    y = np.array(values, dtype=float)
    found = [_fit(where, y, scale, noise) for scale in scales for noise in noises]
    return max(found, key=lambda pair: pair[0])[1]


def _fit(where: Array, y: Array, scale: float, noise: float) -> tuple[float, Surface]:
    """(log marginal likelihood, surface)."""
    chol = np.asarray(
        np.linalg.cholesky(_correlation(where, where, scale) + noise * np.eye(len(y))), dtype=np.float64
    )
    weights = np.linalg.solve(chol.T, np.linalg.solve(chol, y))
    variance = max(float(y @ weights) / len(y), 1e-8)
    likelihood = -0.5 * len(y) * math.log(variance) - float(np.sum(np.log(np.diag(chol))))
    return likelihood, Surface(where, scale, variance, chol, weights)


def _correlation(a: Array, b: Array, scale: float) -> Array:
    steps = np.sqrt(5.0 * squared_distances(a, b)) / scale
    found: Array = (1.0 + steps + steps * steps / 3.0) * np.exp(-steps)
    return found
