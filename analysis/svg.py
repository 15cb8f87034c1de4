"""Draws one matplotlib figure as SVG for the inside of a page: CSS colours, real text, own ids."""

import html
import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.typing import RcKeyType

Paint = Callable[["Axes"], None]

WIDTH = 400  # user units; a column of the page is 360 to 480 px wide, so text keeps its size
WHOLE = 960  # the same of a figure as wide as the page
LEFT = 50
RIGHT = 12
_TOP, _BOTTOM = 14, 44
_BETWEEN = 34  # axes of a stack, with room for a title over each
_TITLE = 16

# Colours stand for CSS variables until the figure is written: matplotlib knows only colours.
INK, MUTED, GRID, PAPER = "#000001", "#000002", "#000003", "#000004"
SERIES = tuple(f"#00001{i}" for i in range(6))
GOOD, BAD = "#000021", "#000022"
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    PAPER: "--paper",
    GOOD: "--good",
    BAD: "--bad",
} | {colour: f"--series-{i}" for i, colour in enumerate(SERIES)}
_STYLE: Mapping["RcKeyType", Any] = MappingProxyType(
    {
        "svg.fonttype": "none",
        "text.parse_math": False,
        "path.simplify": False,
        "font.family": ["DejaVu Sans"],
        "font.size": 12.5,
        "text.color": INK,
        "axes.edgecolor": GRID,
        "axes.labelcolor": MUTED,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.axisbelow": True,
        "axes.unicode_minus": False,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "xtick.major.pad": 6,
        "grid.color": GRID,
        "grid.linewidth": 0.8,
    }
)


def draw(
    id: str, title: str, description: str, paint: Paint, height: int, left: int = LEFT, width: int = WIDTH
) -> str:
    """One `<svg>` element of width x height user units; `paint` fills its axes."""
    return draw_stack(id, title, description, (paint,), height, left, width)


def draw_stack(
    id: str,
    title: str,
    description: str,
    paints: Sequence[Paint],
    height: int,
    left: int = LEFT,
    width: int = WIDTH,
) -> str:
    """Several axes of the same width in one `<svg>`, from the top down."""
    import matplotlib
    from matplotlib.figure import Figure

    written = io.StringIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": id}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a glyph that only the reader's browser has
        figure = Figure(figsize=(width / 72, height / 72), facecolor="none")
        wide, top = width - left - RIGHT, _TOP + (_TITLE if len(paints) > 1 else 0)
        each = (height - _BOTTOM - top + _BETWEEN) / len(paints)
        for place, paint in enumerate(reversed(paints)):
            low = _BOTTOM + place * each
            paint(figure.add_axes((left / width, low / height, wide / width, (each - _BETWEEN) / height)))
        figure.savefig(written, format="svg", metadata={"Date": None})
    return _embed(written.getvalue(), id, title, description, (width, height))


def _embed(document: str, id: str, title: str, description: str, size: tuple[int, int]) -> str:
    body = re.sub(r"^.*?</metadata>|</svg>\s*$", "", document, flags=re.DOTALL)
    body = re.sub(r"<style.*?</style>", "", body, count=1, flags=re.DOTALL)
    body = re.sub(r"<[^>]+>", lambda tag: _themed(tag[0], id), body)
    body = re.sub(r">\s+<", "><", body)
    return (
        f'<svg viewBox="0 0 {size[0]} {size[1]}" role="img" aria-labelledby="{id}-title {id}-text">'
        f'<title id="{id}-title">{html.escape(title)}</title>'
        f'<desc id="{id}-text">{html.escape(description)}</desc>{body}</svg>'
    )


def place(axes: "Axes", x: float, y: float) -> tuple[float, float]:
    """Where a point of the axes lies in the `<svg>`, in user units from its upper left corner."""
    figure = axes.get_figure(root=True)
    assert figure is not None  # axes are always in one here
    across, up = axes.transData.transform((x, y)) * 72 / figure.dpi
    return across, figure.get_figheight() * 72 - up


def with_marks(drawn: str, marks: str) -> str:
    """A drawn `<svg>` with elements over it that the reader can point at, each with a text of its own."""
    return drawn.replace('role="img"', 'role="group"', 1).removesuffix("</svg>") + marks + "</svg>"


def _themed(tag: str, id: str) -> str:
    """One tag of matplotlib's with the page's colours and font, and ids that are unique in the page."""
    tag = re.sub(r'^<g id="[^"]*"', "<g", tag).replace("xlink:href", "href")
    tag = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{id}-", tag)
    tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
    tag = re.sub(r' transform="rotate\(-?0 [^"]*"', "", tag)
    tag = re.sub(r"#0000\d\d", lambda colour: f"var({_VARIABLES[colour[0]]})", tag)
    return re.sub(r"(\.\d\d)\d+", r"\1", re.sub(r"\s+", " ", tag))
