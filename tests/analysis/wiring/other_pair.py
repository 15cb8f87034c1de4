"""A pair of other sizes, in another layout, trained on nothing: its right reading is right by construction.
 The target's boundaries are random walks. What it says next is made of b1 and b3 at the position before,
and the head's fusion layer holds exactly that; its layer adds little. Everything the committed pair is not:
two states, a head narrower than its target, an embedding and an lm_head of its own, no reduced vocabulary,
names and config as speculators have them, biases and norms of queries and keys, bfloat16.
"""

import torch
from torch import Tensor

from analysis.wiring.head import Head
from analysis.wiring.target import open_target
from analysis.wiring.vocabulary import Pair
from results.hidden_states import HiddenStates
from results.wiring import D2t, Reading, Source

LAYERS, HIDDEN, NARROW, VOCABULARY, HEADS, HEAD_DIM = 6, 40, 24, 90, 3, 8
RIGHT = Reading(boundaries=(1, 3), d2t=D2t.ABSENT, embedding=Source.OWN, rope_theta=5e5)


def pair() -> Pair:
    made = _weights()
    layer = {"num_attention_heads": HEADS, "head_dim": HEAD_DIM, "rms_norm_eps": 1e-6, "rope_theta": 5e5}
    head_config = {"transformer_layer_config": layer, "architectures": ["Any"]}
    head = {name: tensor.bfloat16() for name, tensor in made.items() if not name.startswith("target.")}
    target = {
        "language_model.model.embed_tokens.weight": made["target.embedding"],
        "language_model.lm_head.weight": made["target.lm_head"],
        "language_model.model.norm.weight": torch.ones(HIDDEN),
    }
    target_config = {"text_config": {"num_hidden_layers": LAYERS, "rms_norm_eps": 1e-6}}
    return Pair(Head(head_config, head), open_target(target_config, target))


def text(sequences: int, rows: int = 40) -> list[HiddenStates]:
    """What the target says at p + 1 follows from b1 and b3 at p."""
    made, generator = _weights(), torch.Generator().manual_seed(2)
    out = []
    for _ in range(sequences):
        walk = torch.randn(LAYERS + 1, rows, HIDDEN, generator=generator).cumsum(0)
        seen = torch.cat([walk[1], walk[3]], dim=-1) @ made["model.fc.weight"].T
        said = torch.cat([torch.randn(1, NARROW, generator=generator), seen[:-1]])
        last = _normed(said) @ made["target.widening"].T
        ids = (last @ made["target.lm_head"].T).softmax(-1).multinomial(1, generator=generator).flatten()
        ids = torch.cat([torch.zeros(1, dtype=torch.long), ids])
        out.append(HiddenStates(ids, 1, dict(enumerate(walk)) | {LAYERS + 1: last}))
    return out


def _weights() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) * shape[-1] ** -0.5

    widening = torch.linalg.qr(random(HIDDEN, NARROW))[0]  # its columns are orthonormal
    lm_head, prefix = 4 * random(VOCABULARY, NARROW), "model.layers.0"
    return {
        "target.embedding": random(VOCABULARY, HIDDEN),
        "target.lm_head": lm_head @ widening.T,
        "target.widening": widening,
        "model.embed_tokens.weight": random(VOCABULARY, NARROW),
        "model.fc.weight": random(NARROW, 2 * HIDDEN),
        "model.norm.weight": torch.ones(NARROW),
        "lm_head.weight": lm_head,
        f"{prefix}.hidden_norm.weight": torch.ones(NARROW),
        f"{prefix}.input_layernorm.weight": torch.ones(NARROW),
        f"{prefix}.post_attention_layernorm.weight": torch.ones(NARROW),
        f"{prefix}.self_attn.q_proj.weight": random(HEADS * HEAD_DIM, 2 * NARROW),
        f"{prefix}.self_attn.q_proj.bias": random(HEADS * HEAD_DIM),
        f"{prefix}.self_attn.k_proj.weight": random(HEAD_DIM, 2 * NARROW),
        f"{prefix}.self_attn.v_proj.weight": random(HEAD_DIM, 2 * NARROW),
        f"{prefix}.self_attn.o_proj.weight": 0.05 * random(NARROW, HEADS * HEAD_DIM),
        f"{prefix}.self_attn.q_norm.weight": torch.ones(HEAD_DIM),
        f"{prefix}.self_attn.k_norm.weight": torch.ones(HEAD_DIM),
        f"{prefix}.mlp.gate_proj.weight": random(56, NARROW),
        f"{prefix}.mlp.up_proj.weight": random(56, NARROW),
        f"{prefix}.mlp.down_proj.weight": 0.05 * random(NARROW, 56),
    }


def _normed(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
