"""What the head's layer is given: the target's states side by side, through the fusion layer.

That layer is linear, fc(a, b, c) = W1 a + W2 b + W3 c, and so is it after a norm, up to a factor for each
row: with the products of every part with every state at hand, another wiring costs a sum.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.wiring.head import Head
from analysis.wiring.tensors import inverse_rms, linear
from results.errors import UsageError
from results.wiring import Reading

if TYPE_CHECKING:
    from torch import Tensor

States = Mapping[int, "Tensor"]  # by boundary, [rows, H] in any type


@dataclass
class Fusion:
    """Of one sequence, for all readings that differ in their boundaries alone. Products are kept if asked."""

    head: Head
    reading: Reading
    states: States
    keeps: bool = False

    def __post_init__(self) -> None:
        self._kept: dict[tuple[int, int], Tensor] = {}

    def __call__(self, boundaries: tuple[int, ...]) -> "Tensor":
        """[rows, h]. Raises UsageError if the widths do not fit."""
        import torch

        if not self.reading.uses_fc:
            return self._unfused(boundaries)
        weight = self.head.weight("fc.weight", self.reading.weight_bits)
        if weight.shape[1] != len(boundaries) * self._width():
            raise UsageError(
                f"the fusion layer reads {weight.shape[1]} numbers, not {len(boundaries)} states"
            )
        fused = sum(self._product(slot, b) for slot, b in enumerate(boundaries))
        assert isinstance(fused, torch.Tensor)
        if self.reading.norm_before_fc:
            fused = fused * self._inverse_rms(boundaries)
        bias = self.head.optional("fc.bias")
        return fused if bias is None else fused + bias.to(fused)

    def _unfused(self, boundaries: tuple[int, ...]) -> "Tensor":
        import torch

        given = torch.cat([self._state(b) for b in boundaries], dim=-1)
        if given.shape[-1] != self.head.hidden:
            raise UsageError(f"states of {given.shape[-1]} numbers cannot go unfused into {self.head.hidden}")
        return given

    def _product(self, slot: int, boundary: int) -> "Tensor":
        if (slot, boundary) in self._kept:
            return self._kept[slot, boundary]
        width = self._width()
        columns = self.head.weight("fc.weight", self.reading.weight_bits)[
            :, slot * width : (slot + 1) * width
        ]
        product = linear(self._normed(slot, self._state(boundary)), columns)
        if self.keeps:
            self._kept[slot, boundary] = product
        return product

    def _normed(self, slot: int, state: "Tensor") -> "Tensor":
        """Norms up to the factor of a row; the norm of all states comes before those of each."""
        width, both = self._width(), self.reading.norm_before_fc and self.reading.fc_norm
        if both:
            raise UsageError("cannot replay: a norm of all states and norms of each, one after the other")
        if self.reading.norm_before_fc and (weight := self.head.optional("input_norm.weight")) is not None:
            return state * weight[slot * width : (slot + 1) * width].to(state)
        if self.reading.fc_norm:
            weight = self.head.optional(f"fc_norm.{slot}.weight")
            normed = state * inverse_rms(state, self.head.eps)
            return normed if weight is None else normed * weight.to(state)
        return state

    def _inverse_rms(self, boundaries: tuple[int, ...]) -> "Tensor":
        import torch

        squares = [self._state(b).square().mean(-1, keepdim=True) for b in boundaries]
        return torch.rsqrt(torch.stack(squares).mean(0) + self.head.eps)

    def _width(self) -> int:
        return int(next(iter(self.states.values())).shape[-1])

    def _state(self, boundary: int) -> "Tensor":
        if boundary not in self.states:
            raise UsageError(f"the dump does not hold the boundary {boundary}")
        state = self.states[boundary].to(self.head.device).float()
        return _lagged(state, self.reading.hidden_lag)


def _lagged(state: "Tensor", rows: int) -> "Tensor":
    """The first row stands for what lies before it."""
    import torch

    return torch.cat([state[:1].expand(rows, -1), state[: len(state) - rows]]) if rows else state
