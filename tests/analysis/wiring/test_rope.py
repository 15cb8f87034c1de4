"""Frequencies are those of transformers 5 (`modeling_rope_utils`), whose figures stand here."""

import math
from typing import Any

import pytest
import torch

from analysis.wiring.rope import rotation
from results.errors import UsageError
from results.wiring import Reading

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
KNOWN: list[tuple[dict[str, Any], list[float], float]] = [
    (
        {**LLAMA3, "original_max_position_embeddings": 8192},
        [1, 0.193923, 0.037606, 0.00729267, 0.000524846, 3.4281e-05, 6.64787e-06, 1.28917e-06],
        1.0,
    ),
    (
        {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096},
        [1, 0.193923, 0.0282045, 0.00364633, 0.000353553, 6.8562e-05, 1.32957e-05, 2.57835e-06],
        1.138629436111989,
    ),
    (
        {
            "rope_type": "yarn",
            "factor": 40.0,
            "original_max_position_embeddings": 4096,
            "mscale": 1.0,
            "mscale_all_dim": 0.8,
        },
        [1, 0.193923, 0.0253841, 0.00255243, 3.53553e-05, 6.8562e-06, 1.32957e-06, 2.57835e-07],
        1.0569662567531275,
    ),
    (
        {"rope_type": "linear", "factor": 4.0},
        [0.25, 0.0484807, 0.00940151, 0.00182317, 0.000353553, 6.8562e-05, 1.32957e-05, 2.57835e-06],
        1.0,
    ),
]


def reading(**changed: Any) -> Reading:
    return Reading((1,), rope_theta=5e5, **changed)


@pytest.mark.parametrize(("scaling", "frequencies", "size"), KNOWN)
def test_known_scalings(scaling: dict[str, Any], frequencies: list[float], size: float) -> None:
    cosine, sine = rotation(reading(rope_scaling=scaling), torch.tensor([0, 1]), 16)
    assert cosine[0].tolist() == pytest.approx([size] * 16)
    turned = torch.atan2(sine[1], cosine[1])
    assert turned.tolist() == pytest.approx(frequencies * 2, rel=1e-4)


def test_dynamic_scaling_has_one_base_for_all_lengths_as_engines_have_it() -> None:
    _, sine = rotation(reading(rope_scaling={"type": "dynamic", "factor": 2.0}), torch.tensor([1]), 16)
    base = 5e5 * 3 ** (16 / 14)
    assert sine[0, 1].item() == pytest.approx(math.sin(base ** (-2 / 16)))


@pytest.mark.parametrize(
    "scaling", [None, {"rope_type": "default"}, {"type": "mrope", "mrope_section": [2, 3, 3]}]
)
def test_plain(scaling: dict[str, Any] | None) -> None:
    _, sine = rotation(reading(rope_scaling=scaling), torch.tensor([3]), 4)
    assert sine[0].tolist() == pytest.approx([math.sin(3), math.sin(3 / math.sqrt(5e5))] * 2)


def test_positions_end_where_they_are_not_defined() -> None:
    cosine, _ = rotation(reading(max_positions=5), torch.arange(8), 4)
    assert cosine[4].equal(cosine[7]) and not cosine[3].equal(cosine[4])


@pytest.mark.parametrize(
    "scaling", [{"rope_type": "longrope", "factor": 2.0}, {"rope_type": "llama3", "factor": 2.0}]
)
def test_unknown_or_incomplete_scaling_is_refused(scaling: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="cannot replay"):
        rotation(reading(rope_scaling=scaling), torch.arange(2), 16)
