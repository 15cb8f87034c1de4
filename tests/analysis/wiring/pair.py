"""The committed pair as the doctor sees it, and dumps of it made with the pair's own code."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from analysis.wiring.head import Head
from analysis.wiring.target import open_target
from analysis.wiring.vocabulary import Pair
from results.hidden_states import HiddenStates
from results.wiring import Reading
from tests.rigs.pair.model import LAYERS, _norm, generate, target_states
from tests.rigs.pair.replay import HERE, read_prompts

RIGHT = Reading(boundaries=(2, 4, 5))

torch.set_num_threads(1)


def config(part: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((HERE / part / "config.json").read_text())
    return read


def weights(part: str) -> dict[str, Tensor]:
    loaded: dict[str, Tensor] = load_file(HERE / part / "model.safetensors")
    return loaded


def pair(head: Mapping[str, Tensor] | None = None, **changed: Any) -> Pair:
    """With the committed head, or another; entries of its config.json changed."""
    target = open_target(config("target"), weights("target"))
    return Pair(Head(config("head") | changed, weights("head") if head is None else head), target)


def prompts(count: int, workload_class: str = "code") -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(HERE / "target" / "tokenizer.json"))
    texts = read_prompts(HERE / "prompts.jsonl", workload_class)[:count]
    return [tokenizer.encode(text).ids for text in texts]


def ordinary_text(count: int) -> list[HiddenStates]:
    """Slices of held-out code, nothing generated."""
    return [states_of(torch.tensor(ids), len(ids)) for ids in prompts(count)]


def answered(count: int, tokens: int) -> list[HiddenStates]:
    """Prompts and greedy answers."""
    with torch.no_grad():
        target = weights("target")
        return [states_of(generate(target, torch.tensor([p]), tokens)[0], len(p)) for p in prompts(count)]


def states_of(ids: Tensor, prompt_tokens: int, boundaries: Sequence[int] = range(LAYERS + 1)) -> HiddenStates:
    target = weights("target")
    with torch.no_grad():
        states = target_states(target, ids[None])
        last = _norm(states[-1], target["model.norm.weight"])[0]
    kept = {b: states[b][0, :-1] for b in boundaries} | {LAYERS + 1: last[:-1]}
    return HiddenStates(ids, prompt_tokens, kept)
