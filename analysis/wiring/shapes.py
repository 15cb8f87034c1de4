"""What the form of the counts hints at: a group of causes, never one. Metrics alone name no cause.

Of 32 faults that were put into a small pair, the counts alone named 7; a healthy run was called faulty.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import fmean, median

from analysis.statistics import t_interval
from analysis.wiring.estimate import ALPHA, MIN_REPLIES, Estimate, clustered
from analysis.wiring.expectation import MARGIN
from analysis.wiring.replies import Reply
from results.records import SpecCounters

COLLAPSED = 0.25  # a first position below is no weak head but a wrong one, whatever was expected
CLIFF = 0.75  # later positions below so much of the first: a healthy head keeps or raises its accuracy
FIRST_ROUND_GAP, HALVES_GAP = 0.1, 0.05  # of the share of a draft that is accepted
LONGER = 2.0  # times: prompts of about one length say nothing about length


class Shape(StrEnum):
    EXACTLY_ONE = "no draft is accepted at all: the accept length is exactly 1.00"
    COLLAPSE = "the first position has collapsed"
    LATER_LOW = "the first position is normal and the later ones are low"
    ALL_LOWER = "all positions are lower than expected"
    FALLS_WITH_POSITION = "acceptance falls along the reply"
    BY_PROMPT_LENGTH = "acceptance is lower after long prompts"
    FIRST_ROUND = "the first round of a reply is lower than the others"


HINTS: Mapping[Shape, str] = {
    Shape.EXACTLY_ONE: "the algorithm, the map of the draft vocabulary, a missing head, other vocabularies",
    Shape.COLLAPSE: "the algorithm, the map of the draft vocabulary, a missing or random head, the "
    "embedding, a norm before the fusion layer, tokens shifted against states, layers far off",
    Shape.LATER_LOW: "the state fed back, the positions of the draft steps, the cache of the draft steps",
    Shape.ALL_LOWER: "layers near the right ones, sums over ranks not complete, a norm or the residual, "
    "quantisation, other prompts than the drafter was trained on, a drafter trained too little",
    Shape.FALLS_WITH_POSITION: "the rotation of positions, the drafter's longest context",
    Shape.BY_PROMPT_LENGTH: "the drafter's longest context, the rotation of positions",
    Shape.FIRST_ROUND: "states passed between prefill and decode servers, a prefix cache",
}


def shapes(
    counters: SpecCounters,
    positions: Sequence[Estimate | None],
    replies: Sequence[Reply],
    *,
    expected: float | None,
    is_below: bool,
    depth: int,
) -> tuple[Shape, ...]:
    """What is seen of them; `expected` is a conditional accuracy, `is_below` what was judged of it.

    Of the curve one at most.
    """
    over_time = {
        Shape.FIRST_ROUND: _first_round_is_lower(replies, depth),
        Shape.FALLS_WITH_POSITION: _falls(replies, depth),
        Shape.BY_PROMPT_LENGTH: _falls_with_prompts(replies),
    }
    curve = _curve(counters, positions, expected, is_below)
    return (*([curve] if curve else []), *(shape for shape, seen in over_time.items() if seen))


def _curve(
    counters: SpecCounters, positions: Sequence[Estimate | None], expected: float | None, is_below: bool
) -> Shape | None:
    if counters.accepted_tokens == 0:
        return Shape.EXACTLY_ONE
    first = positions[0] if positions else None
    if first is not None and first.high < (COLLAPSED if expected is None else expected / 2):
        return Shape.COLLAPSE
    second = positions[1] if len(positions) > 1 else None
    if first is not None and second is not None and _is_cliff(first, second, expected):
        return Shape.LATER_LOW
    return Shape.ALL_LOWER if is_below else None


def _is_cliff(first: Estimate, second: Estimate, expected: float | None) -> bool:
    """The second position is far below a first one that is as it should be."""
    is_normal = expected is None or first.high >= expected - MARGIN
    return is_normal and second.high < CLIFF * first.low


def _first_round_is_lower(replies: Sequence[Reply], depth: int) -> bool:
    rounds = [r.accepted_by_round for r in replies if len(r.accepted_by_round) > 2]
    return _is_above([(fmean(told[1:]) - told[0]) / depth for told in rounds], FIRST_ROUND_GAP)


def _falls(replies: Sequence[Reply], depth: int) -> bool:
    """Second half of the rounds of each reply against its first half; the very first round aside."""
    gaps = []
    for reply in replies:
        told = reply.accepted_by_round[1:]
        if len(told) >= 4:
            half = len(told) // 2
            gaps.append((fmean(told[:half]) - fmean(told[half:])) / depth)
    return _is_above(gaps, HALVES_GAP)


def _falls_with_prompts(replies: Sequence[Reply]) -> bool:
    """Replies to the longer half of the prompts against the others: their intervals lie apart."""
    told = sorted(
        (r.prompt_tokens, r.counters.accepted_tokens, r.counters.draft_tokens)
        for r in replies
        if r.prompt_tokens is not None and r.counters is not None and r.counters.draft_tokens
    )
    short, long = told[: len(told) // 2], told[len(told) // 2 :]
    if len(short) < MIN_REPLIES or median(t[0] for t in long) < LONGER * median(t[0] for t in short):
        return False
    of_short, of_long = (clustered([t[1] for t in side], [t[2] for t in side]) for side in (short, long))
    return of_long.high < of_short.low


def _is_above(gaps: Sequence[float], least: float) -> bool:
    return len(gaps) >= MIN_REPLIES and t_interval(gaps, ALPHA)[1] > least
