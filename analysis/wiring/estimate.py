"""How sure a share of accepted drafts is. Rounds of one reply are alike, so replies are the unit."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

from analysis.statistics import t_quantile
from analysis.wiring.replies import Reply, counts_by_reply
from results.records import SpecCounters

ALPHA = 0.05
# Variance of a sum over rounds against that of independent ones, where the counts are not told by reply
# or do not vary. Standard errors by token were up to three times too small, most of them less than twice.
ASSUMED_CLUSTERING = 4.0
MIN_REPLIES = 8  # fewer say too little about how replies differ
POSITIONS_NEED = 30  # drafts that came so far; fewer say nothing about a position


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share with its two-sided 95 % interval."""

    value: float
    low: float
    high: float

    def through(self, increasing: Callable[[float], float]) -> "Estimate":
        """The same, of an increasing function of it."""
        return Estimate(increasing(self.value), increasing(self.low), increasing(self.high))


def wilson(share: float, trials: float, critical: float | None = None) -> Estimate:
    """Wilson's score interval of a share seen in so many independent trials, which need not be whole.

    `critical` is the quantile that bounds it; of the normal distribution if None.
    """
    z = NormalDist().inv_cdf(1 - ALPHA / 2) if critical is None else critical
    shrunk = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / shrunk
    half = z / shrunk * math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    return Estimate(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)))


def clustered(successes: Sequence[float], trials: Sequence[int]) -> Estimate:
    """A share over all replies, from the counts of each: Wilson's interval at the effective number of trials.

    Variance of a ratio estimate over clusters; Student's t. Raises ValueError for fewer than two with trials.
    """
    pairs = [(s, n) for s, n in zip(successes, trials, strict=True) if n]
    if len(pairs) < 2:
        raise ValueError("an interval over replies needs at least two")
    total = sum(n for _, n in pairs)
    share = min(1.0, sum(s for s, _ in pairs) / total)
    scatter = sum((s - share * n) ** 2 for s, n in pairs)
    variance = len(pairs) / (len(pairs) - 1) * scatter / total**2
    effective = share * (1 - share) / variance if variance and 0 < share < 1 else total / ASSUMED_CLUSTERING
    return wilson(share, effective, t_quantile(len(pairs) - 1, 1 - ALPHA / 2))


def share_of_depth(counters: SpecCounters, replies: Sequence[Reply], depth: int) -> Estimate:
    """Accepted / (rounds x depth): the rate of a chain, and of a tree as if it were one.

    By reply where enough replies tell their counts, else by round. Raises ValueError without a round.
    """
    if counters.drafts <= 0:
        raise ValueError("no round, no share")
    told = counts_by_reply(replies)
    if len(told) >= MIN_REPLIES:
        return clustered([c.accepted_tokens / depth for c in told], [c.drafts for c in told])
    share = min(1.0, counters.accepted_tokens / (counters.drafts * depth))
    return wilson(share, _independent_rounds(counters, share, depth) / ASSUMED_CLUSTERING)


def by_position(counters: SpecCounters, replies: Sequence[Reply]) -> tuple[Estimate | None, ...]:
    """a_1 ... a_k; None where too few drafts came so far to say anything."""
    told = [(c.drafts, *c.accepted_per_position) for c in counts_by_reply(replies)]
    whole = (counters.drafts, *counters.accepted_per_position)
    found: list[Estimate | None] = []
    for position, (before, here) in enumerate(pairwise(whole)):
        if before < POSITIONS_NEED:
            found.append(None)
            continue
        pairs = [(c[position + 1], c[position]) for c in told if len(c) > position + 1 and c[position]]
        if len(pairs) >= MIN_REPLIES and sum(n for _, n in pairs) == before:
            found.append(clustered([s for s, _ in pairs], [n for _, n in pairs]))
        else:
            found.append(wilson(here / before, before / ASSUMED_CLUSTERING))
    return tuple(found)


def _independent_rounds(counters: SpecCounters, share: float, depth: int) -> float:
    """Trials of a yes-or-no share as uncertain as this mean over independent rounds.

    The spread of accepted tokens over rounds follows from the positions. Without them it is the widest
    there can be, share x (1 - share).
    """
    positions = counters.accepted_per_position
    if not positions or not 0 < share < 1:
        return counters.drafts
    square = sum((2 * i - 1) * n for i, n in enumerate(positions, 1)) / counters.drafts
    variance = square / depth**2 - share**2
    return counters.drafts * share * (1 - share) / variance if variance > 0 else counters.drafts
