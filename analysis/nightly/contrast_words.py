"""What two versions come to, in words."""

import math
from collections.abc import Mapping, Sequence

from analysis import words
from analysis.nightly.contrast import WINNER, Contrast
from results.nights import BASELINE, LENGTH, SPEED_UP
from results.records import Effect, VerdictKind

NAMES = {
    WINNER: "with speculation",
    BASELINE: "without speculation",
    SPEED_UP: "gain of speculation",
    LENGTH: "acceptance length",
}
CERTAIN = (VerdictKind.BETTER, VerdictKind.WORSE)


def sentence(contrasts: Sequence[Contrast], objective: str) -> str:
    """All contrasts of NEW against OLD in a sentence or two."""
    by_name = {c.name: c for c in contrasts}
    winner, baseline = by_name[WINNER], by_name[BASELINE]
    if winner.effect is None or baseline.effect is None:
        why = winner.note or baseline.note
        if why:
            return f"Nothing can be said of NEW: the objective is {why}."
        return "Nothing can be said yet: too few Blocks for the first planned look."
    over = f" over {words.count(winner.effect.blocks, 'Block')}"
    first = f"NEW is {_how(winner, objective)} with speculation{by_how_much(winner)}{over}"
    if winner.kind is VerdictKind.UNDECIDED:
        first = f"Whether NEW is slower with speculation is not decided{by_how_much(winner)}{over}"
    then = f"without speculation it is {_how(baseline, objective)}{by_how_much(baseline)}"
    return f"{first}; {then}: {_meaning(by_name)}.{_cause(by_name)}"


def _how(contrast: Contrast, objective: str) -> str:
    better, worse = words.signs(objective)
    return {
        VerdictKind.BETTER: better,
        VerdictKind.WORSE: worse,
        VerdictKind.SAME: "the same",
    }.get(contrast.kind, "not decided")


def by_how_much(contrast: Contrast) -> str:
    """` by 8.1 % (5.9 to 10.2 %)` where the sign is certain, else ` (-0.4 % to +1.1 %)`."""
    effect = contrast.effect
    if effect is None:
        return ""
    return f" by {size(effect)}" if contrast.kind in CERTAIN else f" ({bounds(effect)})"


def size(effect: Effect) -> str:
    """`8.1 % (5.9 to 10.2 %)`, whichever way it points."""
    shares = (100 * abs(math.expm1(x)) for x in (effect.low, effect.log_ratio, effect.high))
    low, middle, high = sorted(shares)
    return f"{middle:.1f} % ({low:.1f} to {high:.1f} %)"


def bounds(effect: Effect) -> str:
    return f"{words.signed_percent(effect.low)} to {words.signed_percent(effect.high)}"


def _meaning(by_name: Mapping[str, Contrast]) -> str:
    """Which of the two changed, the engine or what speculation gains on it."""
    winner, baseline, speed_up = (by_name[name] for name in (WINNER, BASELINE, SPEED_UP))
    if speed_up.is_loss and baseline.kind is VerdictKind.WORSE:
        return "the engine got worse, and speculation on top of it"
    if speed_up.is_loss and winner.is_loss:
        is_open = baseline.kind is VerdictKind.UNDECIDED
        return "speculation got worse" if is_open else "speculation got worse, not the engine"
    if speed_up.is_loss:
        return f"speculation gains less than it did, by {_size_of(speed_up)}"
    if winner.is_loss and speed_up.kind is VerdictKind.UNDECIDED:
        return "whether speculation or the engine got worse is not decided"
    if winner.is_loss:
        return "the engine got worse, not speculation"
    if VerdictKind.UNDECIDED in (winner.kind, speed_up.kind):
        return "whether anything got worse is not decided"
    return "no loss that counts"


def _size_of(contrast: Contrast) -> str:
    return size(contrast.effect) if contrast.effect is not None else words.UNKNOWN


def _cause(by_name: Mapping[str, Contrast]) -> str:
    """Where a loss of speculation comes from, as far as the acceptance length tells."""
    length = by_name[LENGTH]
    if not by_name[SPEED_UP].is_loss or length.effect is None or length.kind is VerdictKind.UNDECIDED:
        return ""
    shown = words.signed_percent(length.effect.log_ratio)
    if length.kind is VerdictKind.WORSE:
        return f" The acceptance length fell ({shown}): look at the drafter and the sampling."
    return f" The acceptance length did not fall ({shown}): a step costs more than it did."
