"""Short names for configurations and for sets of Cells."""

import re
from collections.abc import Iterable, Sequence

from results.records import Cell, Point

_PARTS = re.compile(r"(?P<workload_class>.*?) @ (?P<pace>.*?)(?: @ (?P<tokens>\d+ tokens))?")
AS_THEY_ARE = "prompts as they are"


def context_label(cell: Cell) -> str:
    """How long its prompts are, in words."""
    return AS_THEY_ARE if cell.context_tokens is None else f"{cell.context_tokens} tokens"


def short_labels(points: Iterable[Point]) -> dict[str, str]:
    """By key: the method, and of its knobs those in which the Points of this method differ."""
    known = {p.key: p for p in points}
    return {key: _short(p, [q for q in known.values() if q.method == p.method]) for key, p in known.items()}


def _short(point: Point, same_method: Sequence[Point]) -> str:
    knobs = {
        name: value
        for name, value in point.knobs.items()
        if any(other.knobs.get(name) != value for other in same_method)
    }
    return Point(point.method, knobs, point.name).label


def grouped(cells: Sequence[str]) -> str:
    """Cell labels in few words: `chat, code @ closed(1), closed(4), prompts as they are or 1024 tokens`.

    What several Cells share is said once; only Cells that are there are said.
    """
    classes: dict[tuple[str, str], list[str]] = {}  # by pace and length
    for label in cells:
        found = _PARTS.fullmatch(label)
        name, pace, tokens = found.group("workload_class", "pace", "tokens") if found else (label, "", None)
        classes.setdefault((pace, tokens or AS_THEY_ARE), []).append(name)
    paces: dict[tuple[tuple[str, ...], str], list[str]] = {}  # by classes and length
    for (pace, tokens), names in classes.items():
        paces.setdefault((tuple(names), tokens), []).append(pace)
    lengths: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}  # by classes and paces
    for (names_of, tokens), named in paces.items():
        lengths.setdefault((names_of, tuple(named)), []).append(tokens)
    plain = all(tokens == AS_THEY_ARE for _, tokens in classes)
    return "; ".join(
        _together(names_of, named, () if plain else found) for (names_of, named), found in lengths.items()
    )


def _together(classes: Sequence[str], paces: Sequence[str], lengths: Sequence[str]) -> str:
    at = " @ " + ", ".join(paces) if any(paces) else ""
    long = ", " + " or ".join(lengths) if lengths else ""
    return ", ".join(classes) + at + long
