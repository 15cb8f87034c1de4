"""Which boundaries went into a fusion layer, from what came out of it.

The layer is linear: fc(a, b, c) = W1 a + W2 b + W3 c. With the products of every part with every boundary,
and their products with each other, the error of one choice is a sum of a few numbers. A part of the layer's
output tells as much as all of it: `OUTPUTS` of them are computed, on `ROWS` rows.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from analysis.wiring.nearest import GAP, Nearest, median_error, nearest
from analysis.wiring.sample import Sample

if TYPE_CHECKING:
    from torch import Tensor

OUTPUTS = 256
ROWS = 32
MOST_CHOICES = 2_000_000  # three of 62 boundaries are 238,328; the tables of so many take 16 MB
FINALISTS = 8


def choices(sample: Sample, slots: int) -> int:
    """How many there are to try."""
    return int(len(sample.boundaries) ** slots)


def find_inputs(
    fused: "Tensor", weight: "Tensor", sample: Sample, layers: int, lag: int = 0
) -> tuple[Nearest, ...]:
    """Of fused [rows, h] and the layer's weight [h, slots H]: for each slot the boundary that went into it.

    The best of all choices; a slot's errors are those of putting another boundary there. No slot is exact
    if a choice that differs in several slots fits about as well. There may be `MOST_CHOICES`.
    """
    columns = _spread(fused.shape[-1], OUTPUTS)
    rows = _spread(len(fused), ROWS)
    parts = _parts(weight[columns].float(), sample, rows, lag)
    few = fused[rows][:, columns]
    best, second = _best(few, parts, _ranked(few, parts))
    found = []
    for slot in range(len(parts)):
        errors = {
            boundary: median_error(few, _sum(parts, (*best[:slot], other, *best[slot + 1 :])))
            for other, boundary in enumerate(sample.boundaries)
        }
        found.append(nearest(errors, layers))
    alone = second >= GAP * median_error(few, _sum(parts, best))
    return tuple(one if alone else replace(one, exact=False) for one in found)


def _parts(weight: "Tensor", sample: Sample, rows: "Tensor", lag: int) -> "Tensor":
    """[slots, boundaries, rows, outputs]"""
    import torch

    width = sample.state(sample.boundaries[0]).shape[-1]
    slots = weight.split(width, dim=-1)
    products = [torch.stack([state[rows] @ slot.T for slot in slots]) for _, state in sample.states(lag)]
    return torch.stack(products, dim=1)


def _ranked(fused: "Tensor", parts: "Tensor") -> list[tuple[int, ...]]:
    """The best choices by the geometric mean of the rows' errors: no row counts for more than another."""
    import torch

    slots, boundaries, rows, _ = parts.shape
    total = torch.zeros([boundaries] * slots)
    for row in range(rows):
        total += _squared_errors(fused[row], parts[:, :, row]).clamp_min(1e-12).log()
    best = total.flatten().argsort()[:FINALISTS]
    return [tuple(int(i) for i in torch.unravel_index(index, total.shape)) for index in best]


def _squared_errors(fused: "Tensor", parts: "Tensor") -> "Tensor":
    """Of one row, of all choices, relative: [boundaries] * slots, by the products in |y - sum|^2."""
    import torch

    length = fused.norm().clamp_min(1e-30)
    y, x = (fused / length).double(), (parts / length).double()
    slots, boundaries, _ = x.shape
    errors = torch.full([boundaries] * slots, float(y @ y), dtype=torch.double)
    for slot in range(slots):
        own = x[slot].square().sum(-1) - 2 * x[slot] @ y
        errors += own.reshape([-1 if axis == slot else 1 for axis in range(slots)])
        for other in range(slot):
            both = 2 * x[other] @ x[slot].T
            errors += both.reshape([boundaries if axis in (slot, other) else 1 for axis in range(slots)])
    return errors.float()


def _best(fused: "Tensor", parts: "Tensor", ranked: list[tuple[int, ...]]) -> tuple[tuple[int, ...], float]:
    """Of the finalists, and the error of the next that differs."""
    errors = {choice: median_error(fused, _sum(parts, choice)) for choice in ranked}
    first, *others = sorted(errors, key=lambda choice: errors[choice])
    return first, min((errors[o] for o in others), default=float("inf"))


def _sum(parts: "Tensor", choice: tuple[int, ...]) -> "Tensor":
    return sum((parts[slot, index] for slot, index in enumerate(choice)), start=parts.new_zeros(()))


def _spread(count: int, wanted: int) -> "Tensor":
    """Up to so many indices, evenly spread."""
    import torch

    return torch.arange(count) if count <= wanted else torch.linspace(0, count - 1, wanted).long()
