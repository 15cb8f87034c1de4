"""How the series are called in the charts, and which of them are drawn together."""

from analysis.nightly.figures import kind_name, name_of, position_of, unit_of
from results.nights import BASELINE, LENGTH, SPEED_UP, TOLD, cell_of, kind_of

OVERALL = (SPEED_UP, BASELINE, LENGTH)  # drawn wide
TOLD_ONLY = "Told, never judged"
_POSITIONS = "Acceptance per position"


def title(series: str) -> str:
    """`Baseline throughput, tokens/s`: with the unit that is left out at the scale."""
    return _capital(", ".join(filter(None, (name_of(series), unit_of(series)))))


def family(series: str) -> str:
    """The series that are drawn together: of one kind, all positions of the draft, all that are only told."""
    if kind_of(series) in TOLD:
        return TOLD_ONLY
    return _POSITIONS if position_of(series) is not None else f"{_capital(kind_name(series))} by Cell"


def short_title(series: str) -> str:
    """What tells it from the others of its family: its Cell, and its position."""
    if kind_of(series) in TOLD:
        return title(series)
    if (position := position_of(series)) is not None:
        return ", ".join(filter(None, (f"Position {position}", cell_of(series))))
    return cell_of(series) or title(series)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
