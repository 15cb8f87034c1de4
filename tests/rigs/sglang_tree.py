"""Run inside SGLang's Python: what its drafters do with settings given on stdin, one JSON list per line.

[num_steps, topk, draft_tokens] -> the tokens its tree builder would verify;
["ngram", min_breadth, breadth, trie_depth, draft_tokens] -> nothing, if its n-gram store takes them.
The answer is an error where the scheduler would die of it.
"""

import json
import sys
from importlib import import_module
from typing import Any

HIDDEN = 4


def tree(num_steps: int, topk: int, draft_tokens: int) -> list[float]:
    """The tokens drafted by a drafter that says the same at the same depth, whatever the settings."""
    torch = import_module("torch")
    organize_draft_results = import_module("sglang.srt.speculative.eagle_utils").organize_draft_results
    select_top_k_tokens = import_module("sglang.srt.speculative.spec_utils").select_top_k_tokens
    hidden, scores = torch.zeros(1, HIDDEN), None
    kept: tuple[list[Any], ...] = ([], [], [])
    for step in range(num_steps):
        rows = 1 if step == 0 else topk
        torch.manual_seed(step)
        chances, tokens = torch.sort(torch.rand(rows, topk), dim=-1, descending=True)
        tokens = tokens + 1000 * step + 100 * torch.arange(rows)[:, None]
        _, hidden, scores, found = select_top_k_tokens(step, chances, tokens, hidden, scores, topk)
        for values, value in zip(kept, found, strict=True):
            values.append(value)
    _, _, drafted = organize_draft_results(*kept, draft_tokens)
    verified: list[float] = drafted[0].tolist()
    return sorted(verified)


def ngram_store(min_breadth: int, breadth: int, trie_depth: int, draft_tokens: int) -> list[int]:
    import_module("sglang.srt.speculative.cpp_ngram.ngram_corpus").NgramCorpus(
        min_bfs_breadth=min_breadth,
        max_bfs_breadth=breadth,
        max_trie_depth=trie_depth,
        draft_token_num=draft_tokens,
    )
    return []


def outcome(line: str) -> dict[str, Any]:
    what = json.loads(line)
    try:
        return {"drafted": ngram_store(*what[1:]) if what[0] == "ngram" else tree(*what)}
    except (RuntimeError, ValueError, IndexError, NotImplementedError, TypeError) as error:
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write("TREE " + json.dumps(outcome(line)) + "\n")
