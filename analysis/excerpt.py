"""The lines of a log around the one that shows a failure, fit to be shown to others."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.words import clean, one_line
from results.secrets import without_secrets

LINES_BEFORE, LINES_AFTER = 10, 4
MOST_CHARACTERS = 300  # of a line
_SHORTEST_MATCH = 12  # characters; a shorter line is in too many others


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a log, secrets masked."""

    lines: tuple[str, ...]
    shows: int | None = None  # index of the line that the evidence quotes; None = the end of the log


def excerpt(log: str, evidence: str) -> Excerpt | None:
    """The last lines if none of them is quoted; None of an empty log."""
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", clean(log.replace("\r", "\n"))) if line.strip()]
    quoted = _quoted(lines, one_line(evidence))
    if quoted is None:
        shown = lines[-(LINES_BEFORE + LINES_AFTER + 1) :]
        return Excerpt(_fit(shown)) if shown else None
    begin = max(0, quoted - LINES_BEFORE)
    return Excerpt(_fit(lines[begin : quoted + LINES_AFTER + 1]), quoted - begin)


def _quoted(lines: Sequence[str], evidence: str) -> int | None:
    """The last line that the evidence quotes, or that quotes the evidence."""
    for i in reversed(range(len(lines))):
        line = one_line(lines[i])
        if len(line) >= _SHORTEST_MATCH and (line in evidence or (evidence and evidence in line)):
            return i
    return None


def _fit(lines: Sequence[str]) -> tuple[str, ...]:
    shown = (without_secrets(line) for line in lines)
    return tuple(s if len(s) <= MOST_CHARACTERS else f"{s[:MOST_CHARACTERS]}…" for s in shown)
