"""A Trial: one Point measured against the Baseline in one Block, or its failure with the reason."""

import math
from collections.abc import Mapping
from dataclasses import replace

from analysis.block import (
    ENERGY,
    limit_ratios,
    limited_cells,
    log_speedup,
    mean_log_speedup,
    said_of,
)
from analysis.gpu import energy_gap
from results.reasons import Reason
from results.records import BASELINE, EQUAL_WEIGHTS, ArmRun, Block, Failure, Point, Trial, TrialState, Weights

UNKNOWN_LIMIT = 1.0  # what the sampler is told of a limit that could not be checked: broken

# The Baseline is Trial 0: its speed-up over itself is 0 by definition, nothing is launched for it.
BASELINE_TRIAL = Trial(
    number=0,
    point=BASELINE,
    source="start",
    state=TrialState.MEASURED,
    log_speedup=0.0,
    by_cell={},
    blocks=(),
)


def trial_of(
    block: Block,
    number: int,
    point: Point,
    source: str,
    *,
    objective: str,
    limits: Mapping[str, float],
    weights: Weights = EQUAL_WEIGHTS,
) -> Trial:
    """What a search Block says about a Point.

    `limits` maps a latency such as `ttft_p95_s` to its upper bound; the Trial keeps log(value / bound).
    """
    trial = Trial(
        number=number,
        point=point,
        source=source,
        state=TrialState.FAILED,
        log_speedup=None,
        by_cell={},
        blocks=(block.number,),
        failure=block.invalid,
    )
    arm, baseline = block.arm(point), block.baseline
    if block.invalid is not None or arm is None:
        return trial
    trial = replace(trial, lossy=arm.lossy)
    if arm.in_effect is not None:
        trial = replace(trial, point=arm.in_effect, asked=point)
    if arm.failure is not None:
        return replace(trial, failure=arm.failure)
    if arm.stopped_at_ratio is not None:
        return replace(trial, state=TrialState.HOPELESS, log_speedup=math.log(arm.stopped_at_ratio))
    if baseline is None:
        return trial
    by_cell, left_out = log_speedup(baseline, arm, objective), limited_cells(baseline, arm)
    if len(by_cell) + len(left_out) < len(baseline.measurements):
        return replace(trial, failure=_unknown_figure(objective, baseline, arm))
    log_ratio = mean_log_speedup(baseline, arm, objective, weights)
    if log_ratio is None:
        return replace(trial, failure=Failure(Reason.CAPACITY_LIMITED, said_of(left_out)))
    ratios = limit_ratios(arm, limits)
    broken = [_limit_words(name, r, limits[name]) for name, r in ratios.items() if r is None or r > 0]
    return replace(
        trial,
        state=TrialState.MEASURED,
        log_speedup=log_ratio,
        by_cell=by_cell,
        limited=tuple(c for c in left_out if c not in limited_cells(baseline, baseline)),
        limits={name: UNKNOWN_LIMIT if r is None else r for name, r in ratios.items()},
        failure=Failure(Reason.LIMIT_EXCEEDED, ", ".join(broken)) if broken else None,
    )


def _unknown_figure(objective: str, baseline: ArmRun, arm: ArmRun) -> Failure:
    """Why the objective has no value in some Cell."""
    if objective != ENERGY:
        return Failure(Reason.TOO_SHORT, f"{objective} is not known in every Cell")
    windows = [m for run in (baseline, arm) for m in run.measurements if m.tokens_per_joule is None]
    why = energy_gap(windows[0].telemetry) if windows else ""
    return Failure(Reason.ENERGY_UNKNOWN, why or f"{objective} is not known in every Cell")


def _limit_words(name: str, log_ratio: float | None, limit: float) -> str:
    value = "was not measured" if log_ratio is None else f"is {math.exp(log_ratio) * limit:.3g} s"
    return f"{name} {value}, the limit {limit:.3g} s"
