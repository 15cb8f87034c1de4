"""Arithmetic in float32 on weights that may be larger than the memory: part by part.

Beside the weights themselves, which are mapped from their files, no product takes more than `CHUNK`
numbers (64 MB) at a time, and its result.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1 << 24


def linear(
    x: "Tensor", weight: "Tensor", bias: "Tensor | None" = None, rows: "Tensor | None" = None
) -> "Tensor":
    """x [.., columns] times the weight [all, columns], or those of its rows: [.., rows]. In x's type."""
    import torch.nn.functional as F

    if rows is None and weight.dtype == x.dtype and weight.device == x.device:
        return F.linear(x, weight, None if bias is None else bias.to(x))
    count = weight.shape[0] if rows is None else len(rows)
    product = x.new_empty(*x.shape[:-1], count)
    size = max(1, CHUNK // weight.shape[1])
    for first in range(0, count, size):
        chosen = slice(first, first + size)
        part = weight[chosen] if rows is None else weight[rows[chosen].to(weight.device)]
        product[..., chosen] = F.linear(x, part.to(x))
    return product if bias is None else product + bias.to(x)


def rms_norm(x: "Tensor", weight: "Tensor | None", eps: float) -> "Tensor":
    """None is a norm whose weights nothing was loaded into: engines leave them at one."""
    scaled = x * inverse_rms(x, eps)
    return scaled if weight is None else scaled * weight.to(x)


def inverse_rms(x: "Tensor", eps: float) -> "Tensor":
    """[.., 1]"""
    import torch

    return torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def rounded(weight: "Tensor", bits: int) -> "Tensor":
    """The weight as integers of so many bits with one scale for the whole tensor would have it."""
    largest = (1 << (bits - 1)) - 1
    scale = weight.abs().max().float().item() / largest or 1.0
    return (weight / scale).round_().clamp_(-largest, largest).mul_(scale)


def random_rows(ids: "Tensor", width: int) -> "Tensor":
    """Rows as of weights into which nothing was loaded: [ids, width], for one id always the same."""
    import torch

    rows, generator = {}, torch.Generator()
    for number in ids.unique().tolist():
        rows[number] = torch.randn(width, generator=generator.manual_seed(number)) * width**-0.5
    return (
        torch.stack([rows[number] for number in ids.flatten().tolist()])
        .reshape(*ids.shape, width)
        .to(ids.device)
    )
