"""Which other Points the search saw as good as the best: within the noise of one Block of each."""

import math
from collections.abc import Sequence

from analysis.noise import SEARCH_LEVEL, BlockNoise
from analysis.statistics import t_quantile
from results.records import Trial


def as_good(best: Trial, trials: Sequence[Trial], noise: BlockNoise | None) -> list[Trial]:
    """Measured Trials whose speed-up does not differ from the best one's at the 95 % level, fastest first.

    Without a known noise only an equal figure is a tie.
    """
    if best.log_speedup is None:
        return []
    margin = 0.0
    if noise is not None:
        margin = t_quantile(noise.degrees, (1 + SEARCH_LEVEL) / 2) * math.sqrt(2.0) * noise.sd
    others = [t for t in trials if t.log_speedup is not None and t.failure is None and not t.lossy]
    tied = [t for t in others if t is not best and abs(_log(t) - best.log_speedup) <= margin]
    return sorted((t for t in tied if not t.point.is_baseline), key=_log, reverse=True)


def _log(trial: Trial) -> float:
    return trial.log_speedup if trial.log_speedup is not None else -math.inf
