"""A Trial: one Point measured against the Baseline in one Block, or its failure with the reason."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from analysis.accuracy import accuracy, in_words, is_worse
from analysis.anchor import Anchor, measured_at, shares
from analysis.block import ENERGY, limited_cells, log_speedup, mean_log_speedup, said_of
from analysis.gpu import energy_gap
from analysis.limits import limit_ratios, not_kept
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
    anchors: Sequence[Anchor] = (),
) -> Trial:
    """What a search Block says about a Point.

    `limits` maps a name such as `ttft_p95_s` to its upper bound (see analysis.limits); the Trial keeps
    log(value / bound).
    A Block without the Baseline is compared with its `anchors`: the one before it, and the one after it.
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
    arm = block.arm(point)
    if block.invalid is not None or arm is None:
        return trial
    trial = replace(trial, lossy=arm.lossy)
    if arm.in_effect is not None:
        trial = replace(trial, point=arm.in_effect, asked=point)
    if arm.failure is not None:
        return replace(trial, failure=arm.failure)
    if arm.stopped_at_ratio is not None:
        return replace(trial, state=TrialState.HOPELESS, log_speedup=math.log(arm.stopped_at_ratio))
    references = _references(block, arm, anchors)
    if not references:
        unlike = Failure(Reason.THROTTLED, "no launch of the baseline under the same power limits")
        return replace(trial, failure=unlike)
    answered = accuracy([(baseline, arm) for _, baseline in references])
    if answered is not None and is_worse(answered):
        return replace(trial, failure=Failure(Reason.INVALID_OUTPUT, in_words(answered, "the baseline")))
    for _, baseline in references:
        known, limited = log_speedup(baseline, arm, objective), limited_cells(baseline, arm)
        if len(known) + len(limited) < len(baseline.measurements):
            return replace(trial, failure=_unknown_figure(objective, baseline, arm))
    left_out = {cell: why for _, b in references for cell, why in limited_cells(b, arm).items()}
    log_ratio = _mean(references, arm, objective, weights, left_out)
    if log_ratio is None:
        return replace(trial, failure=Failure(Reason.CAPACITY_LIMITED, said_of(left_out)))
    by_baseline = {cell for _, b in references for cell in limited_cells(b, b)}
    ratios = limit_ratios(arm, limits, weights)
    broken = not_kept(ratios, limits)
    return replace(
        trial,
        state=TrialState.MEASURED,
        log_speedup=log_ratio,
        by_cell=_by_cell(references, arm, objective, left_out),
        limited=tuple(cell for cell in left_out if cell not in by_baseline),
        anchors=() if block.baseline is not None else tuple(a.block for a in anchors),
        limits={name: UNKNOWN_LIMIT if r is None else r for name, r in ratios.items()},
        failure=Failure(Reason.LIMIT_EXCEEDED, broken) if broken else None,
    )


def _references(block: Block, arm: ArmRun, anchors: Sequence[Anchor]) -> list[tuple[float, ArmRun]]:
    """The Baseline's runs that an arm is compared with, and how much each counts."""
    if block.baseline is not None:
        return [(1.0, block.baseline)]
    counted = shares(anchors, measured_at(block, arm))
    return [(share, a.run) for share, a in zip(counted, anchors, strict=True)]


def _mean(
    references: Sequence[tuple[float, ArmRun]],
    arm: ArmRun,
    objective: str,
    weights: Weights,
    left_out: Collection[str],
) -> float | None:
    found = [(share, mean_log_speedup(b, arm, objective, weights, left_out)) for share, b in references]
    known = [share * ratio for share, ratio in found if ratio is not None]
    return sum(known) if len(known) == len(found) else None


def _by_cell(
    references: Sequence[tuple[float, ArmRun]], arm: ArmRun, objective: str, left_out: Collection[str]
) -> dict[str, float]:
    found = [(share, log_speedup(baseline, arm, objective)) for share, baseline in references]
    cells = [cell for cell in found[0][1] if cell not in left_out]
    return {cell: sum(share * ratios[cell] for share, ratios in found) for cell in cells}


def _unknown_figure(objective: str, baseline: ArmRun, arm: ArmRun) -> Failure:
    """Why the objective has no value in some Cell."""
    if objective != ENERGY:
        return Failure(Reason.TOO_SHORT, f"{objective} is not known in every Cell")
    windows = [m for run in (baseline, arm) for m in run.measurements if m.tokens_per_joule is None]
    why = energy_gap(windows[0].telemetry) if windows else ""
    return Failure(Reason.ENERGY_UNKNOWN, why or f"{objective} is not known in every Cell")
