"""Whether two sets of hardware are alike enough for both arms of a Block to run at once, one on each.

A set ratio is d = log(figure on set 0 / figure on set 1) of one Block, > 0 where set 0 is better. Before
a duet is used, the Baseline runs on both sets at once: there d is the bias of the sets and noise alone.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean

from analysis.block import mean_log_speedup
from analysis.statistics import t_quantile
from analysis.verdict import decide
from analysis.words import signed_percent
from results.records import EQUAL_WEIGHTS, ArmRun, Block, Effect, VerdictKind, Weights

# Blocks of the check after which it may end. Eight exclude a bias of 2 % where a Block varies by up to 1.8 %;
# one that varies more gains little by a duet's pairing.
LOOKS = (4, 6, 8)
ALPHA = 0.05  # chance that equal sets are called biased, over all looks


class Sets(StrEnum):
    """What the check says of two sets so far."""

    OPEN = "open"  # more Blocks are needed
    EQUAL = "equal"
    BIASED = "biased"
    NOISY = "noisy"  # no bias was shown, and none was excluded


def check_sets(
    log_ratios: Sequence[float], margin: float, *, looks: Sequence[int] = LOOKS, alpha: float = ALPHA
) -> tuple[Sets, Effect | None]:
    """What the ratios of Blocks, in the order of time, say of the sets; `margin` is a log ratio.

    EQUAL at the first look whose interval contains 0 and lies within the margin, BIASED at the first that
    excludes 0; ratios behind that look are not consumed. No Effect before the first look.
    """
    kind, effect = decide(log_ratios, looks=looks, alpha=alpha, same_margin=margin)
    if kind is VerdictKind.SAME:
        return Sets.EQUAL, effect
    if kind is not VerdictKind.UNDECIDED:
        return Sets.BIASED, effect
    return (Sets.NOISY if len(log_ratios) >= max(looks) else Sets.OPEN), effect


def said_of(effect: Effect | None, margin: float) -> str:
    """What a check has seen, and within what it must lie, in one sentence, no full stop."""
    if effect is None:
        return "the two sets were not compared to the end"
    return (
        f"baseline against baseline, set 0 is {signed_percent(effect.log_ratio)} against set 1"
        f" ({signed_percent(effect.low)} to {signed_percent(effect.high)}, {effect.blocks} Blocks;"
        f" within {signed_percent(-margin)} to {signed_percent(margin)} they count as equal)"
    )


def set_ratio(block: Block, objective: str, weights: Weights = EQUAL_WEIGHTS) -> float | None:
    """log(set 0 / set 1) of a usable Block whose arms ran at once; None if it has no such figure."""
    on = _by_set(block)
    if block.invalid is not None or on is None or any(arm.failure for arm in on):
        return None
    return mean_log_speedup(on[1], on[0], objective, weights)


def set_effect(
    blocks: Sequence[Block],
    objective: str,
    weights: Weights = EQUAL_WEIGHTS,
    *,
    alpha: float = ALPHA,
) -> Effect | None:
    """The bias of the sets, log(set 0 / set 1), as the duets of one machine show it; None if they cannot.

    Least squares over log(candidate / baseline) = speed-up of the candidate + bias where it is on set 0,
    - bias where it is on set 1. A candidate that was on one set only says nothing of the bias.
    """
    groups = defaultdict(list)
    for block in blocks:
        on = _by_set(block)
        ratio = set_ratio(block, objective, weights)
        if on is None or ratio is None:
            continue
        sign = 1.0 if on[1].point.key == block.compared_with.key else -1.0
        group = block.phase, block.compared_with.key, block.candidates[0].point.key
        groups[group].append((sign, sign * ratio))
    return _slope([*groups.values()], alpha)


def said_of_effect(effect: Effect) -> str:
    """A bias that the Blocks of a run show, in one sentence, no full stop."""
    return (
        f"the two sets of the duet are not alike: set 0 is {signed_percent(effect.log_ratio)} against set 1"
        f" ({signed_percent(effect.low)} to {signed_percent(effect.high)}) over {effect.blocks} Blocks; sides"
        " are swapped, so that it widens intervals rather than moving them"
    )


def is_duet(block: Block) -> bool:
    """Whether its arms ran at once."""
    return _by_set(block) is not None


def _by_set(block: Block) -> tuple[ArmRun, ArmRun] | None:
    """Its arms by their set, if it is a duet."""
    if sorted(-1 if arm.on_set is None else arm.on_set for arm in block.arms) != [0, 1]:
        return None
    first, second = sorted(block.arms, key=lambda arm: arm.on_set or 0)
    return first, second


def _slope(groups: Sequence[Sequence[tuple[float, float]]], alpha: float) -> Effect | None:
    """Common slope of (x, y) with an intercept for each group, and its Student-t interval."""
    centred = [
        (x - fmean(x for x, _ in group), y - fmean(y for _, y in group)) for group in groups for x, y in group
    ]
    spread = sum(x * x for x, _ in centred)
    degrees = len(centred) - len(groups) - 1
    if degrees < 1 or not spread:
        return None
    slope = sum(x * y for x, y in centred) / spread
    variance = sum((y - slope * x) ** 2 for x, y in centred) / degrees
    half = t_quantile(degrees, 1 - alpha / 2) * math.sqrt(variance / spread)
    return Effect(slope, slope - half, slope + half, len(centred))
