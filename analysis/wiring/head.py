"""An EAGLE-3 head of the Llama kind, run as a Reading says.

Written from the definition, for any sizes: what engines call `midlayer` or `layers.0`. Computed in float32
whatever the weights are stored in. Shapes: B candidates, S rows, h the head's hidden size, H the target's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from analysis.wiring.rope import rotation
from analysis.wiring.tensors import linear, rms_norm, rounded
from results.errors import UsageError
from results.wiring import Reading

if TYPE_CHECKING:
    from torch import Tensor

KEPT_BYTES = (
    1 << 29
)  # a head of fewer bytes in float32 is kept so; a larger one is read from its file each time
QUERIES = 256  # rows whose attention is computed at a time
ROWS = 512  # rows whose perceptron is computed at a time
NOT_LLAMA = {
    "kv_a_proj": "multi-head latent attention",
    "kv_b_proj": "multi-head latent attention",
    "mlp.experts": "a mixture of experts",
    "mlp.gate.weight": "a mixture of experts",
    "qweight": "packed weights",
    "weight_packed": "packed weights",
    "weight_scale": "weights with scales of their own",
    "qkv_proj": "query, key and value in one tensor",
    "gate_up_proj": "gate and up in one tensor",
}
LEGACY = {
    "midlayer.": "layers.0.",
    "aux_norm_low": "fc_norm.0",
    "aux_norm_mid": "fc_norm.1",
    "aux_norm_high": "fc_norm.2",
}


class Head:
    """Sizes and weights of a head. Raises UsageError if it is of a kind that cannot be replayed."""

    def __init__(
        self, config: Mapping[str, Any], tensors: Mapping[str, "Tensor"], device: str = "cpu"
    ) -> None:
        self.config = layer_config(config)
        self.published = config
        self.device = device
        self._tensors = tensors
        self._names = {_plain_name(name): name for name in tensors}
        self._kept: dict[tuple[str, int | None], Tensor] = {}
        _refuse_others(self._names, self.config)
        query, key = (self._tensor(f"layers.0.self_attn.{n}_proj.weight") for n in "qk")
        self.hidden = self._tensor("layers.0.self_attn.o_proj.weight").shape[0]
        if query.shape[1] != 2 * self.hidden:
            raise UsageError(
                f"cannot replay: the head's queries read {query.shape[1]} numbers, not twice its hidden size "
                f"of {self.hidden}: no EAGLE-3 head"
            )
        self.head_dim = _head_dim(self.config, query.shape[0])
        self.heads, self.kv_heads = query.shape[0] // self.head_dim, key.shape[0] // self.head_dim
        self.rotated = int(self.head_dim * float(self.config.get("partial_rotary_factor") or 1.0))
        self.layers = 1 + max(int(n.split(".")[1]) for n in self._names if n.startswith("layers."))
        self.eps = float(self.config.get("rms_norm_eps", 1e-6))
        self.keeps = device != "cpu" or 4 * sum(self._size(n) for n in self._weights()) <= KEPT_BYTES

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name, as if the head were in the common layout."""
        return name in self._names

    def tensor(self, name: str) -> "Tensor":
        """As it is stored. Raises UsageError if there is none."""
        return self._tensor(name)

    def weight(self, name: str, bits: int | None = None) -> "Tensor":
        """As it is stored, or in float32 if the head is small enough; rounded if bits are given."""
        if (name, bits) not in self._kept:
            stored = self._tensor(name)
            stored = stored.to(self.device).float() if self.keeps else stored
            stored = stored if bits is None else rounded(stored, bits)
            if not self.keeps:
                return stored
            self._kept[name, bits] = stored
        return self._kept[name, bits]

    def optional(self, name: str) -> "Tensor | None":
        return self.weight(name) if self.has(name) else None

    def slots(self, target_hidden: int) -> int:
        """How many of the target's states the head reads."""
        if not self.has("fc.weight"):
            return 1
        width = self._tensor("fc.weight").shape[1]
        if width % target_hidden:
            raise UsageError(
                f"the fusion layer reads {width} numbers, no multiple of the target's {target_hidden}"
            )
        return int(width // target_hidden)

    def _weights(self) -> Sequence[str]:
        return [n for n in self._names if n.startswith(("layers.", "fc", "lm_head", "norm", "input_norm"))]

    def _size(self, name: str) -> int:
        return int(self._tensor(name).numel())

    def _tensor(self, name: str) -> "Tensor":
        if name not in self._names:
            raise UsageError(f"cannot replay: the head has no tensor {name}")
        return self._tensors[self._names[name]]


@dataclass
class Chain:
    """Draft steps of every row at once.

    In the first step rows see each other causally. In a later one row p sees the first step's rows up to p
    and its own steps, as a chain does that leaves the served text at p.
    """

    head: Head
    reading: Reading
    steps: int = 0
    _keys: list[list["Tensor"]] = field(default_factory=list)  # by layer, by step: [B, KV heads, S, head dim]
    _values: list[list["Tensor"]] = field(default_factory=list)

    def step(self, embedded: "Tensor", hidden: "Tensor") -> tuple["Tensor", "Tensor"]:
        """Of embeddings and states [B, S, h]: what the logits are made of, and the next states."""
        rotated = self._rotation(hidden)
        for layer in range(self.head.layers):
            given, residual = self._given(layer, embedded, hidden)
            mixed = self._attention(layer, given, rotated)
            hidden = mixed + residual if self.reading.adds_residual or layer else mixed
            hidden = hidden + self._perceptron(layer, hidden)
        self.steps += 1
        normed = self._norm("norm", hidden)
        return normed, normed if self.reading.norm_output else hidden

    def _given(self, layer: int, embedded: "Tensor", hidden: "Tensor") -> tuple["Tensor", "Tensor"]:
        import torch

        if layer:
            own = f"layers.{layer}.input_layernorm"
            return self._norm(
                own if self.head.has(f"{own}.weight") else f"layers.{layer}.hidden_norm", hidden
            ), hidden
        normed = self._norm("layers.0.hidden_norm", hidden)
        beside = self._norm("layers.0.input_layernorm", embedded).expand_as(normed)
        return torch.cat([beside, normed], dim=-1), normed if self.reading.norm_before_residual else hidden

    def _rotation(self, hidden: "Tensor") -> tuple["Tensor", "Tensor"]:
        import torch

        shift = self.steps + (self.reading.step_position_shift if self.steps else 0)
        positions = (torch.arange(hidden.shape[1], device=hidden.device) + shift).clamp(min=0)
        return rotation(self.reading, positions, self.head.rotated)

    def _attention(self, layer: int, given: "Tensor", rotated: tuple["Tensor", "Tensor"]) -> "Tensor":
        if layer == len(self._keys):
            self._keys.append([])
            self._values.append([])
        query, key = (_rotate(self._normed_heads(layer, n, given), rotated) for n in "qk")
        self._keys[layer].append(key)
        self._values[layer].append(self._heads(layer, "v", given))
        mixed = _attend(query, self._keys[layer], self._values[layer])
        return self._linear(f"layers.{layer}.self_attn.o_proj", mixed.transpose(1, 2).flatten(-2))

    def _normed_heads(self, layer: int, name: str, given: "Tensor") -> "Tensor":
        heads, norm = self._heads(layer, name, given), f"layers.{layer}.self_attn.{name}_norm"
        return self._norm(norm, heads) if self.head.has(f"{norm}.weight") else heads

    def _heads(self, layer: int, name: str, given: "Tensor") -> "Tensor":
        """[B, heads, S, head dim]"""
        projected = self._linear(f"layers.{layer}.self_attn.{name}_proj", given)
        return projected.unflatten(-1, (-1, self.head.head_dim)).transpose(1, 2)

    def _perceptron(self, layer: int, hidden: "Tensor") -> "Tensor":
        import torch

        prefix, size = f"layers.{layer}.mlp", max(1, ROWS // hidden.shape[0])
        return torch.cat([self._gated(prefix, layer, part) for part in hidden.split(size, dim=1)], dim=1)

    def _gated(self, prefix: str, layer: int, hidden: "Tensor") -> "Tensor":
        normed = self._norm(f"layers.{layer}.post_attention_layernorm", hidden)
        gate = _activation(self.head.config)(self._linear(f"{prefix}.gate_proj", normed))
        return self._linear(f"{prefix}.down_proj", gate.mul_(self._linear(f"{prefix}.up_proj", normed)))

    def _linear(self, name: str, x: "Tensor") -> "Tensor":
        weight = self.head.weight(f"{name}.weight", self.reading.weight_bits)
        return linear(x, weight, self.head.optional(f"{name}.bias"))

    def _norm(self, name: str, x: "Tensor") -> "Tensor":
        return rms_norm(x, self.head.optional(f"{name}.weight"), self.head.eps)


def layer_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a head's config.json that describes its layer: speculators nest it."""
    nested = config.get("transformer_layer_config")
    return nested if isinstance(nested, Mapping) else config


def _plain_name(name: str) -> str:
    name = name.removeprefix("model.")
    for legacy, common in LEGACY.items():
        name = name.replace(legacy, common)
    return name


def _refuse_others(names: Mapping[str, str], config: Mapping[str, Any]) -> None:
    for part, kind in NOT_LLAMA.items():
        if any(part in name for name in names):
            raise UsageError(
                f"cannot replay: the head has {kind} ({part}); only heads of the Llama kind are known"
            )
    _activation(config)


def _head_dim(config: Mapping[str, Any], queries: int) -> int:
    if config.get("head_dim"):
        return int(config["head_dim"])
    if config.get("num_attention_heads"):
        return queries // int(config["num_attention_heads"])
    raise UsageError("cannot replay: the head's config.json has neither head_dim nor num_attention_heads")


def _activation(config: Mapping[str, Any]) -> Any:
    from functools import partial

    import torch.nn.functional as F

    name = str(config.get("hidden_act", "silu"))
    known = {"silu": F.silu, "gelu": F.gelu, "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh")}
    if name not in known:
        raise UsageError(f"cannot replay: the activation {name!r} is not known here")
    return known[name]


def _rotate(heads: "Tensor", rotated: tuple["Tensor", "Tensor"]) -> "Tensor":
    import torch

    cosine, sine = rotated
    turned, kept = heads[..., : cosine.shape[-1]], heads[..., cosine.shape[-1] :]
    first, second = turned.chunk(2, dim=-1)
    return torch.cat([turned * cosine + torch.cat([-second, first], dim=-1) * sine, kept], dim=-1)


def _attend(query: "Tensor", keys: Sequence["Tensor"], values: Sequence["Tensor"]) -> "Tensor":
    """[B, heads, S, head dim]; queries of one group of heads share keys without copies of them."""
    import torch

    grouped = (query * query.shape[-1] ** -0.5).unflatten(1, (keys[0].shape[1], -1))
    firsts = range(0, query.shape[2], QUERIES)
    parts = [_attend_from(first, grouped[..., first : first + QUERIES, :], keys, values) for first in firsts]
    return torch.cat(parts, dim=3).flatten(1, 2)


def _attend_from(
    first: int, query: "Tensor", keys: Sequence["Tensor"], values: Sequence["Tensor"]
) -> "Tensor":
    """Of rows from `first` on: [B, KV heads, group, rows, head dim]."""
    import torch

    rows = query.shape[3]
    seen, own = first + rows, slice(first, first + rows)
    causal = (query.flatten(2, 3) @ keys[0][:, :, :seen].transpose(-1, -2)).unflatten(2, (-1, rows))
    future = torch.ones(rows, seen, dtype=torch.bool, device=query.device).triu(1 + first)
    scores = [causal.masked_fill_(future, float("-inf"))]
    scores += [(query * key[:, :, None, own]).sum(-1, keepdim=True) for key in keys[1:]]
    shares = torch.cat(scores, dim=-1).softmax(-1)
    mixed = (shares[..., :seen].flatten(2, 3) @ values[0][:, :, :seen]).unflatten(2, (-1, rows))
    for step, value in enumerate(values[1:]):
        mixed = mixed + shares[..., seen + step, None] * value[:, :, None, own]
    return mixed
