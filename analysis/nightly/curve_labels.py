"""The texts in a wide chart: what began above the values, versions below the dates, where there is room."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis import svg, words
from analysis.nightly.course import Begun, Curve
from analysis.nightly.curve_axes import LANE, Days, Scale
from analysis.nightly.figures import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = 11
_LETTER = 6.0  # mean width of one at this size, in user units
_LONGEST = 34  # letters
_MOST_LANES = 3
_TOP, _BELOW_DATES = -12, -37  # user units above the corner of the axes


@dataclass(frozen=True, slots=True)
class Label:
    text: str
    begin: float  # user units from the left of the axes
    lane: int


def labels(begun: Sequence[Begun], days: Days, most_lanes: int = _MOST_LANES) -> list[Label]:
    """Each in the first lane that has room; where none has, the mark alone says it. Oldest first."""
    taken = [float("-inf")] * most_lanes
    found = []
    for one in begun:
        text = _shortened(one.brief)
        begin, end = _span(days.place(one.night), text, days.width)
        lane = next((i for i, until in enumerate(taken) if until <= begin), None)
        if lane is not None:
            taken[lane] = end
            found.append(Label(text, begin, lane))
    return found


def lanes(found: Iterable[Label]) -> int:
    return max((label.lane + 1 for label in found), default=0)


def _span(place: float, text: str, room: float) -> tuple[float, float]:
    """A text stands right of its place, or left of it where the chart ends."""
    width = _LETTER * len(text)
    begin = place + 6 if place + 6 + width <= room else max(0.0, place - 10 - width)
    return begin, begin + width + 8


def _shortened(text: str) -> str:
    text = words.one_line(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def say_what_began(axes: "Axes", found: Iterable[Label]) -> None:
    for label in found:
        _say(axes, label.text, label.begin, 1, _TOP - label.lane * LANE, svg.INK)


def say_versions(axes: "Axes", changed: Sequence[Begun], days: Days) -> None:
    for label in labels(changed, days, most_lanes=1):
        _say(axes, label.text, label.begin, 0, _BELOW_DATES, svg.MUTED)


def say_values_beyond(axes: "Axes", curve: Curve, scale: Scale, days: Days) -> None:
    """The figures of nights that are drawn at the edge of the scale."""
    low, high = axes.get_ylim()
    for one in curve.seen:
        if (edge := scale.within(one.value)) != one.value:
            text = figure(curve.series, one.value)
            begin, _ = _span(days.place(one.night) + 8, text, days.width)
            _say(axes, text, begin, (edge - low) / (high - low), -4, svg.BAD)


def _say(axes: "Axes", text: str, right: float, share: float, up: float, colour: str) -> None:
    """`right` in user units from the left; `up` in user units from that share of the height."""
    axes.annotate(
        text,
        (0, share),
        (right, up),
        xycoords="axes fraction",
        textcoords="offset points",
        color=colour,
        size=_SIZE,
    )
