"""The target and the EAGLE-3 head in plain torch, over dicts named like the checkpoints.

Written from the definition, not from an engine: that both engines agree with it is what the pair is
for. Shapes: B sequences, S tokens, H hidden, V vocabulary. Boundary b0 is the embedding, bj the output
of layer j - 1, bn the last before the final norm.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

VOCABULARY = 1024
LAYERS = 8
HIDDEN = 128
INTERMEDIATE = 384
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
POSITIONS = 2048
ROPE_THETA = 10000.0
NORM_EPS = 1e-5
BOUNDARIES = (2, LAYERS // 2, LAYERS - 3)  # what both engines pass to a head that names no layers
DRAFT_VOCABULARY = 640
DRAFT_INTERMEDIATE = 512

Weights = dict[str, Tensor]


@dataclass
class Cache:
    """Keys and values of one attention layer, [B, KV heads, S, head dim]: the target's in one
    tensor, the head's in one tensor a step."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)


def new_target(generator: torch.Generator) -> Weights:
    """Random weights; what writes into the residual stream starts at zero."""
    weights = {
        "model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN, generator=generator) * 0.5,
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": torch.randn(VOCABULARY, HIDDEN, generator=generator) * 0.02,
    }
    for layer in range(LAYERS):
        weights |= _new_layer(f"model.layers.{layer}", HIDDEN, INTERMEDIATE, generator)
    return weights


def new_head(target: Weights, draft_ids: Tensor, generator: torch.Generator) -> Weights:
    """A head that starts as the target's own last step on b5; draft_ids [draft vocabulary], ascending."""
    fc = torch.zeros(HIDDEN, len(BOUNDARIES) * HIDDEN)
    fc[:, -HIDDEN:] = torch.eye(HIDDEN)
    in_draft = torch.zeros(VOCABULARY, dtype=torch.bool)
    in_draft[draft_ids] = True
    return {
        "fc.weight": fc,
        "norm.weight": target["model.norm.weight"].clone(),
        "lm_head.weight": target["lm_head.weight"][draft_ids].clone(),
        "midlayer.hidden_norm.weight": torch.ones(HIDDEN),
        **_new_layer("midlayer", 2 * HIDDEN, DRAFT_INTERMEDIATE, generator),
        "d2t": draft_ids - torch.arange(len(draft_ids)),
        "t2d": in_draft,
    }


def _new_layer(prefix: str, width: int, intermediate: int, generator: torch.Generator) -> Weights:
    def random(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator) * columns**-0.5

    return {
        f"{prefix}.self_attn.q_proj.weight": random(HEADS * HEAD_DIM, width),
        f"{prefix}.self_attn.k_proj.weight": random(KV_HEADS * HEAD_DIM, width),
        f"{prefix}.self_attn.v_proj.weight": random(KV_HEADS * HEAD_DIM, width),
        f"{prefix}.self_attn.o_proj.weight": torch.zeros(HIDDEN, HEADS * HEAD_DIM),
        f"{prefix}.mlp.gate_proj.weight": random(intermediate, HIDDEN),
        f"{prefix}.mlp.up_proj.weight": random(intermediate, HIDDEN),
        f"{prefix}.mlp.down_proj.weight": torch.zeros(HIDDEN, intermediate),
        f"{prefix}.input_layernorm.weight": torch.ones(HIDDEN),
        f"{prefix}.post_attention_layernorm.weight": torch.ones(HIDDEN),
    }


def target_states(
    weights: Weights, ids: Tensor, caches: Sequence[Cache] | None = None, start: int = 0
) -> list[Tensor]:
    """Boundaries b0 .. bn, each [B, S, H], of ids [B, S] whose first position is `start`."""
    caches = caches or [Cache() for _ in range(LAYERS)]
    rotation = _rotation(torch.arange(start, start + ids.shape[1]))
    hidden = F.embedding(ids, weights["model.embed_tokens.weight"])
    boundaries = [hidden]
    for layer, cache in enumerate(caches):
        prefix = f"model.layers.{layer}"
        normed = _norm(hidden, weights[f"{prefix}.input_layernorm.weight"])
        hidden = hidden + _target_attention(weights, prefix, normed, rotation, cache)
        hidden = hidden + _mlp(weights, prefix, hidden)
        boundaries.append(hidden)
    return boundaries


def target_logits(weights: Weights, last_boundary: Tensor) -> Tensor:
    """[.., V] from bn [.., H]."""
    return F.linear(_norm(last_boundary, weights["model.norm.weight"]), weights["lm_head.weight"])


def generate(weights: Weights, ids: Tensor, count: int) -> Tensor:
    """ids [B, S] and `count` greedy tokens after them: [B, S + count]."""
    caches = [Cache() for _ in range(LAYERS)]
    start, fresh = 0, ids
    for _ in range(count):
        last = target_states(weights, fresh, caches, start)[-1][:, -1:]
        start += fresh.shape[1]
        fresh = target_logits(weights, last).argmax(-1)
        ids = torch.cat([ids, fresh], dim=1)
    return ids


def features(states: Sequence[Tensor], boundaries: Sequence[int] = BOUNDARIES) -> Tensor:
    """What the head is given: three of the target's states side by side, [B, S, 3 H]."""
    return torch.cat([states[b] for b in boundaries], dim=-1)


def head_step(weights: Weights, embedded: Tensor, hidden: Tensor, cache: Cache) -> Tensor:
    """One draft step of every row at once; the state handed to the next step, before the norm.

    Row p holds the state at position p and the embedding of the token drafted or served after it. In the
    first call rows see each other causally; in a later call, step j, row p sees the first call's rows
    up to p and its own steps, as a draft chain that leaves the served text at p does.
    """
    step = len(cache.keys)
    rotation = _rotation(torch.arange(step, step + hidden.shape[1]))
    normed = torch.cat(
        [
            _norm(embedded, weights["midlayer.input_layernorm.weight"]),
            _norm(hidden, weights["midlayer.hidden_norm.weight"]),
        ],
        dim=-1,
    )
    query, key, value = _project(weights, "midlayer", normed, rotation)
    cache.keys.append(key)
    cache.values.append(value)
    hidden = hidden + _join(weights, "midlayer", _chain_attention(query, cache))
    return hidden + _mlp(weights, "midlayer", hidden)


def head_logits(weights: Weights, hidden: Tensor) -> Tensor:
    """[B, S, draft vocabulary] from the state of a step."""
    return F.linear(_norm(hidden, weights["norm.weight"]), weights["lm_head.weight"])


def _chain_attention(query: Tensor, cache: Cache) -> Tensor:
    keys = [_for_each_head(key) for key in cache.keys]
    values = [_for_each_head(value) for value in cache.values]
    size = query.shape[2]
    future = torch.ones(size, size, dtype=torch.bool).triu(1)
    causal = (query @ keys[0].transpose(-1, -2)).masked_fill(future, float("-inf"))
    own = [(query * key).sum(-1, keepdim=True) for key in keys[1:]]
    probabilities = (torch.cat([causal, *own], dim=-1) * HEAD_DIM**-0.5).softmax(-1)
    mixed = probabilities[..., :size].to(values[0].dtype) @ values[0]
    for step, value in enumerate(values[1:]):
        mixed = mixed + probabilities[..., size + step, None] * value
    return mixed


def _target_attention(
    weights: Weights, prefix: str, normed: Tensor, rotation: tuple[Tensor, Tensor], cache: Cache
) -> Tensor:
    query, key, value = _project(weights, prefix, normed, rotation)
    cache.keys = [torch.cat([*cache.keys, key], dim=2)]
    cache.values = [torch.cat([*cache.values, value], dim=2)]
    keys, values = cache.keys[0], cache.values[0]
    fresh, seen = query.shape[2], keys.shape[2]
    future = torch.full((fresh, seen), float("-inf"), dtype=query.dtype).triu(1 + seen - fresh)
    grouped = (query * HEAD_DIM**-0.5).unflatten(1, (KV_HEADS, -1)).flatten(2, 3)  # no copies of the keys
    scores = (grouped @ keys.transpose(-1, -2)).unflatten(2, (-1, fresh))
    probabilities = (scores + future).softmax(-1).to(values.dtype).flatten(2, 3)
    mixed = (probabilities @ values).unflatten(2, (-1, fresh)).flatten(1, 2)
    return _join(weights, prefix, mixed)


def _for_each_head(grouped: Tensor) -> Tensor:
    return grouped.repeat_interleave(HEADS // KV_HEADS, dim=1)


def _project(
    weights: Weights, prefix: str, normed: Tensor, rotation: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = (
        F.linear(normed, weights[f"{prefix}.self_attn.{name}_proj.weight"])
        .unflatten(-1, (-1, HEAD_DIM))
        .transpose(1, 2)
        for name in "qkv"
    )
    return _rotate(query, rotation), _rotate(key, rotation), value


def _join(weights: Weights, prefix: str, mixed: Tensor) -> Tensor:
    return F.linear(mixed.transpose(1, 2).flatten(-2), weights[f"{prefix}.self_attn.o_proj.weight"])


def _mlp(weights: Weights, prefix: str, hidden: Tensor) -> Tensor:
    normed = _norm(hidden, weights[f"{prefix}.post_attention_layernorm.weight"])
    gate = F.silu(F.linear(normed, weights[f"{prefix}.mlp.gate_proj.weight"]))
    up = F.linear(normed, weights[f"{prefix}.mlp.up_proj.weight"])
    return F.linear(gate * up, weights[f"{prefix}.mlp.down_proj.weight"])


def _norm(hidden: Tensor, weight: Tensor) -> Tensor:
    scale: Tensor = torch.rsqrt(hidden.float().square().mean(-1, keepdim=True) + NORM_EPS)
    return hidden * scale * weight


def _rotation(positions: Tensor) -> tuple[Tensor, Tensor]:
    frequencies = ROPE_THETA ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.outer(positions.float(), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def _rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    cosine, sine = (t.to(x.dtype) for t in rotation)
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine
