"""What the records of a run say, as figures: pooled over the valid Blocks, never over requests."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from analysis import places
from analysis.acceptance import over_windows
from analysis.output import pooled
from analysis.report_input import Comparison, ReportInput
from results.records import (
    BASELINE,
    Acceptance,
    AcceptanceState,
    ArmRun,
    Block,
    Cell,
    KnobValue,
    Measurement,
    OutputCheck,
    Phase,
    Point,
    Quantiles,
    Trial,
    TrialState,
    Verdict,
    VerdictKind,
)

_FEWEST_TRIALS_FOR_KNOBS = 8
_FEWEST_TRIALS_PER_VALUE = 2


def measured(trials: Iterable[Trial]) -> list[Trial]:
    """Trials with a usable number, of speculative Points."""
    return [t for t in trials if _is_number(t.log_speedup) and t.failure is None and not t.point.is_baseline]


def failed(trials: Iterable[Trial]) -> list[Trial]:
    """Trials without a usable number, of whatever Point."""
    return [t for t in trials if t.failure is not None or not _is_number(t.log_speedup)]


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def eligible(trials: Sequence[Trial]) -> list[Trial]:
    """Trials that may be chosen: measured, within the limits, not lossy."""
    return [t for t in trials if t.state is TrialState.MEASURED and not t.lossy and t.keeps_limits]


def reason_of(trial: Trial) -> str:
    """Why this failed Trial has no number."""
    return trial.failure.reason.value if trial.failure else "NO_NUMBER"


def valid(blocks: Iterable[Block]) -> list[Block]:
    return [b for b in blocks if b.invalid is None]


def has_baseline(report: ReportInput) -> bool:
    arms = (b.baseline for b in valid(report.blocks))
    return any(a is not None and a.failure is None and a.measurements for a in arms)


def best_trial(trials: Iterable[Trial]) -> Trial | None:
    """The fastest of those that admit the load of the most Cells; lossy ones are none."""
    honest = [t for t in measured(trials) if not t.lossy]
    return max(honest, key=lambda t: (-len(t.limited), t.log_speedup or 0.0), default=None)


def best_verdict(report: ReportInput) -> Verdict | None:
    """The winner, or else the fastest of the validly confirmed finalists."""
    judged = [v for v in report.verdicts if v.effect is not None and v.kind is not VerdictKind.INVALID]
    fastest = max(judged, key=lambda v: v.effect.log_ratio if v.effect else 0.0, default=None)
    return report.winner or fastest


def subject(report: ReportInput) -> Point | None:
    """The Point that the details are about: the winner, or the best there is; of a comparison B."""
    if report.comparison is not None:
        return report.comparison.sides[-1].point
    verdict, trial = best_verdict(report), best_trial(report.trials)
    if verdict is not None:
        return verdict.point
    return trial.point if trial is not None else None


def subject_name(report: ReportInput) -> str:
    """What to call the subject."""
    if report.comparison is not None:
        return report.comparison.sides[-1].name
    if report.winner is not None:
        return "winner"
    return "best finalist" if best_verdict(report) is not None else "best trial"


def search_estimate(report: ReportInput, point: Point) -> float | None:
    """Log speed-up that the search saw for this Point, against the baseline of the confirmation."""
    trial = trial_of(report, point)
    offset = baseline_gain(report, trial) if trial is not None else None
    return (
        None if trial is None or trial.log_speedup is None or offset is None else trial.log_speedup - offset
    )


def trial_of(report: ReportInput, point: Point) -> Trial | None:
    """The measured Trial of a speculative Point."""
    return next((t for t in measured(report.trials) if t.point.key == point.key), None)


def compared_with(blocks: Sequence[Block]) -> Point:
    """The baseline, with the settings that were found best for it."""
    return next((b.compared_with for b in reversed(blocks)), BASELINE)


def confirmed_against(report: ReportInput) -> Point | None:
    """The baseline of the confirmation, as far as it has begun."""
    blocks = [b for b in valid(report.blocks) if b.phase is Phase.CONFIRM]
    return blocks[-1].compared_with if blocks else None


def baseline_gain(report: ReportInput, trial: Trial) -> float | None:
    """Log speed-up of the confirmation's baseline over the one that a Trial is told against; None = unknown.

    They differ where a finalist's settings turned out to help a server without speculation too.
    """
    theirs, against = confirmed_against(report), {b.number: b.compared_with for b in report.blocks}
    own = against.get(trial.blocks[0]) if trial.blocks else None
    if theirs is None or own is None or own.key == theirs.key:
        return 0.0
    same = [t for t in report.trials if t.blocks and against.get(t.blocks[0]) == own]
    return next((t.log_speedup for t in same if t.point.key == theirs.key), None)


def best_so_far(trials: Sequence[Trial]) -> list[tuple[int, float]]:
    """(trial number, best log speed-up up to and including it), from the first measured Trial on."""
    best, steps = -math.inf, []
    numbers = {t.number: t.log_speedup or 0.0 for t in measured(trials)}
    for trial in sorted(trials, key=lambda t: t.number):
        best = max(best, numbers.get(trial.number, -math.inf))
        if best > -math.inf:
            steps.append((trial.number, best))
    return steps


def pooled_acceptance(point: Point, blocks: Sequence[Block]) -> Acceptance:
    """Acceptance of one Point over all its windows."""
    if point.is_baseline:
        return Acceptance(AcceptanceState.NOT_SPECULATING)
    return over_windows(windows(point, blocks))


def effective(point: Point, blocks: Sequence[Block]) -> ArmRun | None:
    """The latest arm-run of a Point whose settings were read back."""
    arms = [arm for b in blocks if (arm := b.arm(point)) is not None and arm.effective]
    return arms[-1] if arms else None


def windows(point: Point, blocks: Iterable[Block]) -> list[Measurement]:
    """Every window of a Point in valid Blocks where it did not fail."""
    arms = [arm for b in valid(blocks) if (arm := b.arm(point)) is not None and arm.failure is None]
    return [m for arm in arms for m in arm.measurements]


@dataclass(frozen=True, slots=True)
class Latency:
    """One latency in one Cell, seconds: the median over Blocks of each quantile."""

    cell: Cell
    metric: str
    baseline: Quantiles | None
    candidate: Quantiles | None


_LATENCIES: Mapping[str, Callable[[Measurement], Quantiles | None]] = {
    "TTFT": lambda m: m.ttft_s,
    "TPOT": lambda m: m.tpot_s,
    "Chunk gap": lambda m: m.chunk_gap_s,
}


def latencies(point: Point, blocks: Sequence[Block]) -> list[Latency]:
    theirs, ours = windows_of_both(point, blocks)
    return [
        Latency(cell, name, median_quantiles(theirs, cell, read), median_quantiles(ours, cell, read))
        for cell in dict.fromkeys(m.cell for m in ours)
        for name, read in _LATENCIES.items()
    ]


def shared_blocks(point: Point, blocks: Iterable[Block]) -> list[Block]:
    """The Blocks that hold both the baseline and a Point; of the confirmation alone where there is one."""
    shared = [b for b in valid(blocks) if b.baseline is not None and b.arm(point) is not None]
    return [b for b in shared if b.phase is Phase.CONFIRM] or shared


def windows_of_both(point: Point, blocks: Iterable[Block]) -> tuple[list[Measurement], list[Measurement]]:
    """Windows of the baseline and of a Point from the Blocks that hold both, of one place (see
    analysis.places)."""
    shared = places.of_one(shared_blocks(point, blocks))
    theirs = [m for b in shared if b.baseline is not None for m in b.baseline.measurements]
    return theirs, windows(point, shared)


def place_note(point: Point | None, blocks: Iterable[Block]) -> str:
    """The sentence that says which of several places `windows_of_both` is of; "" = there is but one."""
    return places.only_of(shared_blocks(point, blocks)) if point is not None else ""


def median_in(
    windows: Iterable[Measurement], cell: Cell, read: Callable[[Measurement], float | None]
) -> float | None:
    """The median of a figure over the windows of one Cell where it is known."""
    found = [value for m in windows if m.cell == cell and (value := read(m)) is not None]
    return float(median(found)) if found else None


def median_quantiles(
    measurements: Iterable[Measurement], cell: Cell, read: Callable[[Measurement], Quantiles | None]
) -> Quantiles | None:
    found = [q for m in measurements if m.cell == cell and (q := read(m)) is not None]
    if not found:
        return None
    return Quantiles(median(q.p50 for q in found), median(q.p95 for q in found), median(q.p99 for q in found))


@dataclass(frozen=True, slots=True)
class KnobEffect:
    """Mean log speed-up at the best and at the worst value of one knob of one method."""

    method: str
    knob: str
    worst_value: KnobValue
    worst: float
    best_value: KnobValue
    best: float
    trials: int


def knob_effects(trials: Sequence[Trial]) -> list[KnobEffect]:
    """Largest first; empty when there are too few Trials to say anything."""
    usable = measured(trials)
    if len(usable) < _FEWEST_TRIALS_FOR_KNOBS:
        return []
    by_knob: dict[tuple[str, str], dict[KnobValue, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in usable:
        for knob, value in trial.point.knobs.items():
            by_knob[trial.point.method, knob][value].append(trial.log_speedup or 0.0)
    effects = [_knob_effect(method, knob, values) for (method, knob), values in by_knob.items()]
    return sorted((e for e in effects if e is not None), key=lambda e: e.worst - e.best)


def _knob_effect(method: str, knob: str, values: Mapping[KnobValue, Sequence[float]]) -> KnobEffect | None:
    repeated = {v: fmean(logs) for v, logs in values.items() if len(logs) >= _FEWEST_TRIALS_PER_VALUE}
    if len(repeated) < 2:
        return None
    worst, best = min(repeated, key=repeated.__getitem__), max(repeated, key=repeated.__getitem__)
    used = sum(len(values[v]) for v in repeated)
    return KnobEffect(method, knob, worst, repeated[worst], best, repeated[best], used)


def pooled_outputs(checks: Iterable[OutputCheck | None]) -> OutputCheck | None:
    """Comparisons of several Blocks as one; None where nothing was compared."""
    found = pooled(checks)
    return found if found.compared else None


def shown_points(report: ReportInput) -> dict[str, Point]:
    """Every Point with figures, by its label: the sides of a comparison, else those that were searched."""
    if report.comparison is not None:
        return {side.point.label: side.point for side in report.comparison.sides}
    return {t.label: t.launched for t in measured(report.trials)}


def _has_acceptance(report: ReportInput) -> bool:
    points = shown_points(report).values()
    return any(pooled_acceptance(point, report.blocks).length is not None for point in points)


def missing(report: ReportInput) -> list[str]:
    """What this run does not say yet, one sentence each."""
    if report.comparison is not None:
        return _unchecked(report.comparison)
    lacks = {
        "No trial has been recorded.": not report.trials,
        "No trial has a number.": bool(report.trials) and not measured(report.trials),
        "The baseline has not been measured, so there is nothing to compare with.": not has_baseline(report),
        "No finalist has been confirmed: every speed-up here is a search estimate, and the best of many "
        "estimates is optimistic.": not report.verdicts and bool(measured(report.trials)),
        "No acceptance was measured.": bool(measured(report.trials)) and not _has_acceptance(report),
        "The load client has not been calibrated.": not report.calibration,
        "The environment was not recorded.": not report.environment,
    }
    return [*(sentence for sentence, true in lacks.items() if true), *_not_confirmed_on(valid(report.blocks))]


def _not_confirmed_on(blocks: Sequence[Block]) -> list[str]:
    """The confirmation may be over before every node has measured a Block of it."""
    confirmed_on = {b.node for b in blocks if b.phase is Phase.CONFIRM}
    others = sorted({b.node for b in blocks} - confirmed_on)
    if not confirmed_on or not others:
        return []
    return [
        f"No Block of the confirmation is from {', '.join(others)}: that the verdict holds there too is an"
        " assumption."
    ]


def _unchecked(comparison: Comparison) -> list[str]:
    """Notes, and what cannot be checked of each side; once where it is the same for both."""
    names: dict[str, list[str]] = {}
    for side in comparison.sides:
        for sentence in side.unchecked:
            names.setdefault(sentence, []).append(side.name)
    return [*comparison.notes, *(f"{' and '.join(of)}: {sentence}" for sentence, of in names.items())]
