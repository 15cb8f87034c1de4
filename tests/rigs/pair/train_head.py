"""Trains the head on the target's own greedy text, step by step as it will be served.

Features and last states are computed once and kept in bfloat16: about 0.8 GB for 0.8 million tokens.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.rigs.pair.model import (
    DRAFT_VOCABULARY,
    VOCABULARY,
    Cache,
    Weights,
    features,
    generate,
    head_logits,
    head_step,
    new_head,
    target_logits,
    target_states,
)
from tests.rigs.pair.optimise import minimise
from tests.rigs.pair.train_target import windows

DRAFT_STEPS = 3
STEP_WEIGHT = 0.8  # of each draft step against the one before it
PROMPT, ANSWER = 80, 112  # tokens of corpus, then of the target's own
SAMPLES, EPOCHS, SEQUENCES = 4096, 4, 16
_AT_ONCE = 512


@dataclass(frozen=True)
class Answers:
    """What the target wrote and thought: N sequences of S tokens."""

    ids: Tensor  # [N, S]
    features: Tensor  # [N, S, 3 H]: the head's boundaries side by side
    last: Tensor  # [N, S, H]: bn


def answers(target: Weights, stream: Tensor, samples: int, seed: int) -> Answers:
    """The target's greedy answers to slices of the corpus, prompts included."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(stream) - PROMPT, (samples,), generator=generator)
    parts = []
    with torch.no_grad():
        for some in starts.split(_AT_ONCE):
            with torch.autocast("cpu", torch.bfloat16):
                ids = generate(target, windows(stream, some, PROMPT), ANSWER)
            parts += [_answered(target, few) for few in ids.split(32)]
    return Answers(*(torch.cat([getattr(p, name) for p in parts]) for name in ("ids", "features", "last")))


def _answered(target: Weights, ids: Tensor) -> Answers:
    states = target_states(target, ids)
    return Answers(ids, features(states).bfloat16(), states[-1].bfloat16())


def draft_ids(target: Weights, seen: Answers) -> Tensor:
    """The target's most frequent first choices, ascending: [draft vocabulary]."""
    choices = torch.cat([target_logits(target, last.float()).argmax(-1).flatten() for last in seen.last])
    counts = torch.bincount(choices, minlength=VOCABULARY)
    return counts.argsort(descending=True, stable=True)[:DRAFT_VOCABULARY].sort().values


def train_head(target: Weights, seen: Answers, seed: int) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    chosen = draft_ids(target, seen)
    head = new_head(target, chosen, generator)
    order = torch.cat([torch.randperm(len(seen.ids), generator=generator) for _ in range(EPOCHS)])
    batches = order.split(SEQUENCES)

    def loss(step: int) -> Tensor:
        rows = batches[step]
        batch = Answers(seen.ids[rows], seen.features[rows].float(), seen.last[rows].float())
        return _loss(target, head, chosen, batch)

    minimise(head, loss, len(batches))
    return head


def _loss(target: Weights, head: Weights, chosen: Tensor, batch: Answers) -> Tensor:
    """Cross-entropy against the target's distribution over the draft vocabulary, summed over the steps.

    Row p of step j is given the token p + 1 + j and compared with what the target says after it. Places
    where the target's first choice is outside the draft vocabulary do not count: no draft can be right.
    """
    logits = target_logits(target, batch.last).float()
    is_reachable = torch.isin(logits.argmax(-1), chosen)
    wanted = logits[..., chosen].softmax(-1)
    embedded = F.embedding(batch.ids, target["model.embed_tokens.weight"])
    hidden, cache, total = F.linear(batch.features, head["fc.weight"]), Cache(), torch.zeros(())
    for step in range(DRAFT_STEPS):
        ahead = step + 1
        hidden = head_step(head, embedded.roll(-ahead, dims=1), hidden, cache)
        guessed = head_logits(head, hidden)[:, :-ahead].float().log_softmax(-1)
        entropy = -(wanted[:, ahead:] * guessed).sum(-1)
        total = total + STEP_WEIGHT**step * entropy[is_reachable[:, ahead:]].mean()
    return total
