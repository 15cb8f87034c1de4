"""Predicts, without an engine, what a chain of K drafts will be accepted when greedy text is served.

    python -m tests.rigs.pair.replay [--drafts 3] [--prompts 24] [--tokens 64] [--class code]

Counts are those of the engines: a round verifies K drafts after the last served token, and its accepted
drafts count in full even where the answer ends within the round.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from tests.rigs.pair.model import (
    Cache,
    Weights,
    features,
    generate,
    head_logits,
    head_step,
    target_states,
)

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Replay:
    """Sums over the prompts of a replay."""

    rounds: int
    accepted: tuple[int, ...]  # rounds in which at least the first, second, .. draft was accepted

    @property
    def accept_length(self) -> float:
        """Tokens a round: the accepted drafts and the target's own."""
        return 1 + sum(self.accepted) / self.rounds


def replay(
    target: Weights, head: Weights, prompts: Sequence[Sequence[int]], drafts: int, tokens: int
) -> Replay:
    """Token ids of prompts, each answered with `tokens` greedy tokens in rounds of `drafts`."""
    with torch.no_grad():
        counts = [n for prompt in prompts for n in accepted_counts(target, head, prompt, drafts, tokens)]
    return Replay(len(counts), tuple(sum(n > place for n in counts) for place in range(drafts)))


def accepted_counts(
    target: Weights, head: Weights, prompt: Sequence[int], drafts: int, tokens: int
) -> list[int]:
    """Drafts accepted in each round of one prompt's answer."""
    ids = generate(target, torch.tensor([list(prompt)]), tokens + drafts)
    proposed = chains(target, head, ids, drafts)
    is_right = proposed == ids[0, 2:].unfold(0, drafts, 1)
    lengths = is_right.long().cumprod(-1).sum(-1).tolist()
    counts = []
    served = 1  # the prompt's own pass gives the first token
    while served < tokens:
        counts.append(lengths[len(prompt) + served - 2])
        served += counts[-1] + 1
    return counts


def chains(target: Weights, head: Weights, ids: Tensor, drafts: int) -> Tensor:
    """What is drafted wherever a round may begin in ids [1, S]: [S - 1 - drafts, drafts] target ids.

    Row p knows the target's states up to p and the token p + 1; it proposes the tokens p + 2 and on.
    """
    hidden = F.linear(features(target_states(target, ids)), head["fc.weight"])[:, :-1]
    cache, fresh, proposed = Cache(), ids[:, 1:], []
    for _ in range(drafts):
        embedded = F.embedding(fresh, target["model.embed_tokens.weight"])
        hidden = head_step(head, embedded, hidden, cache)
        drafted = head_logits(head, hidden).argmax(-1)
        fresh = drafted + head["d2t"][drafted]
        proposed.append(fresh)
    return torch.stack(proposed, dim=-1)[0, : ids.shape[1] - 1 - drafts]


def read_prompts(path: Path, workload_class: str) -> list[str]:
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    return [e["prompt"] for e in entries if e["class"] == workload_class]


def main() -> None:
    parser = argparse.ArgumentParser(description="Greedy accept length of the pair, replayed offline.")
    parser.add_argument("--target", type=Path, default=HERE / "target")
    parser.add_argument("--head", type=Path, default=HERE / "head")
    parser.add_argument("--class", dest="workload_class", default="code")
    parser.add_argument("--drafts", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=64)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = Tokenizer.from_file(str(asked.target / "tokenizer.json"))
    texts = read_prompts(HERE / "prompts.jsonl", asked.workload_class)[: asked.prompts]
    seen = replay(
        load_file(asked.target / "model.safetensors"),
        load_file(asked.head / "model.safetensors"),
        [tokenizer.encode(text).ids for text in texts],
        asked.drafts,
        asked.tokens,
    )
    sys.stdout.write(
        f"{len(texts)} prompts: accept length {seen.accept_length:.3f}, {seen.rounds} rounds, "
        f"accepted by position {'/'.join(map(str, seen.accepted))}\n"
    )


if __name__ == "__main__":
    main()
