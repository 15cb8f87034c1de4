"""Parts of what is shown in a terminal: text, sections and tables, as rich renderables.

Colours are those of the terminal's own palette that can be read on dark and on light ground. What a
record says is text, never markup.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from analysis.tables import Table as Content
from analysis.words import clean

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

# Yellow and cyan cannot be read on white, nor blue on black.
GOOD, BAD, CAUTION = "green", "red", "magenta"
_FIGURES = ("in search", "Blocks")  # headers of columns that are numbers


def text(said: str, style: str = "", *, cut: bool = False) -> "Text":
    """Folded into as many lines as it needs, or cut to one."""
    from rich.text import Text

    return Text(clean(said), style, no_wrap=cut, overflow="ellipsis" if cut else "fold")


def section(title: str, body: "RenderableType") -> "Iterator[RenderableType]":
    yield text("")
    yield text(title, "bold")
    yield body


def grid(rows: "Sequence[tuple[str, Text]]", style: str) -> "Table":
    """Names, and beside each what is said of it."""
    from rich.table import Table

    drawn = Table.grid(padding=(0, 2, 0, 0))
    drawn.add_column(no_wrap=True, style=style)
    for name, said in rows:
        drawn.add_row(name, said)
    return drawn


def table(first: str, *columns: str, figures: Collection[str] = _FIGURES) -> "Table":
    """No rules and dim headers; only the first column folds."""
    from rich.table import Table

    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    drawn.add_column(first, overflow="fold")
    for name in columns:
        drawn.add_column(name, justify="right" if name in figures else "left", no_wrap=True)
    return drawn


def plain(content: Content) -> "Table":
    """A table of the report, without its title, note and bars."""
    drawn = table(content.columns[0], *content.columns[1:], figures=content.numeric)
    for row in content.rows:
        drawn.add_row(*(text(entry.text) for entry in row))
    return drawn
