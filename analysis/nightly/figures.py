"""How the series of a night are said to people: their names, their figures, and which is worst."""

import math
import re
from collections.abc import Iterable

from analysis.nightly.judgement import Judged, State
from analysis.words import UNKNOWN, one_line, percent
from results.nights import BASELINE, LENGTH, POSITION, SPEED_UP, cell_of, kind_of

FAILED = (State.REGRESSION, State.LEAK)
_LONGEST = 160  # characters of a value that a record brings along
_HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b")
_NAMES = {
    SPEED_UP: "speed-up",
    BASELINE: "baseline throughput",
    LENGTH: "acceptance length",
    "identical_share": "outputs identical to the baseline's",
    "winner_tokens_per_s": "winner's throughput",
    "baseline_start_s": "baseline's start time",
    "winner_start_s": "winner's start time",
    "baseline_memory_bytes": "baseline's memory",
    "winner_memory_bytes": "winner's memory",
}
# Of a kind by its ending: what one of its unit is, and the unit.
_UNITS = {"_tokens_per_s": (1, "tokens/s"), "_s": (1, "s"), "_bytes": (2**30, "GiB")}


def position_of(series: str) -> int | None:
    """The position whose acceptance a series is, from 1; None of any other series."""
    number = kind_of(series).removeprefix(POSITION)
    return int(number) if number != kind_of(series) and number.isdecimal() else None


def kind_name(series: str) -> str:
    """`speed-up`, `acceptance at position 3`."""
    position = position_of(series)
    return f"acceptance at position {position}" if position is not None else _plain(kind_of(series))


def _plain(kind: str) -> str:
    return _NAMES.get(kind, one_line(kind).replace("_", " "))


def name_of(series: str) -> str:
    """`speed-up, chat @ closed(4)`; without a Cell it is over all of them."""
    return ", ".join(filter(None, (kind_name(series), one_line(cell_of(series)))))


def is_share(series: str) -> bool:
    """Whether it lies between 0 and 1, so that a change of it is said in points."""
    return position_of(series) is not None or kind_of(series).endswith("_share")


def figure(series: str, value: float | None) -> str:
    """A value of a series, with its unit; "unknown" where there is none."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return " ".join(filter(None, (bare(series, value), unit_of(series))))


def unit_of(series: str) -> str:
    """`tokens/s`; "" of what has none."""
    return _scale(series)[1]


def _scale(series: str) -> tuple[float, str]:
    kind = kind_of(series)
    return next((found for ending, found in _UNITS.items() if kind.endswith(ending)), (1, ""))


def bare(series: str, value: float | None) -> str:
    """Without its unit; "" where there is none."""
    if value is None or not math.isfinite(value):
        return ""
    kind, (size, _) = kind_of(series), _scale(series)
    if kind == SPEED_UP:
        return f"{value:.3f}x"
    if kind == "identical_share":
        return percent(value)
    precise = is_share(series) or kind == LENGTH
    return f"{value:.3f}" if precise else _amount(value / size)


def _amount(value: float) -> str:
    """Never as a power of ten, and with no more digits than a measurement has."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.3g}"


def change_between(series: str, before: float | None, now: float) -> str:
    """`-5.3 %`, `-39 points`; "" where it cannot be said."""
    if before is None or not math.isfinite(before) or not math.isfinite(now):
        return ""
    if is_share(series):
        return f"{100 * (now - before):+.1f} points"
    return f"{100 * (now / before - 1):+.1f} %" if before else ""


def change(judged: Judged) -> str:
    """Of tonight against what was expected."""
    return change_between(judged.series, judged.expected, judged.value)


def distance(judged: Judged) -> float:
    """How far below the expected: 1 = on the bound, 2 = twice as far, negative = above; 0 = not known."""
    if judged.expected is None or judged.lowest is None:
        return 0.0
    room = judged.expected - judged.lowest
    far = (judged.expected - judged.value) / room if room > 0 else 0.0
    return far if math.isfinite(far) else 0.0


def worst_first(series: Iterable[Judged]) -> list[Judged]:
    """Failed ones, then those that were out once, then warnings; of each the furthest out first."""
    return sorted(series, key=lambda j: (_rank(j), -distance(j)))


def _rank(judged: Judged) -> int:
    if judged.state in FAILED:
        return 0
    if judged.state is State.TOLD:
        return 4
    return 1 if judged.breached else 2 if judged.warning else 3


def failed(series: Iterable[Judged]) -> list[Judged]:
    """Those that are a regression or a leak, worst first."""
    return [j for j in worst_first(series) if j.state in FAILED]


def shown(value: str) -> str:
    """A value of a record: one line, no longer than it must be; hashes by their first twelve digits."""
    line = _HASH.sub(r"\1", one_line(value))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"
