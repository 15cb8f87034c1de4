"""The nodes of a cluster run: what each measured, how its Baseline stands to the others', what that hides."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from analysis import findings, places, words
from analysis.anchor import Place, place_of
from analysis.apart import Gap, Value, at_least_by_node, gaps
from analysis.block import HIGHER_IS_BETTER, figure
from analysis.report_input import ReportInput
from results.records import ArmRun, Block, Weights

SECONDS_PER_HOUR = 3600.0

Kind = tuple[str, str]  # of a Baseline's figures: which one, on which prompts


@dataclass(frozen=True, slots=True)
class AtPlace:
    """What was measured at one place: a node, and GPUs of it."""

    place: Place
    gpus: int  # of one server; 0 = it uses none
    blocks: int
    invalid: int  # of them thrown away
    hours: float  # in Blocks
    level: float | None  # of the Baseline: geometric mean over Cells and Blocks, in the objective's unit
    by_cell: Mapping[str, float]  # the same by Cell label
    gap: Gap | None  # of the Baseline to the other places' that do not differ; > 0 is better

    @property
    def gpu_hours(self) -> float:
        return self.gpus * self.hours


def by_place(report: ReportInput) -> list[AtPlace]:
    """In the order of their names; empty for a run that one machine measured itself."""
    if not places.is_cluster(report.blocks):
        return []
    cells = _cells(report.blocks)
    runs = [b for b in findings.valid(report.blocks) if _is_whole(b.baseline)]
    kind = _commonest([_kind(b) for b in runs])
    found = {g.place: g for g in baseline_gaps(report)}
    return [
        _at(
            place,
            places.at(place, report.blocks),
            [b for b in places.at(place, runs) if _kind(b) == kind],
            cells,
            report,
            found,
        )
        for place in sorted({place_of(b) for b in report.blocks})
    ]


def _at(
    place: Place,
    blocks: Sequence[Block],
    levelled: Sequence[Block],
    cells: Sequence[str],
    report: ReportInput,
    found: Mapping[Place, Gap],
) -> AtPlace:
    logs = [(log, b) for b in levelled if b.baseline and (log := _logs(b.baseline, cells, report.objective))]
    by_cell = {cell: math.exp(fmean(log[cell] for log, _ in logs)) for cell in cells if logs}
    means = [_mean(log, b.baseline, report.weights) for log, b in logs if b.baseline]
    return AtPlace(
        place,
        max(map(gpus_of, blocks), default=0),
        len(blocks),
        sum(b.invalid is not None for b in blocks),
        sum(b.ended_at - b.started_at for b in blocks) / SECONDS_PER_HOUR,
        math.exp(fmean(means)) if means else None,
        by_cell,
        found.get(place) or found.get((place[0], ())),
    )


def gpus_of(block: Block) -> int:
    """How many GPUs a server of it had: those it was given, else those that its telemetry saw."""
    windows = (m for arm in block.arms for m in arm.measurements)
    return len(block.gpus) or max((len(m.telemetry.gpus) for m in windows), default=0)


def baseline_gaps(report: ReportInput) -> list[Gap]:
    """How the Baseline stands at each place to the others, as far as the noise is known; > 0 is better."""
    cells, sign = _cells(report.blocks), 1.0 if report.objective in HIGHER_IS_BETTER else -1.0
    values = [
        Value(place_of(b), sign * _mean(logs, b.baseline, report.weights), repr(_kind(b)))
        for b in findings.valid(report.blocks)
        if b.baseline is not None and _is_whole(b.baseline)
        if (logs := _logs(b.baseline, cells, report.objective))
    ]
    return gaps(at_least_by_node(values), math.log1p(report.same_margin))


def _is_whole(run: ArmRun | None) -> bool:
    return run is not None and run.failure is None and run.complete and bool(run.measurements)


def _kind(block: Block) -> Kind:
    return block.compared_with.key, block.prompt_set


def _commonest(kinds: Sequence[Kind]) -> Kind | None:
    return max(dict.fromkeys(kinds), key=kinds.count, default=None)


def _cells(blocks: Iterable[Block]) -> list[str]:
    """Labels of the Cells whose load every Baseline could admit."""
    windows = [m for b in findings.valid(blocks) if b.baseline for m in b.baseline.measurements]
    full = {m.cell.label for m in windows if m.capacity_limited}
    return [label for label in dict.fromkeys(m.cell.label for m in windows) if label not in full]


def _logs(run: ArmRun, cells: Sequence[str], objective: str) -> dict[str, float]:
    """Log figure by Cell; empty unless it is known of all."""
    known = {m.cell.label: figure(m, objective) for m in run.measurements}
    found = {c: math.log(v) for c in cells if (v := known.get(c)) is not None and math.isfinite(v) and v > 0}
    return found if len(found) == len(cells) else {}


def _mean(logs: Mapping[str, float], run: ArmRun, weights: Weights) -> float:
    shares = [weights.of(m.cell) for m in run.measurements if m.cell.label in logs]
    ordered = [logs[m.cell.label] for m in run.measurements if m.cell.label in logs]
    return fmean(ordered, shares if any(shares) else None)


def cautions(report: ReportInput) -> list[str]:
    """Places whose Baseline differs by more than the noise, a sentence each."""
    signs = words.signs(report.objective)
    return [_caution(gap, signs) for gap in baseline_gaps(report) if gap.differs]


def _caution(gap: Gap, signs: tuple[str, str]) -> str:
    share = f"{100 * abs(math.expm1(gap.log_ratio)):.1f} % {signs[gap.log_ratio < 0]}"
    bounds = f"{words.signed_percent(gap.low)} to {words.signed_percent(gap.high)}"
    return (
        f"{places.label(gap.place)} is {share} than the other places without speculation ({bounds}): more"
        " than the noise between launches. Speed-ups are ratios within a Block, so this does not touch them;"
        " look at its clocks, power limits, cooling and neighbours."
    )


def unknown(report: ReportInput) -> str:
    """Why it cannot be said whether places differ; "" = it can, or there is but one."""
    several = len({place_of(b) for b in findings.valid(report.blocks)}) > 1
    if not places.is_cluster(report.blocks) or not several or baseline_gaps(report):
        return ""
    return (
        "Whether the places differ is not known: too few launches of the baseline on each to tell its noise."
    )
