"""The noise of one Block, and with it the interval of a search estimate, which is one Block."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from analysis.anchor import place_of
from analysis.block import mean_log_speedup
from analysis.findings import valid
from analysis.places import at
from analysis.statistics import t_quantile
from results.records import EQUAL_WEIGHTS, Block, Effect, Phase, Point, Trial, TrialState, Weights

SEARCH_LEVEL = 0.95
_FEWEST_DEGREES = 3  # with fewer, the standard deviation itself is a guess


@dataclass(frozen=True, slots=True)
class BlockNoise:
    """The standard deviation of one Block's log speed-up, and how well it is known."""

    sd: float
    degrees: int  # of freedom
    origin: str  # what it is computed from, in words


def block_noise(
    blocks: Sequence[Block], objective: str = "tokens_per_s", weights: Weights = EQUAL_WEIGHTS
) -> BlockNoise | None:
    """From the confirmation where it is long enough, else from the search's baselines; None if neither is."""
    usable = sorted(valid(blocks), key=lambda b: b.number)
    noises = (_confirmation_noise(usable, objective, weights), _baseline_noise(usable, objective, weights))
    return next((n for n in noises if n is not None and n.degrees >= _FEWEST_DEGREES), None)


def _confirmation_noise(blocks: Sequence[Block], objective: str, weights: Weights) -> BlockNoise | None:
    """Pooled within the finalists, each against one baseline: what differs between them is no noise."""
    confirmed = [b for b in blocks if b.phase is Phase.CONFIRM]
    pairs = {(b.compared_with.key, a.point.key): (b, a) for b in confirmed for a in b.candidates}
    found = [
        _log_speedups(
            [b for b in confirmed if b.compared_with.key == of.compared_with.key],
            arm.point,
            objective,
            weights,
        )
        for of, arm in pairs.values()
    ]
    repeated = [logs for logs in found if len(logs) > 1]
    degrees = sum(len(logs) - 1 for logs in repeated)
    if not degrees:
        return None
    squares = sum((v - fmean(logs)) ** 2 for logs in repeated for v in logs)
    origin = "how much the speed-up of one finalist varies between Blocks of the confirmation"
    return BlockNoise(math.sqrt(squares / degrees), degrees, origin)


def _log_speedups(blocks: Iterable[Block], point: Point, objective: str, weights: Weights) -> list[float]:
    arms = [(b.baseline, b.arm(point)) for b in blocks]
    logs = [
        mean_log_speedup(theirs, ours, objective, weights)
        for theirs, ours in arms
        if theirs is not None and ours is not None and theirs.failure is None and ours.failure is None
    ]
    return [log for log in logs if log is not None]


def _baseline_noise(blocks: Sequence[Block], objective: str, weights: Weights) -> BlockNoise | None:
    """The log ratio of two launches of the same server one Block apart at one place: its mean is 0 by design.

    Neighbouring differences share a launch, so n of them are worth 2n^2 / (3n - 1) degrees of freedom
    (von Neumann 1941). Drift over one Block is in it: if anything, intervals are too wide.
    """
    searched = [b for b in blocks if b.phase is Phase.SEARCH]
    places = dict.fromkeys(map(place_of, searched))
    each = [_steps(at(place, searched), objective, weights) for place in places]
    squares = [step * step for steps in each for step in steps]
    if not squares:
        return None
    degrees = sum(2 * len(steps) ** 2 // (3 * len(steps) - 1) for steps in each if steps)
    origin = "how much the baseline changes from one Block of the search to the next"
    return BlockNoise(math.sqrt(fmean(squares)), degrees, origin)


def _steps(blocks: Sequence[Block], objective: str, weights: Weights) -> list[float]:
    """Of one place."""
    runs = [b.baseline for b in blocks]
    baselines = [run for run in runs if run is not None and run.failure is None and run.complete]
    neighbours = [(a, b) for a, b in pairwise(baselines) if a.point.key == b.point.key]
    steps = [mean_log_speedup(before, after, objective, weights) for before, after in neighbours]
    return [step for step in steps if step is not None]


def trial_effect(trial: Trial, noise: BlockNoise | None) -> Effect | None:
    """The search estimate with its 95 % interval; None where the noise of this number is not known.

    A Trial is one Block, so its interval comes from the noise of all. One that was stopped early is a
    few prompts of a Block, and varies more than that.
    """
    log = trial.log_speedup
    if noise is None or log is None or not math.isfinite(log) or not trial.blocks:
        return None
    if trial.state is TrialState.HOPELESS:
        return None
    half_width = t_quantile(noise.degrees, (1 + SEARCH_LEVEL) / 2) * noise.sd
    return Effect(log, log - half_width, log + half_width, len(trial.blocks))


def search_intervals(noise: BlockNoise | None) -> str:
    """Where the intervals of search estimates come from, or why there are none; no full stop."""
    if noise is None:
        return "without intervals, since too few Blocks tell the noise of one"
    share = f"{100 * math.expm1(noise.sd):.2g}\N{NO-BREAK SPACE}%"
    level = f"{100 * SEARCH_LEVEL:.0f}\N{NO-BREAK SPACE}%"
    return f"with {level} intervals from {noise.origin} ({share})"
