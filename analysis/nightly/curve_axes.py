"""The axes of a chart of nights: dates along the bottom, values with room above and below for marks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, floor
from statistics import quantiles
from typing import TYPE_CHECKING

from analysis import svg
from analysis.nightly.course import Seen
from results.nights import Night

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DAY_S = 86400
LANE, FOOT = 16, 22  # user units: of labels above the values, of marks below them
_GAP = 6  # between the labels and the values
_AROUND = 58  # above and below the axes
_FENCE = 4.0  # interquartile ranges beyond which a value would flatten all the others
_SPREAD = 0.05  # of the middle value: as if the interquartile range were never narrower
_NARROWEST = 0.04  # of the middle value: a scale shows no less, or noise would look like an event
_STEPS_DAYS = (1, 2, 4, 7, 14)
_STEPS_MONTHS = (1, 2, 3, 4, 6, 12)
_DATE = 24  # user units from the middle of a date to its end


@dataclass(frozen=True, slots=True)
class Look:
    """Sizes of a chart in user units, and how many ticks it has at most."""

    width: int
    left: int
    plot: int  # height of the part with the values
    dates: int
    values: int
    lanes: int = 0  # of labels above

    @property
    def height(self) -> int:
        return self.inside + _AROUND

    @property
    def inside(self) -> int:
        return self.plot + self.lanes * LANE + _GAP + FOOT

    @property
    def inner_width(self) -> int:
        return self.width - self.left - svg.RIGHT


@dataclass(frozen=True, slots=True)
class Days:
    """The days along the bottom, and how many user units they have."""

    low: float
    high: float
    width: int

    @property
    def per_unit(self) -> float:
        return (self.high - self.low) / self.width

    def place(self, night: Night) -> float:
        """In user units from the left."""
        return (night.began_at / DAY_S - self.low) / self.per_unit


def days_of(nights: Sequence[Night], look: Look) -> Days:
    """With a margin, so that no mark lies on the edge."""
    first, last = nights[0].began_at / DAY_S, nights[-1].began_at / DAY_S
    margin = max(0.6, 0.012 * (last - first))
    return Days(first - margin, last + margin, look.inner_width)


@dataclass(frozen=True, slots=True)
class Scale:
    """The values that a chart shows; a value beyond is drawn at the edge."""

    low: float
    high: float

    def within(self, value: float) -> float:
        return min(max(value, self.low), self.high)


def scale_of(seen: Sequence[Seen]) -> Scale:
    values = [v for one in seen for v in (one.value, one.again) if v is not None]
    bounds = [v for one in seen if one.bound is not None for v in (one.bound.lowest, one.bound.centre)]
    low, middle, high = quantiles([*values, *values], n=4, method="inclusive")
    reach = _FENCE * max(high - low, _SPREAD * abs(middle))
    kept = [*bounds, *(v for v in values if low - reach <= v <= high + reach)]
    room = max(0.0, _NARROWEST * abs(middle) - (max(kept) - min(kept))) / 2 or 1e-9
    return Scale(min(kept) - room, max(kept) + room)


def value_scale(axes: "Axes", scale: Scale, said: Callable[[float], str], look: Look) -> None:
    from matplotlib.ticker import MaxNLocator

    per_unit = (scale.high - scale.low) / look.plot
    ticks = MaxNLocator(nbins=look.values, steps=[1, 2, 2.5, 5, 10]).tick_values(scale.low, scale.high)
    axes.set_yticks([tick for tick in ticks if scale.low <= tick <= scale.high])
    axes.yaxis.set_major_formatter(lambda value, _: said(value))
    axes.set_ylim(scale.low - FOOT * per_unit, scale.high + (look.lanes * LANE + _GAP) * per_unit)
    axes.grid(axis="y")


def date_scale(axes: "Axes", days: Days, most: int) -> None:
    ticks = date_ticks(days.low, days.high - _DATE * days.per_unit, most)
    axes.set_xticks([day for day, _ in ticks], [said for _, said in ticks])
    axes.set_xlim(days.low, days.high)


def date_ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Days since 1970 from `low` to `high` with their dates: no more than `most`, at equal steps."""
    midnights = range(ceil(low), floor(high) + 1)
    for step in _STEPS_DAYS:
        ticks = [day for day in midnights if day % step == 0]
        if len(ticks) <= most:
            return [(day, f"{_date(day).day} {_date(day):%b}") for day in ticks]
    firsts = [day for day in midnights if _date(day).day == 1]
    step = next(s for s in _STEPS_MONTHS if len(firsts) <= most * s or s == _STEPS_MONTHS[-1])
    return [(day, f"{_date(day):%b %Y}") for day in firsts if (_date(day).month - 1) % step == 0]


def _date(day: int) -> datetime:
    return datetime.fromtimestamp(day * DAY_S, UTC)


def apart(places: Sequence[float], least: float) -> list[bool]:
    """Which of the ascending places to keep, so that none is nearer than that to the one kept before."""
    kept: list[bool] = []
    before = float("-inf")
    for place in places:
        kept.append(place - before >= least)
        before = place if kept[-1] else before
    return kept
