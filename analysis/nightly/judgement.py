"""What the gate concludes of one night, before it is shown or recorded."""

from dataclasses import dataclass
from enum import StrEnum

from results.nights import Night, NightVerdict


class State(StrEnum):
    """Of one series in one night."""

    PASS = "PASS"
    REGRESSION = "REGRESSION"  # below its bound twice in one night
    LEAK = "LEAK"  # no single night is out, but the last week lies below the first nights of the segment
    INSUFFICIENT = "INSUFFICIENT"  # too few nights in its segment
    TOLD = "TOLD"  # informational: never judged


@dataclass(frozen=True, slots=True)
class Judged:
    """One series of one night. Figures are in the units of the series."""

    series: str
    state: State
    value: float  # the first measurement
    again: float | None = None  # the rerun
    nights: int = 0  # that it was compared with
    expected: float | None = None  # centre of the prediction interval
    lowest: float | None = None  # below this is a breach
    change: float | None = None  # value / expected - 1; of a share the difference in points
    p_value: float | None = None  # one-sided, of the first measurement
    breached: bool = False  # the first measurement is out: rerun at once
    warning: str = ""  # what to know though nothing failed, e.g. 12 % below the median of 3 nights


@dataclass(frozen=True, slots=True)
class Judgement:
    """One night. `night` is complete and may be recorded."""

    night: Night
    series: tuple[Judged, ...]

    @property
    def verdict(self) -> NightVerdict:
        return self.night.verdict
