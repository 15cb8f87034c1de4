"""The contrasts of two versions as a table, over all Cells and by Cell."""

from collections.abc import Iterator, Sequence

from analysis import words
from analysis.nightly.contrast import Contrast
from analysis.nightly.contrast_words import NAMES, bounds
from analysis.tables import Entry, Table
from results.records import Effect


def contrast_table(contrasts: Sequence[Contrast]) -> Table:
    """New against old; a Cell has a line of its own where there are several."""
    rows = [row for contrast in contrasts for row in _rows(contrast)]
    columns = ("Contrast", "Verdict", "Change", "Interval", "Blocks")
    return Table("contrasts", "NEW against OLD", columns, tuple(rows), frozenset(columns[2:]))


def _rows(contrast: Contrast) -> Iterator[tuple[Entry, ...]]:
    verdict = words.UNKNOWN if contrast.note else contrast.kind.value
    yield Entry(NAMES[contrast.name]), Entry(verdict), *_figures(contrast.effect)
    if len(contrast.by_cell) > 1:
        for cell, effect in contrast.by_cell.items():
            yield Entry(f"  {cell}"), Entry(""), *_figures(effect)


def _figures(effect: Effect | None) -> tuple[Entry, Entry, Entry]:
    if effect is None:
        return Entry(""), Entry(""), Entry("")
    change = Entry(words.signed_percent(effect.log_ratio), effect.log_ratio)
    return change, Entry(bounds(effect)), Entry(str(effect.blocks), effect.blocks)
