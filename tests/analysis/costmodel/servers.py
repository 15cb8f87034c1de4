"""Servers whose costs and acceptance are known, as Observations."""

import math
import random
from collections.abc import Sequence

from analysis.costmodel.observations import Observation
from results.records import Cell, DraftShape, Point, SpecCounters

# Share of drafts accepted up to each position: not of the form a^k.
SURVIVAL = (0.9, 0.8, 0.5, 0.45, 0.4, 0.2, 0.1, 0.05)
DRAFTS = 10_000
ONE, MANY = Cell("code", "closed(1)"), Cell("code", "closed(16)")


def chain(
    steps: int,
    *,
    host: float = 0.1,
    draft: float = 0.08,
    verify: float = 0.02,
    cell: Cell = ONE,
    prompt_share: float = 0.0,
    noise: float = 0.0,
    rng: random.Random | None = None,
    topk: int = 1,
    draft_tokens: int | None = None,
) -> Observation:
    """An EAGLE chain, or a tree whose paths are accepted as often, on a server with these costs."""
    tokens = draft_tokens or steps
    counts = tuple(round(share * DRAFTS) for share in SURVIVAL[:steps])
    cost = 1.0 + host + draft * steps + verify * tokens
    length = 1.0 + sum(counts) / DRAFTS
    time = prompt_share + (1.0 - prompt_share) * cost / length
    slip = rng.gauss(0.0, noise) if rng else 0.0
    return Observation(
        Point("EAGLE3", {"num_steps": steps, "topk": topk, "draft_tokens": tokens}),
        DraftShape(steps, tokens, steps, topk),
        cell,
        -math.log(time) + slip,
        prompt_share,
        float(DRAFTS),
        SpecCounters(DRAFTS, DRAFTS * tokens, sum(counts), counts),
    )


def trees(sizes: Sequence[tuple[int, int]], **costs: float) -> list[Observation]:
    """(steps, draft tokens) of trees with four branches."""
    return [chain(s, topk=4, draft_tokens=d, **costs) for s, d in sizes]  # type: ignore[arg-type]
