"""What a search estimate is worth before it is confirmed: the luck of the best of many, taken off.

Empirical Bayes for normal figures of known noise (James and Stein, 1961): the more of the spread between
the trials is noise, the further each estimate is moved towards their mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from analysis.noise import BlockNoise
from results.records import Trial, TrialState

FEWEST = 4  # estimates; with three the rule keeps everything


@dataclass(frozen=True, slots=True)
class Shrinkage:
    """How estimates of this search are moved."""

    centre: float  # mean log speed-up
    kept: float  # of an estimate's distance to the centre, [0, 1]

    def __call__(self, log_speedup: float) -> float:
        """The log speed-up to expect of a fresh measurement."""
        return self.centre + self.kept * (log_speedup - self.centre)


def shrinkage(log_speedups: Sequence[float], noise_sd: float) -> Shrinkage | None:
    """From all estimates of a search, each with noise of this standard deviation; None if they are too few.

    The share kept is 1 - (n - 3) noise^2 / (sum of squares around the mean), never below 0.
    """
    if len(log_speedups) < FEWEST:
        return None
    centre = fmean(log_speedups)
    squares = sum((log - centre) ** 2 for log in log_speedups)
    noise = (len(log_speedups) - 3) * noise_sd**2
    return Shrinkage(centre, max(0.0, 1.0 - noise / squares) if squares > 0 else 0.0)


def of_trials(trials: Sequence[Trial], noise: BlockNoise | None) -> Shrinkage | None:
    """From the Trials that were measured in full; None where the noise is not known or they are too few."""
    logs = [t.log_speedup for t in trials if _counts(t)]
    known = [log for log in logs if log is not None and math.isfinite(log)]
    return shrinkage(known, noise.sd) if noise is not None else None


def expected(trial: Trial, found: Shrinkage | None) -> float | None:
    """The log speed-up to expect when this Trial is confirmed; None where that is not known."""
    if found is None or not _counts(trial) or trial.log_speedup is None:
        return None
    return found(trial.log_speedup)


def _counts(trial: Trial) -> bool:
    """A Trial that was stopped early is a few prompts: its noise is another one."""
    usable = trial.state is TrialState.MEASURED and trial.failure is None and bool(trial.blocks)
    return usable and not trial.point.is_baseline and trial.log_speedup is not None
