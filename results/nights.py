"""One night of the nightly gate: what the pinned configuration measured, and what was concluded.

A series is one figure followed over the nights. Its name is its kind, then for one Cell alone a slash
and the Cell's label: `speed_up`, `speed_up/chat @ closed(4)`, `acceptance_at_1`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from results.records import SCHEMA, Failure

SPEED_UP = "speed_up"  # pinned winner / pinned baseline, as a factor
BASELINE = "baseline_tokens_per_s"
LENGTH = "acceptance_length"  # tokens per verification step of the winner
POSITION = "acceptance_at_"  # with the position, from 1: share of drafts accepted at least up to there
TOLD = (  # told, never judged
    "identical_share",  # greedy texts of the winner equal to the baseline's
    "winner_tokens_per_s",
    "baseline_start_s",
    "winner_start_s",
    "baseline_memory_bytes",
    "winner_memory_bytes",
)


def series_of(kind: str, cell: str = "") -> str:
    """Name of a series; without a Cell it is over all of them."""
    return f"{kind}/{cell}" if cell else kind


def kind_of(series: str) -> str:
    return series.partition("/")[0]


def cell_of(series: str) -> str:
    """Label of its Cell; "" = over all Cells."""
    return series.partition("/")[2]


class NightVerdict(StrEnum):
    PASS = "PASS"
    REGRESSION = "REGRESSION"
    INSUFFICIENT = "INSUFFICIENT"  # not enough nights to compare with
    CONFIG_DRIFT = "CONFIG_DRIFT"  # the server ran with other settings than the night before
    INVALID = "INVALID"  # nothing could be measured


class NightKind(StrEnum):
    CHECK = "check"  # pinned winner against pinned baseline
    AA = "A/A"  # the baseline against itself: what differs is noise


@dataclass(frozen=True, slots=True)
class Night:
    """One run of the gate on one machine: one line of its history."""

    id: str  # unique: a record merged twice counts once
    pin: str  # name of the pinned configuration
    kind: NightKind
    machine: str  # who measured: a name that stays the same from night to night
    began_at: float  # Unix time
    ended_at: float
    segment: Mapping[str, str]  # what must be equal for two nights to be compared, e.g. gpu, driver, prompts
    versions: Mapping[str, str]  # what else may explain a change, e.g. engine, image, kernel
    effective: Mapping[str, str]  # settings read back from the servers, e.g. "winner n_max"
    blocks: int = 0  # usable ones of the first measurement
    values: Mapping[str, float] = field(default_factory=dict)  # series -> the first measurement
    again: Mapping[str, float] = field(default_factory=dict)  # series -> the rerun after a breach
    breached: tuple[str, ...] = ()  # series below their bound in the first measurement
    alarms: tuple[str, ...] = ()  # and in the rerun, or leaking for weeks: a regression
    verdict: NightVerdict = NightVerdict.PASS
    failure: Failure | None = None  # why there are no figures, or which fault of the winner is the regression
    said: tuple[str, ...] = ()  # the explanation, in sentences
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Accepted:
    """A shift that somebody accepted: a new segment begins with that night."""

    since_at: float  # Unix time: nights that began earlier are of the segment before
    series: str  # the series it is accepted for, or "all"
    reason: str
    machine: str = "all"
