"""What to know of a series though it is no regression, in one sentence without a full stop."""

from collections.abc import Sequence
from statistics import median

from analysis.nightly.judgement import Judged, State
from analysis.nightly.scale import WIDE_LOSS, below, change, is_share, is_usable, off_scale, on_scale
from analysis.words import percent

_FEWEST_TO_WARN = 3  # nights: of fewer the median says nothing


def warning(judged: Judged, before: Sequence[float]) -> str:
    """Of one judged series with what was before, on its scale; "" = nothing to know."""
    if judged.state is State.INSUFFICIENT:
        return _guard(judged, before)
    if not judged.breached or judged.state is not State.PASS:
        return ""
    if judged.again is None or judged.lowest is None:
        return "below its bound and not measured again: not confirmed"
    if judged.again < judged.lowest:
        return "below its bound twice, but by less than chance may do among all series of a night"
    return "below its bound at first, not in the rerun"


def not_measured(series: str) -> str:
    """A whole sentence for the night: there is nothing to judge."""
    return f"{series} was not measured, though it was the last time."


def _guard(judged: Judged, before: Sequence[float]) -> str:
    """The wide guard while there are too few nights for an interval."""
    if not is_usable(judged.series, judged.value):
        return f"{judged.value:g} is no figure that can be judged"
    if len(before) < _FEWEST_TO_WARN:
        return ""
    middle = median(before)
    if on_scale(judged.series, judged.value) >= below(judged.series, middle, WIDE_LOSS):
        return ""
    loss = -change(judged.series, judged.value, off_scale(judged.series, middle))
    amount = f"{100 * loss:.0f} points" if is_share(judged.series) else percent(loss)
    return f"{amount} below the median of the {len(before)} nights before, which are too few to judge by"
