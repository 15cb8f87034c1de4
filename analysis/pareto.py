"""Throughput against latency: what each Point reaches of both, and which no other one beats in both.

Absolute figures drift from Block to Block. So a Point has its ratios to the baseline of the same Blocks
times what the baseline reaches in the median Block.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, median

from analysis import findings, places
from analysis.block import LATENCIES, figure, mean_log_speedup
from analysis.limits import median_ratios, not_kept
from analysis.report_input import ReportInput
from analysis.summary import requested_concurrency
from results.records import ArmRun, Block, Phase, Trial, Weights

THROUGHPUT = "tokens_per_s"


@dataclass(frozen=True, slots=True)
class Choice:
    """What one can run: a Point, or the baseline. Figures are geometric means over the Cells."""

    label: str
    tokens_per_s: float
    latency_s: float
    breaks: str = ""  # the limits that it does not keep, in words
    trial: int | None = None  # its number; None = the baseline
    confirmed: bool = True  # False: a search estimate
    blocks: int = 1  # that it comes from

    @property
    def is_baseline(self) -> bool:
        return self.trial is None


def front(choices: Sequence[Choice]) -> list[Choice]:
    """Those that keep the limits and are beaten by no other such one, the quickest first.

    One beats another if it is at least as good in both figures and better in one.
    """
    found: list[Choice] = []
    best = -math.inf
    allowed = sorted((c for c in choices if not c.breaks), key=lambda c: (c.latency_s, -c.tokens_per_s))
    for _, group in groupby(allowed, key=lambda c: c.latency_s):
        equally_quick = list(group)
        if equally_quick[0].tokens_per_s > best:
            best = equally_quick[0].tokens_per_s
            found += [c for c in equally_quick if c.tokens_per_s == best]
    return found


def latency_of(report: ReportInput) -> str:
    """The latency that throughput is weighed against: the first that is limited, else TPOT p50."""
    return next((name for name in report.limits if name in LATENCIES), "tpot_p50_s")


def choices(report: ReportInput) -> list[Choice]:
    """The baseline and every Point measured in full; empty where throughput is no choice or not known.

    Lossy Points are none, nor are those that failed or were stopped early. In an open loop the pace decides
    the throughput, so there is nothing to choose.
    """
    usable = _comparable(report.blocks)
    baseline = _baseline(report, usable) if report.comparison is None else None
    if baseline is None:
        return []
    tried = {t.launched.key: t for t in report.trials if not t.point.is_baseline and not t.lossy}
    found = [_choice(report, _pairs(usable, trial), trial, baseline) for trial in tried.values()]
    return [baseline, *(choice for choice in found if choice is not None)]


def _comparable(blocks: Sequence[Block]) -> list[Block]:
    """Usable Blocks with a whole run of the baseline that was used last."""
    valid = findings.valid(blocks)
    return [
        b
        for b in valid
        if b.compared_with == valid[-1].compared_with
        and (run := b.baseline) is not None
        and run.failure is None
        and run.complete
    ]


def _baseline(report: ReportInput, blocks: Sequence[Block]) -> Choice | None:
    """The median Block of one place, of the confirmation where there is one."""
    used = places.of_one([b for b in blocks if b.phase is Phase.CONFIRM] or blocks)
    runs = [run for b in used if (run := b.baseline) is not None]
    levels = [_median_level(runs, name, report.weights) for name in (THROUGHPUT, latency_of(report))]
    known = [level for level in levels if level is not None]
    if len(known) < 2 or all(requested_concurrency(m.cell) is None for m in runs[0].measurements):
        return None
    breaks = not_kept(median_ratios(runs, report.limits, report.weights), report.limits)
    confirmed = used[0].phase is Phase.CONFIRM
    return Choice(runs[0].point.label, known[0], known[1], breaks, confirmed=confirmed, blocks=len(runs))


def _median_level(runs: Sequence[ArmRun], name: str, weights: Weights) -> float | None:
    """A figure of the median run: the weighted geometric mean over its Cells."""
    levels = [_level(run, name, weights) for run in runs]
    known = [level for level in levels if level is not None]
    return median(known) if known and len(known) == len(levels) else None


def _level(run: ArmRun, name: str, weights: Weights) -> float | None:
    values = [figure(m, name) for m in run.measurements]
    logs = [math.log(v) for v in values if v is not None and math.isfinite(v) and v > 0]
    if not logs or len(logs) < len(values):
        return None
    return math.exp(fmean(logs, [weights.of(m.cell) for m in run.measurements]))


def _pairs(blocks: Sequence[Block], trial: Trial) -> list[tuple[Phase, ArmRun, ArmRun]]:
    """(phase, baseline, candidate) of the confirmation where there is one, else of the search."""
    for phase, point in ((Phase.CONFIRM, trial.point), (Phase.SEARCH, trial.launched)):
        shared = [(b.baseline, b.arm(point)) for b in blocks if b.phase is phase]
        found = [(phase, a, b) for a, b in shared if a is not None and b is not None]
        if found:
            return found
    return []


def _choice(
    report: ReportInput, pairs: Sequence[tuple[Phase, ArmRun, ArmRun]], trial: Trial, baseline: Choice
) -> Choice | None:
    runs = [ours for _, _, ours in pairs]
    if not runs or any(run.failure is not None or run.stopped_early for run in runs):
        return None
    speed, quickness = (_mean_ratio(pairs, name, report.weights) for name in (THROUGHPUT, latency_of(report)))
    if speed is None or quickness is None:
        return None
    return Choice(
        label=trial.label,
        tokens_per_s=baseline.tokens_per_s * speed,
        latency_s=baseline.latency_s / quickness,
        breaks=not_kept(median_ratios(runs, report.limits, report.weights), report.limits),
        trial=trial.number,
        confirmed=pairs[0][0] is Phase.CONFIRM,
        blocks=len(pairs),
    )


def _mean_ratio(pairs: Sequence[tuple[Phase, ArmRun, ArmRun]], name: str, weights: Weights) -> float | None:
    """How many times better than the baseline, over the Blocks; None if some Cell was not measured."""
    logs = [mean_log_speedup(theirs, ours, name, weights) for _, theirs, ours in pairs]
    known = [log for log in logs if log is not None]
    return math.exp(fmean(known)) if len(known) == len(logs) else None
