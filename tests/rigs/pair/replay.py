"""Predicts, without an engine, what a chain of K drafts will be accepted when greedy text is served.

    python -m tests.rigs.pair.replay [--drafts 3] [--prompts 24] [--tokens 64] [--class code]

Needs torch, safetensors and tokenizers, which the venv of either rig has. Prints one line of JSON.
Counts are those of the engines: a round verifies K drafts after the last served token, and its accepted
drafts count in full even where the answer ends within the round.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from tests.rigs.pair.model import (
    BOUNDARIES,
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

    prompts: int
    rounds: int
    accepted: tuple[int, ...]  # rounds in which at least the first, second, .. draft was accepted

    @property
    def accept_length(self) -> float:
        """Tokens a round: the accepted drafts and the target's own."""
        return 1 + sum(self.accepted) / self.rounds


@dataclass(frozen=True)
class Pair:
    """The weights, and which of the target's boundaries the head is given."""

    target: Weights
    head: Weights
    boundaries: tuple[int, ...] = BOUNDARIES


def replay(pair: Pair, prompts: Sequence[Sequence[int]], drafts: int, tokens: int) -> Replay:
    """Token ids of prompts, each answered with `tokens` greedy tokens in rounds of `drafts`."""
    with torch.no_grad():
        counts = [n for prompt in prompts for n in accepted_counts(pair, prompt, drafts, tokens)]
    at_least = tuple(sum(n > place for n in counts) for place in range(drafts))
    return Replay(len(prompts), len(counts), at_least)


def accepted_counts(pair: Pair, prompt: Sequence[int], drafts: int, tokens: int) -> list[int]:
    """Drafts accepted in each round of one prompt's answer."""
    ids = generate(pair.target, torch.tensor([list(prompt)]), tokens + drafts)
    is_right = chains(pair, ids, drafts) == ids[0, 2:].unfold(0, drafts, 1)
    lengths = is_right.long().cumprod(-1).sum(-1).tolist()
    counts: list[int] = []
    served = 1  # the prompt's own pass gives the first token
    while served < tokens:
        counts.append(lengths[len(prompt) + served - 2])
        served += counts[-1] + 1
    return counts


def chains(pair: Pair, ids: Tensor, drafts: int) -> Tensor:
    """What is drafted wherever a round may begin in ids [1, S]: [S - 1 - drafts, drafts] target ids.

    Row p knows the target's states up to p and the token p + 1; it proposes the tokens p + 2 and on.
    """
    given = features(target_states(pair.target, ids), pair.boundaries)
    hidden = F.linear(given, pair.head["fc.weight"])[:, :-1]
    cache, fresh, proposed = Cache(), ids[:, 1:], []
    for _ in range(drafts):
        embedded = F.embedding(fresh, pair.target["model.embed_tokens.weight"])
        hidden = head_step(pair.head, embedded, hidden, cache)
        drafted = head_logits(pair.head, hidden).argmax(-1)
        fresh = drafted + pair.head["d2t"][drafted]
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
    parser.add_argument("--boundaries", type=int, nargs=3, default=BOUNDARIES, help="as a server was wired")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = Tokenizer.from_file(str(asked.target / "tokenizer.json"))
    texts = read_prompts(HERE / "prompts.jsonl", asked.workload_class)[: asked.prompts]
    pair = Pair(
        load_file(asked.target / "model.safetensors"),
        load_file(asked.head / "model.safetensors"),
        tuple(asked.boundaries),
    )
    seen = replay(pair, [tokenizer.encode(text).ids for text in texts], asked.drafts, asked.tokens)
    sys.stdout.write(json.dumps({**asdict(seen), "accept_length": round(seen.accept_length, 3)}) + "\n")


if __name__ == "__main__":
    main()
