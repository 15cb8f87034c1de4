"""What a series usually is, for those that the rule does not judge: told ones, and any that rose."""

from collections.abc import Sequence
from math import isfinite
from statistics import median

from analysis.nightly.changed import comparable
from analysis.nightly.figures import change_between, figure, is_share, name_of, sentence
from results.nights import BASELINE, TOLD, Night, kind_of

FEWEST, MOST = 5, 30  # comparable nights that say what is usual
# A series has clearly moved if it is beyond all of these nights, and this far from their median: a share of
# it, or points of what is itself a share.
CLEARLY = {
    BASELINE: 0.02,
    "identical_share": 0.05,
    "winner_tokens_per_s": 0.03,
    "baseline_start_s": 0.2,
    "winner_start_s": 0.2,
    "baseline_memory_bytes": 0.05,
    "winner_memory_bytes": 0.05,
}


def usual(history: Sequence[Night], night: Night, series: str) -> list[float]:
    """Its values in the last comparable nights; empty if they are too few."""
    values = [n.values[series] for n in comparable(history, night) if series in n.values][-MOST:]
    finite = [v for v in values if isfinite(v)]
    return finite if len(finite) >= FEWEST else []


def clearly_from(history: Sequence[Night], night: Night, series: str) -> float | None:
    """The median that tonight's value has clearly moved away from; None if it has not."""
    value, before = night.values.get(series), usual(history, night, series)
    if value is None or not isfinite(value) or not before or min(before) <= value <= max(before):
        return None
    middle = median(before)
    least = CLEARLY[kind_of(series)] * (1.0 if is_share(series) else abs(middle))
    return middle if abs(value - middle) >= least else None


def told(history: Sequence[Night], night: Night) -> list[str]:
    """What has clearly moved: `Winner's start time: 42 s, beyond all of 20 nights (median 30 s, +40.0 %).`"""
    return [
        _said(series, night.values[series], middle, len(usual(history, night, series)))
        for series in sorted(night.values, key=lambda s: (_order(s), s))
        if kind_of(series) in TOLD and (middle := clearly_from(history, night, series)) is not None
    ]


def _order(series: str) -> int:
    return TOLD.index(kind_of(series)) if kind_of(series) in TOLD else len(TOLD)


def _said(series: str, value: float, middle: float, nights: int) -> str:
    moved = f"median {figure(series, middle)}, {change_between(series, middle, value)}"
    return sentence(f"{name_of(series)}: {figure(series, value)}, beyond all of {nights} nights ({moved})")
