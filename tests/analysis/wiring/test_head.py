"""The head is run as its reading says, and as the committed pair's own code runs it."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from analysis.wiring import head as head_module
from analysis.wiring.fusion import Fusion
from analysis.wiring.head import Chain, Head
from results.errors import UsageError
from tests.analysis.wiring import other_pair, pair
from tests.rigs.pair.model import Cache, head_step

ROWS = 9


def states(seed: int, boundaries: int = 4, hidden: int = 128) -> dict[int, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {b: torch.randn(ROWS, hidden, generator=generator) for b in range(boundaries)}


def chain_of(head: Head, reading: Any, steps: int = 3) -> list[torch.Tensor]:
    """The states of each step, with the same embeddings every time."""
    chain, hidden = (
        Chain(head, reading),
        torch.randn(1, ROWS, head.hidden, generator=torch.Generator().manual_seed(5)),
    )
    embedded = torch.randn(1, ROWS, head.hidden, generator=torch.Generator().manual_seed(6))
    out = []
    for _ in range(steps):
        normed, hidden = chain.step(embedded, hidden)
        out.append(normed[0])
    return out


def test_three_steps_are_those_of_the_pairs_own_code() -> None:
    weights, cache = pair.weights("head"), Cache()
    chain, generator = Chain(pair.pair().head, pair.RIGHT), torch.Generator().manual_seed(3)
    hidden = theirs = torch.randn(2, ROWS, 128, generator=generator)
    for _ in range(3):
        embedded = torch.randn(2, ROWS, 128, generator=generator)
        theirs = head_step(weights, embedded, theirs, cache)
        _, hidden = chain.step(embedded, hidden)
        torch.testing.assert_close(hidden, theirs, rtol=1e-4, atol=1e-5)


def test_attention_in_parts_is_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = chain_of(pair.pair().head, pair.RIGHT)
    monkeypatch.setattr(head_module, "QUERIES", 4)
    monkeypatch.setattr(head_module, "ROWS", 2)
    for one, other in zip(whole, chain_of(pair.pair().head, pair.RIGHT), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_large_weights_are_used_part_by_part_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {n: t.bfloat16() if t.is_floating_point() else t for n, t in pair.weights("head").items()}
    kept = chain_of(Head(pair.config("head"), stored), pair.RIGHT)
    monkeypatch.setattr(head_module, "KEPT_BYTES", 0)
    monkeypatch.setattr("analysis.wiring.tensors.CHUNK", 1000)
    for one, other in zip(kept, chain_of(Head(pair.config("head"), stored), pair.RIGHT), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "from_step"),
    [
        ({"norm_before_residual": True}, 0),
        ({"adds_residual": False}, 0),
        ({"rope_theta": 100.0}, 0),
        ({"max_positions": 4}, 0),
        ({"weight_bits": 4}, 0),
        ({"norm_output": True}, 1),
        ({"step_position_shift": 1}, 1),
    ],
)
def test_what_a_reading_says_shows_from_its_step_on(changed: dict[str, Any], from_step: int) -> None:
    right, other = (chain_of(pair.pair().head, r) for r in (pair.RIGHT, replace(pair.RIGHT, **changed)))
    differs = [not torch.allclose(a, b, atol=1e-6) for a, b in zip(right, other, strict=True)]
    assert differs == [step >= from_step for step in range(3)]


def test_sixteen_bits_are_nearly_all() -> None:
    right, rounded = (
        chain_of(pair.pair().head, r)[0] for r in (pair.RIGHT, replace(pair.RIGHT, weight_bits=16))
    )
    assert 0 < (right - rounded).abs().max() < 1e-2


def test_a_second_layer_reads_the_first_ones_states_alone() -> None:
    weights = pair.weights("head")
    second = {n.replace("midlayer", "layers.1"): t for n, t in weights.items() if n.startswith("midlayer")}
    narrow = {n: t[:, :128] if t.ndim == 2 and t.shape[1] == 256 else t for n, t in second.items()}
    silent = {n: torch.zeros_like(t) if "o_proj" in n or "down_proj" in n else t for n, t in narrow.items()}
    one, two, nothing = (pair.pair(weights | more).head for more in ({}, narrow, silent))
    assert (one.layers, two.layers) == (1, 2)
    assert not torch.allclose(chain_of(one, pair.RIGHT)[0], chain_of(two, pair.RIGHT)[0])
    assert torch.equal(chain_of(one, pair.RIGHT)[2], chain_of(nothing, pair.RIGHT)[2])


def test_names_of_other_layouts_are_the_same_head() -> None:
    renamed = {f"model.{n}".replace("midlayer.", "layers.0."): t for n, t in pair.weights("head").items()}
    assert torch.equal(
        chain_of(pair.pair(renamed).head, pair.RIGHT)[2], chain_of(pair.pair().head, pair.RIGHT)[2]
    )


def test_sizes_come_from_the_weights() -> None:
    head = other_pair.pair().head
    assert (head.hidden, head.heads, head.kv_heads, head.head_dim) == (24, 3, 1, 8)
    assert head.slots(other_pair.HIDDEN) == 2


def test_biases_and_norms_of_queries_count() -> None:
    made = other_pair.pair().head
    for left_out in ("layers.0.self_attn.q_proj.bias", "layers.0.self_attn.q_norm.weight"):
        tensors = {n: made.tensor(n) for n in made._names if n != left_out}
        without = Head(made.published, tensors)
        assert not torch.allclose(
            chain_of(without, other_pair.RIGHT)[0], chain_of(made, other_pair.RIGHT)[0], atol=1e-7
        )


@pytest.mark.parametrize("norms", [{}, {"norm_before_fc": True}, {"fc_norm": True}])
def test_the_fusion_in_products_is_the_layer_itself(norms: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(7)
    of_all, of_each = torch.rand(3 * 128, generator=generator), torch.rand(3, 128, generator=generator)
    own = {f"fc_norm.{n}.weight": w for n, w in enumerate(of_each)} | {"input_norm.weight": of_all}
    head, given = pair.pair(pair.weights("head") | own).head, states(4)
    fused = Fusion(head, replace(pair.RIGHT, **norms), given, keeps=True)((3, 0, 2))
    parts = [given[3], given[0], given[2]]
    if norms.get("fc_norm"):
        parts = [_normed(x) * w for x, w in zip(parts, of_each, strict=True)]
    whole = torch.cat(parts, dim=-1)
    whole = _normed(whole) * of_all if norms.get("norm_before_fc") else whole
    torch.testing.assert_close(fused, whole @ pair.weights("head")["fc.weight"].T, rtol=1e-4, atol=1e-4)


def _normed(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


def test_without_its_fusion_layer_it_takes_one_state_as_it_is() -> None:
    given, unfused = states(8), replace(pair.RIGHT, uses_fc=False)
    assert torch.equal(Fusion(pair.pair().head, unfused, given)((2,)), given[2])
    with pytest.raises(UsageError, match="384 numbers cannot go unfused"):
        Fusion(pair.pair().head, unfused, given)((0, 1, 2))


def test_a_lag_gives_the_states_of_earlier_rows() -> None:
    given, late = states(9), replace(pair.RIGHT, hidden_lag=2)
    fused, lagged = (Fusion(pair.pair().head, r, given)((0, 1, 2)) for r in (pair.RIGHT, late))
    torch.testing.assert_close(lagged[2:], fused[:-2])
    torch.testing.assert_close(lagged[:2], fused[:1].expand(2, -1))


def test_a_boundary_that_was_not_captured_is_named() -> None:
    with pytest.raises(UsageError, match="boundary 7"):
        Fusion(pair.pair().head, pair.RIGHT, states(1))((0, 1, 7))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("midlayer.self_attn.kv_a_proj_with_mqa.weight", "latent attention"),
        ("midlayer.mlp.experts.0.up_proj.weight", "mixture of experts"),
        ("midlayer.self_attn.q_proj.qweight", "packed weights"),
        ("fc.weight_scale", "scales of their own"),
    ],
)
def test_heads_of_another_kind_are_refused_by_name(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        pair.pair(pair.weights("head") | {name: torch.ones(1)})


def test_a_head_that_reads_one_hidden_size_is_no_eagle_3_head() -> None:
    weights = pair.weights("head")
    narrow = {n: t[:, :128] if t.ndim == 2 and t.shape[1] == 256 else t for n, t in weights.items()}
    with pytest.raises(UsageError, match="no EAGLE-3 head"):
        pair.pair(narrow)


def test_a_missing_tensor_and_an_unknown_activation_are_refused() -> None:
    with pytest.raises(UsageError, match=r"no tensor layers\.0\.self_attn\.q_proj\.weight"):
        pair.pair({"fc.weight": torch.ones(2, 2)})
    with pytest.raises(UsageError, match="'relu2'"):
        pair.pair(hidden_act="relu2")
