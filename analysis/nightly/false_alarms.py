"""How often the gate cries wolf on this machine, from A/A nights: the baseline against itself.

Nothing differs in such a night, so whatever is out is a false alarm of the first measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.nightly.expectation import expectations
from analysis.nightly.rule import out
from analysis.nightly.scale import is_judged, is_usable
from analysis.nightly.segments import is_comparable, of_the_same, reference
from analysis.words import percent
from results.nights import Night, NightKind

FEWEST_OTHERS = 5  # A/A nights that one is compared with; they are rare, so fewer than a check needs
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """Of the first measurement, before any rerun. `low` and `high`: exact 95 % interval of the rate."""

    nights: int  # that could be compared
    breached: int
    low: float
    high: float

    @property
    def rate(self) -> float | None:
        return self.breached / self.nights if self.nights else None

    def __str__(self) -> str:
        if self.rate is None:
            fewest = FEWEST_OTHERS + 1
            return f"Too few A/A nights to tell false alarms: it takes {fewest} under equal conditions."
        between = f"{percent(self.low)} to {percent(self.high)} with 95 % confidence"
        return (
            f"{self.breached} of {self.nights} A/A nights would have been measured again: "
            f"{percent(self.rate)} false breaches ({between}); an alarm needs two of them in one night."
        )


def false_alarms(history: Sequence[Night]) -> FalseAlarms:
    """Every A/A night against the other A/A nights of its pin and machine under the same conditions.

    Later ones too: a machine does not know the date. One pin and one machine, or several together.
    """
    aa = {night.id: night for night in history if night.kind is NightKind.AA and night.failure is None}
    found = [_breached(list(aa.values()), night) for night in aa.values()]
    compared = [breached for breached in found if breached is not None]
    low, high = exact_interval(sum(compared), len(compared))
    return FalseAlarms(len(compared), sum(compared), low, high)


def exact_interval(hits: int, of: int) -> tuple[float, float]:
    """Clopper and Pearson 1934; (0, 1) of nothing."""
    from scipy.stats import binomtest

    if not of:
        return 0.0, 1.0
    interval = binomtest(hits, of).proportion_ci(LEVEL, method="exact")
    return float(interval.low), float(interval.high)


def _breached(nights: Sequence[Night], night: Night) -> bool | None:
    """Whether any series of it is out; None without enough nights to tell."""
    others = [other for other in of_the_same(nights, night) if is_comparable(other, night)]
    judged = [s for s, value in night.values.items() if is_judged(s) and is_usable(s, value)]
    before = {s: reference(others, night, s) for s in judged}
    expected = expectations(before, FEWEST_OTHERS)
    return bool(out(night.values, expected)) if expected else None
