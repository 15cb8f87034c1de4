"""The group of causes that the series of a night point to."""

from collections.abc import Sequence
from math import log

from analysis.nightly.figures import failed, figure, position_of
from analysis.nightly.judgement import Judged, Judgement, State
from analysis.nightly.moved import positions_down
from analysis.nightly.usual import clearly_from
from results.nights import BASELINE, LENGTH, SPEED_UP, Night, cell_of, kind_of, series_of

_MOST_OF_IT = 2 / 3  # of a fall, that the other arm's rise must explain

_BOTH = (
    "Likely the machine, and the cost of speculation: the baseline is slower than it was, and the pinned "
    "configuration lost even more"
)
_MACHINE = (
    "Likely the machine: the baseline is slower and the speed-up holds, so both servers lost alike. "
    "Look at clocks, power, heat and what else runs there."
)
_COST = (
    "Likely the cost of drafting and verifying: acceptance holds, so each step of the pinned configuration "
    "takes longer than it did."
)
_UNKNOWN = "The speed-up fell; acceptance is not judged, so the drafter and its cost cannot be told apart."


def likely(history: Sequence[Night], judgement: Judgement) -> str:
    """One or two sentences; "" if nothing failed."""
    down = failed(judgement.series)
    groups = {_group(j.series) for j in down}
    if LENGTH in groups:
        return _acceptance(judgement, cell_of(_first(down, LENGTH).series), slower_too=BASELINE in groups)
    if BASELINE in groups:
        return _both(judgement) if SPEED_UP in groups else _slower(history, judgement, _first(down, BASELINE))
    return _cost(history, judgement, _first(down, SPEED_UP)) if SPEED_UP in groups else ""


def _both(judgement: Judgement) -> str:
    return f"{_BOTH} at steady acceptance." if _acceptance_held(judgement) else f"{_BOTH}."


def _acceptance_held(judgement: Judgement) -> bool:
    return any(_group(j.series) == LENGTH and j.state is State.PASS for j in judgement.series)


def _group(series: str) -> str:
    return LENGTH if position_of(series) is not None else kind_of(series)


def _first(down: Sequence[Judged], group: str) -> Judged:
    """The worst over all Cells, else the worst of a Cell."""
    return min((j for j in down if _group(j.series) == group), key=lambda j: cell_of(j.series) != "")


def _acceptance(judgement: Judgement, cell: str, *, slower_too: bool) -> str:
    said = "Likely the drafter or the sampling: fewer drafts are accepted."
    down = positions_down(judgement, cell)
    first = position_of(down[0].series) if down else None
    if first is not None and first > 1:
        said += f" Acceptance holds before position {first}, so it is the later steps of the drafter."
    return f"{said} The baseline is slower too, which a drafter does not explain." if slower_too else said


def _slower(history: Sequence[Night], judgement: Judgement, baseline: Judged) -> str:
    """The baseline is: with the pinned configuration, or it alone."""
    ratio = _of(judgement, series_of(SPEED_UP, cell_of(baseline.series)))
    if ratio is None or _log_change(ratio) < -_MOST_OF_IT * _log_change(baseline):
        return _MACHINE
    return (
        "The engine got slower without speculation: the pinned configuration is as fast as it was, "
        f"and the speed-up rose to {figure(ratio.series, ratio.value)}."
    )


def _cost(history: Sequence[Night], judgement: Judgement, ratio: Judged) -> str:
    """Of speculating; or the other server got faster, and nothing is lost."""
    baseline = _of(judgement, series_of(BASELINE, cell_of(ratio.series)))
    if baseline is not None and _rose(history, judgement.night, baseline):
        rise = _log_change(baseline)
        if rise >= -_MOST_OF_IT * _log_change(ratio):
            return _faster(baseline)
    return _COST if _acceptance_held(judgement) else _UNKNOWN


def _faster(baseline: Judged) -> str:
    moved = f"{figure(baseline.series, baseline.expected)} -> {figure(baseline.series, baseline.value)}"
    return (
        f"Nothing is lost: the engine got faster without speculation ({moved}), and the pinned configuration "
        "is about as fast as it was. A new search may find what gains on the faster engine; then pin again."
    )


def _rose(history: Sequence[Night], night: Night, baseline: Judged) -> bool:
    usually = clearly_from(history, night, baseline.series)
    return usually is not None and baseline.value > usually


def _of(judgement: Judgement, series: str) -> Judged | None:
    return next((j for j in judgement.series if j.series == series), None)


def _log_change(judged: Judged) -> float:
    """log of value / expected; 0 where it is not known."""
    if judged.expected is None or judged.expected <= 0 or judged.value <= 0:
        return 0.0
    return log(judged.value / judged.expected)
