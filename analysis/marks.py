"""The marks that the figures are made of: one trial, one failure, one row with its interval."""

import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from analysis import findings, svg, words
from results.records import Effect, Trial, TrialState

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

ROW_HEIGHT = 44  # user units
_LONGEST_ROW_LABEL = 32  # characters that fit beside the figure of the row
_MARKERS = ("o", "s", "^", "D", "v", "P")
_GLYPHS = ("●", "■", "▲", "◆", "▼", "✚")


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: a glyph in the colour of a CSS variable, and what it stands for."""

    label: str
    glyph: str
    variable: str


BASELINE_KEY = Key("baseline", "╌╌", "--ink")


def sign_keys(objective: str) -> tuple[Key, ...]:
    better, worse = words.signs(objective)
    return (
        Key(better, "▲", "--good"),
        Key(worse, "▼", "--bad"),
        Key("sign not certain", "●", "--muted"),
    )


def series_key(index: int, label: str) -> Key:
    return Key(label, _GLYPHS[index], f"--series-{index}")


def series_marker(index: int) -> str:
    return _MARKERS[index]


class Methods:
    """Gives every method of a run one colour and one marker, the same in all figures.

    Methods beyond the sixth share the last.
    """

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._names = list(dict.fromkeys(t.point.method for t in findings.measured(trials)))

    def index(self, method: str) -> int:
        return min(self._names.index(method), len(_MARKERS) - 1)

    @property
    def keys(self) -> tuple[Key, ...]:
        shown, rest = self._names[: len(_MARKERS) - 1], self._names[len(_MARKERS) - 1 :]
        labels = [*shown, ", ".join(rest)] if rest else shown
        return tuple(series_key(i, label) for i, label in enumerate(labels))


class Failures:
    """Gives every failure reason of a run one letter, the same in all figures."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self.trials = findings.failed(trials)
        self._counts = Counter(findings.reason_of(t) for t in self.trials)

    def letter(self, trial: Trial) -> str:
        return string.ascii_lowercase[list(self._counts).index(findings.reason_of(trial))]

    @property
    def by_reason(self) -> list[Trial]:
        return sorted(self.trials, key=self.letter)

    @property
    def keys(self) -> tuple[Key, ...]:
        letters = zip(string.ascii_lowercase, self._counts.items(), strict=False)
        return tuple(Key(f"{reason} ({n})", letter, "--bad") for letter, (reason, n) in letters)

    def draw(self, axes: "Axes", positions: Sequence[int], trials: Sequence[Trial]) -> None:
        """A strip below the scale of the measured trials: a cross per failure, a letter per reason."""
        if not trials:
            return
        low, high = axes.get_ylim()
        room = 0.2 * (high - low)
        axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= high])
        axes.set_ylim(low - room, high)
        axes.axhspan(low - room, low - 0.1 * room, color=svg.BAD, alpha=0.09, lw=0)
        axes.plot(positions, [low - 0.8 * room] * len(positions), "x", color=svg.BAD, ms=4, mew=1.3)
        for x, letter in _runs(positions, [self.letter(t) for t in trials]):
            axes.text(x, low - 0.42 * room, letter, color=svg.BAD, ha="center", va="center", weight="bold")
        across = axes.get_yaxis_transform()
        axes.text(
            -0.018, low - 0.55 * room, "failed", transform=across, color=svg.BAD, ha="right", va="center"
        )


def _runs(positions: Sequence[int], letters: Sequence[str]) -> list[tuple[float, str]]:
    """Centre and letter of each run of neighbours that share a letter."""
    numbered = enumerate(zip(positions, letters, strict=True))
    runs = [list(run) for _, run in groupby(numbered, key=lambda item: (item[1][1], item[1][0] - item[0]))]
    return [((run[0][1][0] + run[-1][1][0]) / 2, run[0][1][1]) for run in runs]


def level(axes: "Axes") -> None:
    """The line of the baseline, and a scale of factors."""
    axes.axhline(1.0, color=svg.INK, lw=1, ls=(0, (4, 3)))
    axes.grid(axis="y")
    _factors(axes.yaxis, nbins=7)


def _factors(axis: "Axis", nbins: int) -> None:
    """A scale of factors at round numbers, with as many decimals as tell its marks apart."""
    from matplotlib.ticker import MaxNLocator

    def said(value: float, _: object) -> str:
        low, high = axis.get_view_interval()
        return f"{value:.{2 if high - low > 0.05 else 3}f}x"

    axis.set_major_locator(MaxNLocator(nbins=nbins, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(said)


def trial_mark(axes: "Axes", x: float, trial: Trial, methods: Methods) -> None:
    """Filled when measured, hollow when stopped early."""
    index = methods.index(trial.point.method)
    face = svg.PAPER if trial.state is TrialState.HOPELESS else svg.SERIES[index]
    y = words.factor(trial.log_speedup) or 0.0
    axes.plot(x, y, _MARKERS[index], ms=5.5, mfc=face, mec=svg.SERIES[index], mew=1.2)


def interval_mark(axes: "Axes", x: float, effect: Effect, trial: Trial, methods: Methods) -> None:
    ends = (words.factor(effect.low) or 0.0, words.factor(effect.high) or 0.0)
    colour = svg.SERIES[methods.index(trial.point.method)]
    axes.plot((x, x), ends, color=colour, lw=1.4, alpha=0.5)


def whole_numbers(axes: "Axes", label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.set_xlabel(label)


@dataclass(frozen=True, slots=True)
class Row:
    """One factor to draw on its own line, with its interval where it is known."""

    label: str
    text: str
    middle: float
    low: float | None = None
    high: float | None = None
    hollow: float | None = None  # a second, weaker figure beside it


def effect_row(label: str, effect: Effect, hollow: float | None = None) -> Row:
    low, middle, high = (words.factor(v) for v in (effect.low, effect.log_ratio, effect.high))
    return Row(label, words.times_with_interval(effect), middle or 0.0, low, high, hollow)


def rows_height(rows: Sequence[object]) -> int:
    return len(rows) * ROW_HEIGHT + 58


def draw_rows(axes: "Axes", rows: Sequence[Row]) -> None:
    for y, row in enumerate(rows):
        colour, marker = _sign(row)
        if row.low is not None and row.high is not None:
            axes.plot((row.low, row.high), (y, y), color=colour, lw=3, solid_capstyle="round", alpha=0.45)
        if row.hollow is not None:
            axes.plot(row.hollow, y, "o", ms=7, mfc="none", mec=svg.MUTED, mew=1.4)
        axes.plot(row.middle, y, marker, ms=7, color=colour)
        row_text(axes, y, row.label, row.text)
    row_scale(axes, len(rows))


def _sign(row: Row) -> tuple[str, str]:
    """Colour and marker: never the colour alone."""
    if row.low is None or row.high is None or row.low <= 1 <= row.high:
        return svg.MUTED, "o"
    return (svg.GOOD, "^") if row.middle > 1 else (svg.BAD, "v")


def row_text(axes: "Axes", y: float, label: str, text: str) -> None:
    """The name at the left and the figure at the right, above the line of the row."""
    across = axes.get_yaxis_transform()
    ground = {"facecolor": svg.PAPER, "edgecolor": "none", "pad": 1.5}  # lines must not cross the words
    axes.text(0, y - 0.42, shortened(label), transform=across, va="center", color=svg.INK, bbox=ground)
    axes.text(1, y - 0.42, text, transform=across, va="center", ha="right", color=svg.MUTED, bbox=ground)


def shortened(label: str) -> str:
    """A label that fits the width of a row."""
    label = words.clean(label)
    return label if len(label) <= _LONGEST_ROW_LABEL else f"{label[: _LONGEST_ROW_LABEL - 1]}…"


def row_scale(axes: "Axes", rows: int) -> None:
    """First row on top, factors along the bottom, the baseline as a line."""
    axes.axvline(1.0, color=svg.INK, lw=1, ls=(0, (4, 3)))
    axes.margins(x=0.06)
    axes.set_ylim(rows - 0.6, -0.75)
    axes.set_yticks([])
    axes.grid(axis="x")
    _factors(axes.xaxis, nbins=5)
