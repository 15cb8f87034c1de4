"""Trains the target: next-token prediction on windows of the corpus."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.rigs.pair.corpus import BOS
from tests.rigs.pair.model import Weights, new_target, target_logits, target_states
from tests.rigs.pair.optimise import minimise

STEPS = 750
SEQUENCES, LENGTH = 16, 256


def train_target(stream: Tensor, seed: int) -> Weights:
    """stream [tokens]: each window is seen once, begun by `<s>` as a prompt is."""
    generator = torch.Generator().manual_seed(seed)
    weights = new_target(generator)
    starts = _starts(len(stream), STEPS * SEQUENCES, generator)

    def loss(step: int) -> Tensor:
        batch = windows(stream, starts[step * SEQUENCES : (step + 1) * SEQUENCES], LENGTH + 1)
        logits = target_logits(weights, target_states(weights, batch[:, :-1])[-1])
        return F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())

    minimise(weights, loss, STEPS)
    return weights


def windows(stream: Tensor, starts: Tensor, length: int) -> Tensor:
    """[starts, length]: `<s>`, then length - 1 tokens from each start."""
    inside = stream[starts[:, None] + torch.arange(length - 1)]
    return torch.cat([torch.full((len(starts), 1), BOS), inside], dim=1)


def top_1(weights: Weights, stream: Tensor, seed: int) -> float:
    """Share of held-out tokens that are the target's first choice."""
    generator = torch.Generator().manual_seed(seed)
    batch = windows(stream, torch.randint(len(stream) - LENGTH, (64,), generator=generator), LENGTH + 1)
    with torch.no_grad():
        guesses = target_logits(weights, target_states(weights, batch[:, :-1])[-1]).argmax(-1)
    return float((guesses == batch[:, 1:]).float().mean())


def _starts(tokens: int, count: int, generator: torch.Generator) -> Tensor:
    """Evenly spaced over the stream, in random order: no token is seen twice before all are seen once."""
    offset = int(torch.randint(LENGTH, (1,), generator=generator))
    spread = torch.linspace(offset, tokens - LENGTH - 1, count).long()
    return spread[torch.randperm(count, generator=generator)]
