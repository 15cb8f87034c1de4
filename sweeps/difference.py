"""One pair of answers that differ, out of the raw requests of a run: for a person to read."""

from collections.abc import Sequence
from dataclasses import replace

from analysis.findings import subject
from analysis.output import around_difference, common_prefix_chars
from analysis.report_input import Difference, ReportInput
from results.records import Block, Request
from results.store import RunFolder


def with_difference(folder: RunFolder, report: ReportInput) -> ReportInput:
    """The same report with the pair of its winner (or best) that parts from the baseline the earliest."""
    point = subject(report)
    blocks = [b for b in report.blocks if point is not None and b.invalid is None and _differs(b, point.key)]
    if point is None or not blocks:
        return report
    block = blocks[-1]
    theirs, ours = (
        _answers(folder.read_requests(run.requests)) for run in (block.baseline, block.arm(point)) if run
    )
    pairs = [(p, theirs[p], ours[p]) for p in theirs if p in ours and theirs[p] != ours[p]]
    if not pairs:
        return report
    (name, _), a, b = min(pairs, key=lambda pair: common_prefix_chars(pair[1], pair[2]))
    return replace(report, difference=Difference(name, point.label, *around_difference(a, b)))


def _differs(block: Block, key: str) -> bool:
    check = block.outputs.get(key)
    return check is not None and check.identical < check.compared and block.baseline is not None


def _answers(requests: Sequence[Request]) -> dict[tuple[str, int], str]:
    """Text by prompt, and how often it was sent before."""
    found: dict[tuple[str, int], str] = {}
    for request in requests:
        name = f"{request.prompt_id} ({request.workload_class})"
        times = sum(known == name for known, _ in found)
        if request.error is None:
            found[name, times] = request.reasoning_text + request.text
    return found
