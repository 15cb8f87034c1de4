"""The figure of a timeline: one strip for each figure, the load on top, on one axis of time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from analysis import svg, words
from analysis.marks import Key
from analysis.plots import Figure
from analysis.timeline import Curve, Span, Timeline, Track

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STRIP = 104  # user units
_NARROWEST_CELL = 14  # with a number over it
_COLOURS = (svg.INK, svg.SERIES[0])


@dataclass(frozen=True, slots=True)
class _Strip:
    title: str
    said: Callable[[float], str]
    whole: float | None = None  # where the scale ends, if that is known
    counts: bool = False  # whole numbers alone on the scale


_STRIPS = {
    "tokens_per_s": _Strip("Output tokens per second", lambda v: f"{v:.4g}"),
    "in_flight": _Strip("Requests in flight", lambda v: f"{v:.0f}", counts=True),
    "power_w": _Strip("Power of all GPUs, W", lambda v: f"{v:.4g}"),
    "sm_clock_hz": _Strip("SM clock of the slowest GPU, MHz", lambda v: f"{v / 1e6:.0f}"),
    "utilisation": _Strip("GPUs busy", words.percent, 1.0),
}
NO_GPU = "No GPU was sampled; what the host did on average is in the table below."
HOW_TO_READ = (
    "Both servers answer the same prompts in the same order, and each Cell begins at the same moment for "
    "both, so the one whose line ends first needed less time. Look for dips that only one of them has, for "
    "power or clock that sags while requests are in flight, and for GPUs that wait."
)


def figure(shown: Timeline | None) -> Figure | None:
    if shown is None:
        return None
    strips = {name: shown.of(name) for name in _STRIPS if shown.of(name)}
    first, *_, last = [*strips, *strips]
    paints = [
        partial(_paint, shown, name, tracks, first=name == first, last=name == last)
        for name, tracks in strips.items()
    ]
    caption, id = _caption(shown), "timeline"
    title = "Load and hardware over time" if len(strips) > 2 else "Load over time"
    height = len(paints) * _STRIP + 40
    drawn = svg.draw_stack(f"figure-{id}", title, words.clean(caption), paints, height)
    return Figure(id, title, caption, drawn, _keys(shown))


def _keys(shown: Timeline) -> tuple[Key, ...]:
    glyphs = (("─", "--ink"), ("▆", "--series-0"))
    arms = [Key(arm, glyph, variable) for arm, (glyph, variable) in zip(shown.arms, glyphs, strict=False)]
    cells = [Key(span.label, str(i), "--muted") for i, span in enumerate(shown.spans, 1)]
    return (*arms, *cells)


def _paint(
    shown: Timeline, name: str, tracks: Sequence[Track], axes: "Axes", *, first: bool, last: bool
) -> None:
    strip = _STRIPS[name]
    for track in tracks:
        _line(axes, track, shown.arms.index(track.arm))
    _scale(axes, strip)
    axes.set_xlim(0, shown.spans[-1].end_s)
    if first and len(shown.spans) > 1:
        _number_cells(axes, shown.spans)
    if last:
        axes.set_xlabel("seconds under load")
    else:
        axes.set_xticklabels([])


def _line(axes: "Axes", track: Track, index: int) -> None:
    for curve in track.curves:
        edges, values = _outline(curve)
        axes.plot(edges, values, color=_COLOURS[index], lw=1.1 if index == 0 else 1.5)
        if index > 0:
            axes.fill_between(edges, values, color=_COLOURS[index], alpha=0.14, lw=0)


def _outline(curve: Curve) -> tuple[list[float], list[float]]:
    """A point in the middle of each step; nothing where nothing is known."""
    known = [
        (curve.begin_s + (i + 0.5) * curve.step_s, v) for i, v in enumerate(curve.values) if v is not None
    ]
    return [at for at, _ in known], [value for _, value in known]


def _scale(axes: "Axes", strip: _Strip) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_ylim(0, 1.08 * (strip.whole or axes.get_ylim()[1] / 1.05))
    axes.grid(axis="y")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=strip.counts))
    axes.yaxis.set_major_formatter(lambda value, _: strip.said(value))
    _above(axes, strip.title, 4 - svg.LEFT, 12, size=11.5)


def _number_cells(axes: "Axes", spans: Sequence[Span]) -> None:
    scale = (svg.WIDTH - svg.LEFT - svg.RIGHT) / spans[-1].end_s
    for number, span in enumerate(spans, 1):
        if (span.end_s - span.begin_s) * scale > _NARROWEST_CELL:
            middle = (span.begin_s + span.end_s) / 2
            _above(axes, str(number), middle * scale - 3, 1, size=10.5)


def _above(axes: "Axes", text: str, right: float, up: float, size: float) -> None:
    """Text so many user units from the upper left corner of the axes."""
    axes.annotate(
        text,
        (0, 1),
        (right, up),
        xycoords="axes fraction",
        textcoords="offset points",
        color=svg.INK,
        size=size,
    )


def _caption(shown: Timeline) -> str:
    means = [
        f"{track.arm} {mean:.4g}" for track in shown.of("tokens_per_s") if (mean := _mean(track)) is not None
    ]
    what = f"tokens per second on average: {', '.join(means)}" if means else "the load of both servers"
    cells = words.count(len(shown.spans), "Cell")
    return f"Block {shown.block} over {cells}, {what}."


def _mean(track: Track) -> float | None:
    """Over the time that this server was under load."""
    known = [value for curve in track.curves for value in curve.values if value is not None]
    return sum(known) / len(known) if known else None
