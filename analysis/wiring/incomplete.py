"""States that are the right ones but for what is still to be added up over the ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from analysis.wiring.nearest import NOISE, Nearest, nearest, row_errors
from analysis.wiring.sample import Sample

if TYPE_CHECKING:
    from torch import Tensor

MOST_RANKS = 64
ROWS_BETWEEN = 0.9
NEARLY_THERE = 0.95  # of a layer's way: nearer, rounding could do it
FARTHEST = 0.75  # from the nearest boundary; zeros are 1.0 from all
ASIDE = 0.7  # of the layer's way, from the straight line; unrelated states are 1 and more
WHOLE = 0.01


@dataclass(frozen=True, slots=True)
class Between:
    """A state between those before and after one layer: part of what the layer adds is missing."""

    boundary: int  # after the layer
    way: float  # median, 0 = before it, 1 = after it


def between(given: "Tensor", sample: Sample, found: Nearest, layers: int) -> Between | None:
    """Of given [rows, H]. None if it is between no two boundaries that were captured, or between several.

    The ranks' parts of what a layer's last matrix adds are alike enough that one part points the way of
    their sum. One layer is named only if the next boundary was captured as well: from a state one layer
    on, the way back may look alike.
    """
    if found.error > FARTHEST:
        return None
    held = set(sample.boundaries)
    near = range(max(1, found.boundary), min(found.boundary + 1, layers) + 1)
    ways = [(j, _way(given, sample, j)) for j in near if {j - 1, j, min(j + 1, layers)} <= held]
    fitting = [Between(j, way) for j, way in ways if way is not None]
    return fitting[0] if len(fitting) == 1 else None


def _way(given: "Tensor", sample: Sample, boundary: int) -> float | None:
    """How far from boundary - 1 to the boundary, if most rows are on that way."""
    before = sample.state(boundary - 1)
    step = sample.state(boundary) - before
    gone = given - before
    way = (gone * step).sum(-1) / step.square().sum(-1).clamp_min(1e-30)
    aside = row_errors(gone, way[:, None] * step) * way.abs()
    on_it = ((way > 0) & (way < 1)).float().mean()
    middle = float(way.median())
    fits = float(on_it) >= ROWS_BETWEEN and middle < NEARLY_THERE and float(aside.median()) < ASIDE
    return middle if fits else None


def multiple(
    given: "Sequence[Tensor]", sample: Sample, layers: int
) -> tuple[float, tuple[Nearest, ...]] | None:
    """One factor between the states given, each [rows, H], and boundaries, exact but for it.

    Only a whole number, or one by a whole number, from 2 on: a sum taken too often or not at all.
    """
    scales = []
    matches = []
    for one in given:
        by_boundary = {b: _scaled(one, state) for b, state in sample.states()}
        match = nearest({b: error for b, (error, _) in by_boundary.items()}, layers)
        scales.append(by_boundary[match.boundary][1])
        matches.append(match)
    alike = all(abs(a / b - 1) < NOISE for a, b in pairwise(scales) if b)
    if not (all(m.exact for m in matches) and alike and _is_whole(scales[0])):
        return None
    return scales[0], tuple(matches)


def _scaled(given: "Tensor", state: "Tensor") -> tuple[float, float]:
    """Relative error after the best factor for all rows, and that factor."""
    scale = float(((given * state).sum(-1) / state.square().sum(-1).clamp_min(1e-30)).median())
    if not scale > 0:
        return float("inf"), scale
    return float(row_errors(given / scale, state).median().nan_to_num(nan=float("inf"))), scale


def _is_whole(scale: float) -> bool:
    larger = max(scale, 1 / scale)
    nearest_whole = round(larger)
    return 2 <= nearest_whole <= MOST_RANKS and abs(larger / nearest_whole - 1) < WHOLE
