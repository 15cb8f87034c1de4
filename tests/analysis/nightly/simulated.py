"""Nights of a machine whose true figures are known: for the simulations of the rule."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.nightly.expectation import Expectation, expectations
from analysis.nightly.scale import on_scale
from results.nights import BASELINE, LENGTH, POSITION, SPEED_UP, Night, NightKind, series_of

DAY_S = 86400.0
Figures = NDArray[np.float64]

CELLS = [f"class{i} @ closed({n})" for i in range(3) for n in (1, 4, 16)]
FORTY = (
    *(series_of(kind, cell) for kind in (SPEED_UP, BASELINE, LENGTH) for cell in ("", *CELLS)),
    *(series_of(f"{POSITION}{i}", cell) for i in (1, 2) for cell in ("", *CELLS[:4])),
)
SEVEN = (SPEED_UP, BASELINE, LENGTH, *(f"{POSITION}{i}" for i in (1, 2, 3, 4)))  # one Cell alone


@dataclass(frozen=True)
class World:
    """How the figures vary: `noise` is the standard deviation of one measurement, as log or in points."""

    noise: float
    memory: float = 0.0  # correlation of a night's level with the next night's
    level: float = 0.5  # share of the variance that is the night's level: its rerun has it too
    common: float = 0.0  # share of the level that all series of a kind have together
    tail: float | None = None  # degrees of freedom of what each measurement adds; None = normal
    series: Sequence[str] = FORTY


@dataclass(frozen=True)
class Simulated:
    """Places around 0: many histories, and for each several nights that could follow it."""

    before: Figures  # [runs, nights, series]
    first: Figures  # [runs, tonights, series]
    again: Figures  # the reruns of those nights


def simulated(rng: np.random.Generator, world: World, runs: int, nights: int, tonights: int) -> Simulated:
    levels = _levels(rng, world, runs, nights)
    followed = np.repeat(levels[:, -1:], tonights, axis=1)
    level = _next(world, followed, _fresh(rng, world, runs, tonights))
    first, again = (_measured(rng, world, level) for _ in range(2))
    return Simulated(_measured(rng, world, levels), first, again)


def sequence(rng: np.random.Generator, world: World, nights: int) -> tuple[Figures, Figures]:
    """First measurements [nights, series] and reruns of nights in a row."""
    levels = _levels(rng, world, 1, nights)
    first, again = (_measured(rng, world, levels)[0] for _ in range(2))
    return first, again


def _levels(rng: np.random.Generator, world: World, runs: int, nights: int) -> Figures:
    """Stationary, first-order autoregressive over the nights, variance 1."""
    levels = _fresh(rng, world, runs, nights)
    for number in range(1, nights):
        levels[:, number] = _next(world, levels[:, number - 1], levels[:, number])
    return levels


def _next(world: World, before: Figures, fresh: Figures) -> Figures:
    following: Figures = world.memory * before + math.sqrt(1 - world.memory**2) * fresh
    return following


def _fresh(rng: np.random.Generator, world: World, runs: int, nights: int) -> Figures:
    kinds = np.arange(len(world.series)) * 4 // len(world.series)
    own = rng.standard_normal((runs, nights, len(world.series)))
    common = rng.standard_normal((runs, nights, 4))[:, :, kinds]
    fresh: Figures = math.sqrt(1 - world.common) * own + math.sqrt(world.common) * common
    return fresh


def _measured(rng: np.random.Generator, world: World, level: Figures) -> Figures:
    """What one measurement makes of the level of its night."""
    own = _own_noise(rng, world, level.shape)
    found: Figures = world.noise * (math.sqrt(world.level) * level + math.sqrt(1 - world.level) * own)
    return found


def _own_noise(rng: np.random.Generator, world: World, size: tuple[int, ...]) -> Figures:
    if world.tail is None:
        return rng.standard_normal(size)
    return rng.standard_t(world.tail, size) * math.sqrt((world.tail - 2) / world.tail)


def expected_after(series: Sequence[str], before: Figures) -> dict[str, Expectation]:
    """The rule's own expectation from a history of places [nights, series]."""
    nights = [values(series, places) for places in before]
    return expectations({s: [on_scale(s, figures[s]) for figures in nights] for s in series})


def values(series: Sequence[str], places: Figures) -> dict[str, float]:
    """Figures of one night from places around 0: factors around 1.5, shares around 0.6."""
    found = np.where([s.startswith(POSITION) for s in series], 0.6 + places, 1.5 * np.exp(places))
    return dict(zip(series, found.tolist(), strict=True))


def night(number: int, measured: dict[str, float], again: dict[str, float] | None = None) -> Night:
    began_at = number * DAY_S
    return Night(
        id=f"night {number}",
        pin="pinned",
        kind=NightKind.CHECK,
        machine="a",
        began_at=began_at,
        ended_at=began_at + 3600,
        segment={"gpu": "X"},
        versions={},
        effective={"winner n_max": "8"},
        values=measured,
        again=again or {},
    )
