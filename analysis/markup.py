"""HTML for the parts of a page: escaped text, tables with bars, figures."""

import html
import re
from collections.abc import Iterable, Sequence

from analysis import words
from analysis.plots import Figure
from analysis.tables import Entry, Table

_LONG, _LONGER = 26, 60  # characters; such texts are broken over lines, in wider columns


def text(value: str) -> str:
    """Text of a record, safe inside an element or a quoted attribute."""
    return html.escape(words.clean(value))


def paragraph(value: str, css: str = "") -> str:
    return f'<p class="{css}">{text(value)}</p>' if css else f"<p>{text(value)}</p>"


def table(content: Table, titled: bool = True) -> str:
    """A table in its own scrolling box, under its title; empty when it has no rows."""
    if not content.rows:
        return ""
    head = "".join(f'<th scope="col"{_numeric(content, c)}>{text(c)}</th>' for c in content.columns)
    scale = Scale(e.interval for row in content.rows for e in row)
    body = "".join(f"<tr>{_row(content, row, scale)}</tr>" for row in content.rows)
    note = paragraph(content.note, "note") if content.note else ""
    name = text(content.title)
    inside = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {name}"><table>'
        f"<caption>{name}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    return f"{f'<h3>{name}</h3>' if titled else ''}{note}{inside}"


def _numeric(content: Table, column: str) -> str:
    return ' class="number"' if column in content.numeric else ""


def _row(content: Table, row: Sequence[Entry], scale: "Scale") -> str:
    """Its first entry names it."""
    cells = zip(content.columns, row, strict=True)
    return "".join(_cell(e, _numeric(content, c), scale, names=i == 0) for i, (c, e) in enumerate(cells))


def _cell(entry: Entry, css: str, scale: "Scale", *, names: bool) -> str:
    css = css or _width(entry)
    order = f' data-value="{entry.order:.6g}"' if entry.order is not None else ""
    shown = f"<code>{text(entry.text)}</code>" if entry.code else text(entry.text)
    inside = f"{shown}{_bar(entry, scale)}"
    return f'<th scope="row"{css}{order}>{inside}</th>' if names else f"<td{css}{order}>{inside}</td>"


def _width(entry: Entry) -> str:
    if len(entry.text) <= _LONG or entry.interval is not None:
        return ""
    return ' class="longer"' if len(entry.text) > _LONGER else ' class="long"'


def _bar(entry: Entry, scale: "Scale") -> str:
    if entry.interval is not None:
        return scale.bar(*entry.interval)
    if entry.share is not None:
        return f'<span class="share" aria-hidden="true"><i style="width:{100 * entry.share:.1f}%"></i></span>'
    return ""


class Scale:
    """A common scale of factors for the bars of one table; 1.00x is always on it."""

    def __init__(self, intervals: Iterable[tuple[float, float, float] | None]) -> None:
        ends = [1.0, *(v for interval in intervals if interval is not None for v in interval)]
        margin = 0.04 * (max(ends) - min(ends)) or 0.1
        self._low, self._span = min(ends) - margin, max(ends) - min(ends) + 2 * margin

    def place(self, ratio: float) -> float:
        """Position in percent."""
        return 100 * (ratio - self._low) / self._span

    def bar(self, low: float, middle: float, high: float) -> str:
        left, right = self.place(low), self.place(high)
        sign = "gain" if low > 1 else "loss" if high < 1 else "unsure"
        known = f'<i style="left:{left:.1f}%;width:{right - left:.1f}%"></i>' if high > low else ""
        return (
            f'<span class="bar {sign if known else "unsure"}" aria-hidden="true">'
            f'<u style="left:{self.place(1.0):.1f}%"></u>{known}'
            f'<b style="left:{self.place(middle):.1f}%"></b></span>'
        )


def figure(drawn: Figure | None) -> str:
    return f"<figure>{_caption(drawn)}{_legend(drawn)}{drawn.svg}</figure>" if drawn is not None else ""


def chart(drawn: Figure, said: str = "") -> str:
    """A figure with marks that can be pointed at; `said` is the text of the first that is read out.

    A figure as wide as the page scrolls in its own box where the page is narrow.
    """
    return (
        f'<figure class="chart">{_caption(drawn)}{_legend(drawn) if drawn.keys else ""}'
        f'<div class="scroll plot">{drawn.svg}</div>'
        f'<p class="readout" aria-hidden="true">{text(said)}</p></figure>'
    )


def _caption(drawn: Figure) -> str:
    return f"<figcaption><strong>{text(drawn.title)}</strong> {text(drawn.caption)}</figcaption>"


def _legend(drawn: Figure) -> str:
    keys = "".join(
        f'<li><span class="glyph" style="color:var({k.variable})" aria-hidden="true">{k.glyph}</span> '
        f"{text(k.label)}</li>"
        for k in drawn.keys
    )
    return f'<ul class="keys">{keys}</ul>' if keys else "<div></div>"


def pair(*drawn: Figure | None) -> str:
    """Figures side by side where there is room; empty when none could be drawn."""
    inside = "".join(figure(f) for f in drawn)
    return f'<div class="pair">{inside}</div>' if inside else ""


def section(id: str, title: str, *parts: str, empty: str = "") -> str:
    """A section, or the sentence that says why it is empty; nothing when there is neither."""
    inside = "".join(parts) or (paragraph(empty, "empty") if empty else "")
    return f'<section id="{id}"><h2>{text(title)}</h2>{inside}</section>' if inside else ""


def folded(title: str, inside: str, *, shown: bool = False) -> str:
    opened = " open" if shown else ""
    return f"<details{opened}><summary>{text(title)}</summary>{inside}</details>" if inside else ""


def block(code: str) -> str:
    return f'<div class="copyable"><pre><code>{text(code)}</code></pre></div>'


def command(line: str) -> str:
    """A command line to copy, broken only before its flags."""
    inside = " ".join(f"<span>{text(piece)}</span>" for piece in re.split(r" (?=-)", line))
    return f'<div class="copyable command"><pre><code>{inside}</code></pre></div>'
