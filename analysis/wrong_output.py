"""An arm whose replies say nothing has no number, however fast it is."""

from collections.abc import Mapping, Sequence

from analysis.output import is_degenerate
from analysis.summary import requests_by_cell
from results.reasons import Reason
from results.records import ArmRun, Failure, Request

MOST_OF_A_CELL = 0.5  # of its replies: one or two of a few may loop by chance


def wrong_output(
    requests: Sequence[Request], reference: Sequence[Request], max_share: float
) -> Failure | None:
    """Replies that are empty, loop or are garbage where the baseline's are not: over `max_share` of all."""
    ours, theirs = _replies(requests), _replies(reference)
    shared = sorted(ours.keys() & theirs.keys())
    empty = [p for p in shared if theirs[p].strip() and not ours[p].strip()]
    if empty:
        return Failure(
            Reason.INVALID_OUTPUT,
            f"empty reply where the baseline answers: {', '.join(key[1] for key in empty[:3])}",
        )
    return _garbage(ours, theirs, max_share)


def _garbage(
    ours: Mapping[tuple[str, str, int], str],
    theirs: Mapping[tuple[str, str, int], str],
    max_share: float,
    where: str = "",
) -> Failure | None:
    shared = sorted(ours.keys() & theirs.keys())
    bad = [p for p in shared if is_degenerate(ours[p], theirs[p])]
    only_theirs = sum(is_degenerate(theirs[p], ours[p]) for p in shared)  # a small model loops by itself
    if len(bad) - only_theirs <= max_share * len(shared):
        return None
    evidence = f"{where}{len(bad)} of {len(shared)} replies loop or are garbage: {ours[bad[0]][-60:]!r}"
    return Failure(Reason.INVALID_OUTPUT, evidence)


def wrong_in_one_cell(
    run: ArmRun, requests: Sequence[Request], baseline: ArmRun, reference: Sequence[Request]
) -> Failure | None:
    """Most replies of one Cell, which may be few among all."""
    ours = requests_by_cell(run.measurements, requests)
    theirs = requests_by_cell(baseline.measurements, reference)
    found = (
        _garbage(_replies(ours[cell]), _replies(theirs[cell]), MOST_OF_A_CELL, f"{cell.label}: ")
        for cell in ours
        if cell in theirs
    )
    return next((failure for failure in found if failure is not None), None)


def _replies(requests: Sequence[Request]) -> dict[tuple[str, str, int], str]:
    """Text by class, prompt, and how often it was sent before (a prompt may stand in several Cells)."""
    found: dict[tuple[str, str, int], str] = {}
    for r in requests:
        times = sum((r.workload_class, r.prompt_id) == key[:2] for key in found)
        if r.error is None:
            found[r.workload_class, r.prompt_id, times] = r.reasoning_text + r.text
    return found
