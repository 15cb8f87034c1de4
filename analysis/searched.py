"""How the search measured, and what its estimates turned out to be worth, in sentences for people."""

import math
from statistics import fmean

from analysis import anchor, findings, words
from analysis.noise import block_noise
from analysis.report_input import ReportInput
from analysis.shrinkage import Shrinkage, expected, of_trials
from results.records import BASELINE, Phase, Point, Trial, TrialState


def shrinkage_of(report: ReportInput) -> Shrinkage | None:
    """How the estimates of this search are moved before they are confirmed."""
    return of_trials(report.trials, block_noise(report.blocks, report.objective, report.weights))


def expected_of(report: ReportInput, point: Point, shrunken: Shrinkage | None) -> float | None:
    """The log speed-up that was to be expected of a finalist's confirmation; None = not known."""
    trial = findings.trial_of(report, point)
    offset = findings.baseline_gain(report, trial) if trial is not None else None
    log = expected(trial, shrunken) if trial is not None else None
    return None if log is None or offset is None else log - offset


def how_compared(report: ReportInput) -> str:
    """What trials were compared with: the baseline in the same Block, or between two launches of it."""
    tried = [t for t in report.trials if t.state is TrialState.MEASURED and t.blocks]
    between = [t for t in tried if t.anchors]
    if not tried:
        return ""
    if not between:
        return "Every trial is compared with the baseline of its own Block."
    beside = len(tried) - len(between)
    own = f"; {words.count(beside, 'trial')} with the baseline of the same Block" if beside else ""
    used = anchor.used_by(between, report.blocks)
    launches = words.count(len(used), "launch", "launches")
    how = (
        f"{words.count(len(between), 'trial')} are compared with the baseline as interpolated between"
        f" {launches} of it (drift anchors), since a start takes long{own}."
    )
    return " ".join(filter(None, (how, _one_sided(between), _drift(report, between))))


def _one_sided(trials: list[Trial]) -> str:
    """Some were measured after the last anchor of a start that was stopped."""
    alone = sum(len(t.anchors) == 1 for t in trials)
    if not alone:
        return ""
    return f"{words.count(alone, 'trial')} had one anchor only, since the run was stopped before the next."


def _drift(report: ReportInput, trials: list[Trial]) -> str:
    pairs = {t.anchors for t in trials if len(t.anchors) == 2}
    by_number = {a.block: a for a in anchor.used_by(trials, report.blocks)}
    together = [[by_number[n] for n in pair] for pair in pairs if set(pair) <= by_number.keys()]
    changes = [s for pair in together for s in anchor.steps(pair, report.objective, report.weights)]
    if not changes:
        return ""
    most = max(map(abs, changes))
    seen = f"Between two anchors the baseline changed by up to {100 * math.expm1(most):.1f} %."
    if most <= math.log1p(report.same_margin):
        return seen
    return f"{seen} That is more than counts as the same: take those estimates with care."


def finalists_note(report: ReportInput) -> str:
    """What the finalists were measured on and against, and how their estimates did."""
    return " ".join(filter(None, (_held_out(report), _baseline(report), _estimates_held(report))))


def _held_out(report: ReportInput) -> str:
    sets = {phase: {b.prompt_set for b in report.blocks if b.phase is phase} for phase in Phase}
    if not sets[Phase.CONFIRM] or not sets[Phase.SEARCH] or sets[Phase.CONFIRM] & sets[Phase.SEARCH]:
        return ""
    names = [", ".join(sorted(sets[phase])) for phase in (Phase.CONFIRM, Phase.SEARCH)]
    return f"Fresh servers and held-out prompts (set {names[0]}; the search had set {names[1]})."


def _baseline(report: ReportInput) -> str:
    theirs = findings.confirmed_against(report)
    if theirs is None or theirs == BASELINE:
        return ""
    return f"The baseline is the server without speculation at its best settings: {theirs.label}."


def _estimates_held(report: ReportInput) -> str:
    """How far the estimates were off, on average over the finalists."""
    pairs = [(findings.search_estimate(report, v.point), v.effect) for v in report.verdicts]
    gaps = [effect.log_ratio - log for log, effect in pairs if log is not None and effect is not None]
    if not gaps:
        return ""
    mean = fmean(gaps)
    below = f"{100 * abs(math.expm1(mean)):.1f} % {'below' if mean < 0 else 'above'}"
    return f"Confirmed figures are {below} the search estimates on average."
