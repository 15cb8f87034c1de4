"""Which boundary is this? By the median of the rows' relative errors, which no single position can move."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from results.wiring import boundary_name

if TYPE_CHECKING:
    from torch import Tensor

NOISE = 0.03  # two kernels in bf16, whose numbers are 0.8 % apart, differ by 0.4 to 1.5 %; in float32 by 1e-7
ROUNDING = 1e-4  # less is float32, whatever the kernels
GAP = 3.0  # how much farther any other layer's states must be
TINY = 1e-30


@dataclass(frozen=True, slots=True)
class Nearest:
    """Of the captured boundaries the one closest to a state, and the next."""

    boundary: int
    error: float  # relative, median over rows
    runner_up: int | None
    runner_up_error: float
    exact: bool  # no other boundary can be meant, captured or not


def row_errors(given: "Tensor", state: "Tensor") -> "Tensor":
    """[rows ..] from [rows .., width]: distance by the length of the state."""
    return (given - state).norm(dim=-1) / state.norm(dim=-1).clamp_min(TINY)


def median_error(given: "Tensor", state: "Tensor") -> float:
    """Infinite if the rows hold what is no number."""
    found = float(row_errors(given, state).median())
    return found if found == found else float("inf")


def nearest(errors: Mapping[int, float], layers: int) -> Nearest:
    """Of errors by boundary, at least one."""
    first, *others = sorted(errors, key=lambda boundary: errors[boundary])
    error = errors[first]
    exact = error <= NOISE and GAP * error <= _layer_away(errors, first, layers)
    if not others:
        return Nearest(first, error, None, float("inf"), exact)
    return Nearest(first, error, others[0], errors[others[0]], exact and errors[others[0]] > error)


def _layer_away(errors: Mapping[int, float], boundary: int, layers: int) -> float:
    """How far a state one layer off must be at the least, also where that one was not captured.

    The stream gets from one captured boundary to the next in so many steps, the average of which is no
    shorter than the distance divided by their number. N is on no such way. Without neighbours nothing is
    known, and only what is equal bit for bit will do.
    """
    if boundary == layers + 1:
        return min((e for b, e in errors.items() if b != boundary), default=0.0)
    below = max((b for b in errors if b < boundary), default=None)
    above = min((b for b in errors if boundary < b <= layers), default=None)
    return min((errors[b] / abs(b - boundary) for b in (below, above) if b is not None), default=0.0)


def spans(boundaries: Iterable[int], layers: int) -> str:
    """`b0 to b3, b11, N`."""
    runs: list[list[int]] = []
    for boundary in sorted(boundaries):
        if runs and boundary <= layers and boundary == runs[-1][-1] + 1:
            runs[-1].append(boundary)
        else:
            runs.append([boundary])
    return ", ".join(_span(run, layers) for run in runs)


def _span(run: list[int], layers: int) -> str:
    first, last = boundary_name(run[0], layers), boundary_name(run[-1], layers)
    return f"{first} to {last}" if len(run) > 2 else ", ".join(boundary_name(b, layers) for b in run)
