"""What a page shows of what a run keeps beside its records: raw requests, GPU samples and logs."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from analysis import findings
from analysis.excerpt import Excerpt, excerpt
from analysis.report_input import ReportInput
from analysis.timeline import Recorded, Timeline, timeline
from results.records import ArmRun, Block, Phase, Point
from results.store import RunFolder
from sweeps.difference import with_difference

LOG_BYTES = 512 * 1024  # of the end of a log; a cause stands near the end
MOST_EXCERPTS = 40


def with_evidence(folder: RunFolder, report: ReportInput) -> ReportInput:
    """The same report with its folder, one pair of answers that differ, the timeline of one Block, and what
    the logs say of failures.

    What cannot be read is left out: a report never fails for want of raw records.
    """
    return replace(
        with_difference(folder, report),
        folder=str(folder.path),
        timeline=_timeline(folder, report),
        excerpts=_excerpts(folder, report),
    )


def _timeline(folder: RunFolder, report: ReportInput) -> Timeline | None:
    point = findings.subject(report)
    block = _last_good_block(report.blocks, point) if point is not None else None
    if point is None or block is None:
        return None
    reference = "A" if report.comparison else "baseline"
    ours, theirs = block.arm(point), block.baseline
    named = {reference: theirs, findings.subject_name(report): ours}
    try:
        return timeline(
            block.number, [_recorded(folder, n, arm) for n, arm in named.items() if arm is not None]
        )
    except (OSError, ValueError, LookupError):  # of pyarrow too: a file that is damaged or not ours
        return None


def _recorded(folder: RunFolder, name: str, arm: ArmRun) -> Recorded:
    return Recorded(name, arm, folder.read_requests(arm.requests), folder.read_telemetry(arm.requests))


def _last_good_block(blocks: Iterable[Block], point: Point) -> Block | None:
    """Of the confirmation, else of the search: the last in which both were measured in full."""
    good = [b for b in findings.valid(blocks) if _is_whole(b.baseline) and _is_whole(b.arm(point))]
    confirmed = [b for b in good if b.phase is Phase.CONFIRM]
    return next(reversed(confirmed or good), None)


def _is_whole(arm: ArmRun | None) -> bool:
    return arm is not None and arm.failure is None and not arm.stopped_early and arm.complete


def _excerpts(folder: RunFolder, report: ReportInput) -> dict[str, Excerpt]:
    """By name of the log; the latest failures if there are very many."""
    failed = {a.log: a.failure for b in report.blocks for a in b.arms if a.failure is not None and a.log}
    latest = [*failed.items()][-MOST_EXCERPTS:]
    found = {log: excerpt(_end_of(folder.logs / Path(log).name), failure.evidence) for log, failure in latest}
    return {log: shown for log, shown in found.items() if shown is not None}


def _end_of(log: Path) -> str:
    """Nothing if it is gone."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
