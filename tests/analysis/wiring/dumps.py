"""Dumps of two targets, the tiny pair's and a random one of other sizes, as a capture would write them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from results.hidden_states import HiddenStates
from tests.rigs.pair import model
from tests.rigs.pair.replay import HERE, read_prompts

torch.set_num_threads(1)
ANSWER = 24
GREATEST = 150.0  # position 0 against the others, as in large models

States = Mapping[int, Tensor]
Give = Callable[[States], Tensor]  # what the drafter is given, of a sequence's states


@dataclass(frozen=True, eq=False)
class Text:
    """One sequence; parts[r][j] is boundary j as rank r has it before the last sum."""

    ids: Tensor
    prompt_tokens: int
    states: dict[int, Tensor]


@dataclass(frozen=True, eq=False)
class Source:
    layers: int
    hidden: int
    texts: tuple[Text, ...]
    partial: Callable[[Text, int, int], dict[int, Tensor]]  # of a text, ranks and a rank


@cache
def the_pair() -> Source:
    weights = load_file(HERE / "target" / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(HERE / "target" / "tokenizer.json"))
    prompts = [tokenizer.encode(text).ids for text in read_prompts(HERE / "prompts.jsonl", "code")[:8]]
    with torch.no_grad():
        texts = tuple(_pair_text(weights, prompt) for prompt in prompts)

    def partial(text: Text, ranks: int, rank: int) -> dict[int, Tensor]:
        return {j: _pair_partial(weights, text, j, ranks, rank) for j in range(1, model.LAYERS + 1)}

    return Source(model.LAYERS, model.HIDDEN, texts, partial)


def pair_readout() -> tuple[Tensor, Tensor]:
    """lm_head and the final norm."""
    weights = load_file(HERE / "target" / "model.safetensors")
    return weights["lm_head.weight"], weights["model.norm.weight"]


def pair_fc() -> Tensor:
    return load_file(HERE / "head" / "model.safetensors")["fc.weight"]


def _pair_text(weights: model.Weights, prompt: Sequence[int]) -> Text:
    ids = model.generate(weights, torch.tensor([list(prompt)]), ANSWER)
    states = [state[0, :-1] for state in model.target_states(weights, ids)]  # the last token has no row
    return Text(ids[0], len(prompt), _with_norm(states, weights["model.norm.weight"]))


def _pair_partial(weights: model.Weights, text: Text, boundary: int, ranks: int, rank: int) -> Tensor:
    """The down projection of the layer before is split by its columns; the rest is whole on each rank."""
    prefix = f"model.layers.{boundary - 1}"
    before = text.states[boundary - 1][None]
    normed = model._norm(before, weights[f"{prefix}.input_layernorm.weight"])
    rotation = model._rotation(torch.arange(before.shape[1]))
    middle = before + model._target_attention(weights, prefix, normed, rotation, model.Cache())
    normed = model._norm(middle, weights[f"{prefix}.post_attention_layernorm.weight"])
    gate = F.silu(F.linear(normed, weights[f"{prefix}.mlp.gate_proj.weight"]))
    active = gate * F.linear(normed, weights[f"{prefix}.mlp.up_proj.weight"])
    return (middle + _rank_product(active, weights[f"{prefix}.mlp.down_proj.weight"], ranks, rank))[0]


def _rank_product(active: Tensor, weight: Tensor, ranks: int, rank: int) -> Tensor:
    return F.linear(active.chunk(ranks, dim=-1)[rank], weight.chunk(ranks, dim=-1)[rank])


@cache
def random_target(layers: int = 5, hidden: int = 96, seed: int = 1) -> Source:
    """No transformer, but a residual stream: each layer adds a causal mean and a product split over ranks."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    embedding = random(50, hidden)
    mix = [random(hidden, hidden) * 0.3 * hidden**-0.5 for _ in range(layers)]
    up = [random(2 * hidden, hidden) * hidden**-0.5 for _ in range(layers)]
    down = [random(hidden, 2 * hidden) * hidden**-0.5 for _ in range(layers)]

    def middle(state: Tensor, layer: int) -> Tensor:
        normed = F.rms_norm(state, (hidden,))
        counts = torch.arange(1, len(state) + 1)[:, None]
        return state + (normed.cumsum(0) / counts) @ mix[layer].T

    def active(state: Tensor, layer: int) -> Tensor:
        return torch.relu(F.rms_norm(state, (hidden,)) @ up[layer].T)

    def text(length: int, prompt_tokens: int) -> Text:
        ids = torch.randint(50, (length,), generator=generator)
        states = [embedding[ids[:-1]]]
        for layer in range(layers):
            half = middle(states[-1], layer)
            states.append(half + active(half, layer) @ down[layer].T)
        return Text(ids, prompt_tokens, _with_norm(states, torch.ones(hidden)))

    def partial(text: Text, ranks: int, rank: int) -> dict[int, Tensor]:
        halves = [middle(text.states[layer], layer) for layer in range(layers)]
        return {
            layer + 1: half + _rank_product(active(half, layer), down[layer], ranks, rank)
            for layer, half in enumerate(halves)
        }

    return Source(layers, hidden, tuple(text(40 + 3 * i, 20 + i) for i in range(5)), partial)


def _with_norm(states: Sequence[Tensor], weight: Tensor) -> dict[int, Tensor]:
    normed = F.rms_norm(states[-1], (len(weight),), weight, 1e-5)
    return dict(enumerate([*states, normed]))


def beside(boundaries: Sequence[int]) -> Give:
    """States side by side, as an engine hands them over."""
    return lambda states: torch.cat([states[b] for b in boundaries], dim=-1)


def dump(
    source: Source,
    give: Give,
    *,
    dtype: torch.dtype = torch.float32,
    noise: float = 0.0,
    captured: Sequence[int] | None = None,
    outlier: bool = False,
    token_shift: int | None = 1,
) -> Iterator[HiddenStates]:
    """`noise` is that of every number the drafter is given, relative; all is rounded to dtype."""
    generator = torch.Generator().manual_seed(7)
    for text in source.texts:
        states = _with_outlier(text.states) if outlier else text.states
        given = give(states)
        error = torch.randn(given.shape, generator=generator) * given
        rows = len(given)
        yield HiddenStates(
            text.ids,
            text.prompt_tokens,
            {b: states[b].to(dtype) for b in (states if captured is None else captured)},
            served_aux=(given + noise * error).to(dtype),
            served_ids=None if token_shift is None else _shifted(text.ids, token_shift, rows),
        )


def fused(sequences: Iterator[HiddenStates], weight: Tensor, noise: float = 0.0) -> Iterator[HiddenStates]:
    """As a dump that holds the fusion layer's output alone."""
    generator = torch.Generator().manual_seed(8)
    for sequence in sequences:
        assert sequence.served_aux is not None
        output = sequence.served_aux.float() @ weight.T
        error = torch.randn(output.shape, generator=generator) * output
        yield replace(sequence, served_aux=None, served_fc=output + noise * error)


def _shifted(ids: Tensor, shift: int, rows: int) -> Tensor:
    places = torch.arange(rows) + shift
    return torch.where((places >= 0) & (places < len(ids)), ids[places.clamp(0, len(ids) - 1)], -1)


def _with_outlier(states: States) -> dict[int, Tensor]:
    """Position 0 as it is in large models: very long, and alike in most layers."""
    direction = torch.zeros(next(iter(states.values())).shape[-1])
    direction[3] = 1.0
    spoilt = {b: state.clone() for b, state in states.items()}
    for boundary, state in spoilt.items():
        if boundary > 0:
            state[0] = direction * state[1:].norm(dim=-1).median() * GREATEST
    return spoilt
