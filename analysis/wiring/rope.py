"""Rotations of positions: frequencies for each kind of scaling that engines know for Llama heads."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from results.errors import UsageError
from results.wiring import Reading

if TYPE_CHECKING:
    from torch import Tensor

PLAIN = ("default", "mrope")  # in text, the three positions of mrope are one


def rotation(reading: Reading, positions: "Tensor", dimensions: int) -> tuple["Tensor", "Tensor"]:
    """Cosines and sines [positions, dimensions], for halves rotated against each other.

    Positions from `max_positions` on are taken for the last one that is defined.
    Raises UsageError for a scaling that is not known.
    """
    import torch

    if reading.max_positions is not None:
        positions = positions.clamp(max=reading.max_positions - 1)
    frequencies, size = _frequencies(reading.rope_theta, reading.rope_scaling or {}, dimensions)
    angles = torch.outer(positions.double(), frequencies.to(positions.device)).repeat(1, 2)
    return (angles.cos() * size).float(), (angles.sin() * size).float()


def kind_of(scaling: Mapping[str, Any]) -> str:
    """As the configs call it: under `rope_type`, formerly `type`."""
    return str(scaling.get("rope_type") or scaling.get("type") or "default")


def _frequencies(theta: float, scaling: Mapping[str, Any], dimensions: int) -> tuple["Tensor", float]:
    kind = kind_of(scaling)
    try:
        if kind in PLAIN:
            return _plain(theta, dimensions), 1.0
        if kind == "linear":
            return _plain(theta, dimensions) / float(scaling["factor"]), 1.0
        if kind == "dynamic":
            return _plain(_stretched(theta, scaling, dimensions), dimensions), 1.0
        if kind == "llama3":
            return _llama3(_plain(theta, dimensions), scaling), 1.0
        if kind in ("yarn", "deepseek_yarn"):
            return _yarn(theta, scaling, dimensions), _yarn_size(scaling)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise UsageError(f"cannot replay: the rope scaling {dict(scaling)} is not whole: {error!r}") from None
    raise UsageError(f"cannot replay: rope scaling of the kind {kind!r} is not known here")


def _plain(theta: float, dimensions: int) -> "Tensor":
    import torch

    return float(theta) ** -(torch.arange(0, dimensions, 2).double() / dimensions)


def _stretched(theta: float, scaling: Mapping[str, Any], dimensions: int) -> float:
    """A base for the longest text, as vLLM and SGLang have it: the same for shorter ones."""
    factor = float(scaling["factor"])
    return float(theta * (factor * factor - (factor - 1)) ** (dimensions / (dimensions - 2)))


def _llama3(plain: "Tensor", scaling: Mapping[str, Any]) -> "Tensor":
    factor, low, high = (float(scaling[n]) for n in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = float(scaling["original_max_position_embeddings"]) * plain / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return kept * plain + (1 - kept) * plain / factor


def _yarn(theta: float, scaling: Mapping[str, Any], dimensions: int) -> "Tensor":
    import torch

    trained = float(scaling["original_max_position_embeddings"])

    def dimension(turns: float) -> float:
        return dimensions * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first = max(math.floor(dimension(float(scaling.get("beta_fast") or 32))), 0)
    last = min(math.ceil(dimension(float(scaling.get("beta_slow") or 1))), dimensions - 1)
    ramp = ((torch.arange(dimensions // 2).double() - first) / max(last - first, 0.001)).clamp(0, 1)
    plain = _plain(theta, dimensions)
    return ramp * plain / float(scaling["factor"]) + (1 - ramp) * plain


def _yarn_size(scaling: Mapping[str, Any]) -> float:
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    factor = float(scaling["factor"])
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return _logarithmic(factor, scaling["mscale"]) / _logarithmic(factor, scaling["mscale_all_dim"])
    return _logarithmic(factor, 1.0)


def _logarithmic(factor: float, weight: float) -> float:
    return 0.1 * float(weight) * math.log(factor) + 1.0 if factor > 1 else 1.0
