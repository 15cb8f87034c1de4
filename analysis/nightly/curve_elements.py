"""The marks of a chart as elements over its drawing, in the order of time, for the mouse and the keyboard.

One of them is a stop of the keyboard; the script of the page leads from it to the others with the arrow keys.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis import svg
from analysis.markup import text
from analysis.nightly.curve_axes import DAY_S, FOOT, LANE, Look, Scale
from analysis.nightly.curve_marks import Form, Mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BESIDE = 6  # user units from a first measurement to its rerun
_PATHS = {  # from the place of the mark; round ones follow the number of nights in size
    Form.NIGHT: "h0",
    Form.BREACH: "m-4.5-3.5h9l-4.5 8z",
    Form.AGAIN: "m0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z",
    Form.ALARM: "m-5.5-4.5h11l-5.5 10z",
    Form.INVALID: "m-3-3l6 6m0-6l-6 6",
    Form.LEVEL: "m-4 3.5h8l-4-7z",
    Form.SEGMENT: "m0-4v8",
    Form.ACCEPTED: "m-4 0l3 3l5.5-6.5",
    Form.VERSION: "v-7",
}
_RADII = (1.7, 3.3)  # smallest and largest of a night


def elements(axes: "Axes", marks: Sequence[Mark], scale: Scale, look: Look) -> str:
    in_order = sorted(marks, key=lambda mark: mark.at)
    dots = sum(mark.form in (Form.NIGHT, Form.UNJUDGED) for mark in marks)
    radius = min(max(0.36 * look.inner_width / max(dots, 1), _RADII[0]), _RADII[1])
    paths = {**_PATHS, Form.UNJUDGED: _ring(radius)}
    drawn = []
    for i, mark in enumerate(in_order):
        x, y = svg.place(axes, mark.at / DAY_S, _height(axes, mark, scale, look))
        place = f"M{x + BESIDE * mark.rerun:.1f} {y:.1f}{paths[mark.form]}"
        drawn.append(_element(mark, place, stop=i == len(in_order) - 1))
    return f'<g class="marks" stroke-width="{2 * radius:.1f}">{"".join(drawn)}</g>'


def _ring(radius: float) -> str:
    r = round(0.9 * radius, 1)
    return f"m{-r} 0a{r} {r} 0 1 0 {2 * r:g} 0a{r} {r} 0 1 0{-2 * r:g} 0"


def _element(mark: Mark, path: str, *, stop: bool) -> str:
    css = "" if mark.form is Form.NIGHT else f' class="{mark.form}"'
    return (
        f'<path{css} role="img" tabindex="{0 if stop else -1}" d="{path}">'
        f"<title>{text(mark.said)}</title></path>"
    )


def _height(axes: "Axes", mark: Mark, scale: Scale, look: Look) -> float:
    """In the units of the series."""
    low, high = axes.get_ylim()
    per_unit = (high - low) / look.inside
    if mark.value is not None:
        return scale.within(mark.value)
    if mark.form in (Form.SEGMENT, Form.ACCEPTED):
        return high - (look.lanes * LANE + 2) * per_unit
    return low if mark.form is Form.VERSION else low + FOOT / 2 * per_unit
