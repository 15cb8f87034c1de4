"""What went wrong in a run, with cause and remedy: trials without a number, Blocks that were thrown away."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis import findings, words
from analysis.excerpt import Excerpt
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table, number
from results.reasons import Reason
from results.records import Block, Failure, Trial


def failures(report: ReportInput) -> Table:
    rows = [
        (
            number(t.number),
            Entry(t.label, code=True),
            Entry(findings.reason_of(t)),
            Entry(_meaning(t)),
            Entry(words.clean(t.failure.evidence) if t.failure else "", code=True),
        )
        for t in findings.failed(report.trials)
    ]
    columns = ("Trial", "Configuration", "Reason", "What it means", "Evidence")
    return Table("failures", "Trials that failed", columns, tuple(rows), frozenset({"Trial"}))


def _meaning(trial: Trial) -> str:
    if trial.failure is None:
        return "No number was recorded"
    broken = [
        f"{name} at {words.times(value)} of its limit" for name, value in trial.limits.items() if value > 0
    ]
    reached = [f"speed-up {words.times(trial.log_speedup)}"] if _has_number_beyond_limit(trial) else []
    said = "; ".join([words.REASONS[trial.failure.reason], *broken, *reached])
    return f"{said}. {words.REMEDIES[trial.failure.reason]}"


def _has_number_beyond_limit(trial: Trial) -> bool:
    beyond = trial.failure is not None and trial.failure.reason is Reason.LIMIT_EXCEEDED
    return beyond and words.factor(trial.log_speedup) is not None


def invalid_blocks(report: ReportInput) -> Table:
    rows = [
        (
            number(b.number),
            Entry(b.phase.value),
            Entry(" / ".join(a.point.label for a in b.arms), code=True),
            Entry(b.invalid.reason.value),
            Entry(f"{words.REASONS[b.invalid.reason]}. {words.REMEDIES[b.invalid.reason]}"),
            Entry(words.clean(b.invalid.evidence), code=True),
        )
        for b in report.blocks
        if b.invalid is not None
    ]
    columns = ("Block", "Phase", "Arms in order", "Reason", "What it means", "Evidence")
    note = "A Block that was disturbed is thrown away whole and measured again; none of it is in any figure."
    title = "Blocks that were thrown away"
    return Table("invalid-blocks", title, columns, tuple(rows), frozenset({"Block"}), note)


@dataclass(frozen=True, slots=True)
class Case:
    """One failed launch with what its log says."""

    title: str
    failure: Failure
    log: str  # file name under logs/
    excerpt: Excerpt


def cases(report: ReportInput) -> list[Case]:
    """Every failed arm whose log was there to read, in the order they ran."""
    trials = {number: t for t in report.trials for number in t.blocks}
    return [
        Case(_case_title(block, arm.point.label, trials.get(block.number)), arm.failure, arm.log, found)
        for block in report.blocks
        for arm in block.arms
        if arm.failure is not None and (found := report.excerpts.get(arm.log)) is not None
    ]


def _case_title(block: Block, label: str, trial: Trial | None) -> str:
    is_trial = trial is not None and trial.launched.label == label
    where = f"Trial {trial.number}" if trial is not None and is_trial else f"Block {block.number}"
    return f"{where}, {label}"


def lines_of(case: Case) -> Sequence[str]:
    """What of the log is shown, as plain text: the line in question is marked."""
    marks = ("> " if i == case.excerpt.shows else "  " for i in range(len(case.excerpt.lines)))
    return [f"{mark}{line}" for mark, line in zip(marks, case.excerpt.lines, strict=True)]
