"""Where speculation stops paying: along the load, and along the length of the prompts.

Said of measured and confirmed Cells only: a crossover lies between two of them, and nobody knows where.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from analysis.labels import context_label
from analysis.loadmap import CellAnswer, LoadMap, State, pace_order

_SAYS = {
    State.FASTER: "pays",
    State.SAME: "does not pay",
    State.SLOWER: "does not pay",
    State.UNDECIDED: "is not decided",
    State.SEARCHED: "is not confirmed",
    State.LIMITED: "is capacity-limited",
    State.UNKNOWN: "has no number",
}
_PAYS, _DOES_NOT = _SAYS[State.FASTER], _SAYS[State.SLOWER]
_MOST_SENTENCES = 3


@dataclass(frozen=True, slots=True)
class Line:
    """The Cells of one class along one coordinate, the other one fixed."""

    workload_class: str
    fixed: str  # the other coordinate, in words
    steps: tuple[tuple[str, str], ...]  # in order: where, and what speculation does there

    @property
    def crosses(self) -> bool:
        """Whether it pays at one place and does not at another."""
        return {_PAYS, _DOES_NOT} <= {says for _, says in self.steps}

    @property
    def said(self) -> str:
        """What one sees along it, without a subject."""
        runs = [(says, [where for where, _ in steps]) for says, steps in groupby(self.steps, lambda s: s[1])]
        order = [says for says, _ in runs]
        if order in ([_PAYS, _DOES_NOT], [_DOES_NOT, _PAYS]):
            change = "stops" if order[0] == _PAYS else "starts"
            return f"{change} paying between {runs[0][1][-1]} and {runs[1][1][0]}"
        return ", ".join(
            f"{says} at {_listed(places, 'or' if says == _DOES_NOT else 'and')}" for says, places in runs
        )


def lines(drawn: LoadMap) -> list[Line]:
    """Along the load for each class and length, then along the length for each class and load."""
    kinds = {kind[0] for a in drawn.cells if (kind := pace_order(a.cell.pace))}
    along_load = [
        line
        for kind in sorted(kinds)
        for line in _along(
            [a for a in drawn.cells if (pace_order(a.cell.pace) or ("", 0))[0] == kind],
            fixed=lambda a: context_label(a.cell),
            where=lambda a: a.cell.pace,
        )
    ]
    return along_load + _along(
        drawn.cells, fixed=lambda a: a.cell.pace, where=lambda a: context_label(a.cell)
    )


def _along(
    cells: Iterable[CellAnswer], fixed: Callable[[CellAnswer], str], where: Callable[[CellAnswer], str]
) -> list[Line]:
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for answer in cells:
        place = (where(answer), _SAYS[answer.state])
        groups.setdefault((answer.cell.workload_class, fixed(answer)), []).append(place)
    return [Line(name, at, tuple(steps)) for (name, at), steps in groups.items() if len(steps) > 1]


def sentences(drawn: LoadMap | None) -> list[str]:
    """The crossovers, for the top of a report; empty where there is none."""
    crossing = [line for line in lines(drawn) if line.crosses] if drawn is not None else []
    said = [f"Speculation {phrase} for {subjects}." for subjects, phrase in _pooled(crossing, drawn)]
    more = len(said) - _MOST_SENTENCES
    rest = [f"{more} more such lines are below the load map."] if more > 0 else []
    return said[:_MOST_SENTENCES] + rest


def all_sentences(drawn: LoadMap) -> list[str]:
    """What one sees along every line, the confirmed Cells and the others."""
    return [f"{subjects}: {phrase}." for subjects, phrase in _pooled(lines(drawn), drawn)]


def _pooled(found: Sequence[Line], drawn: LoadMap | None) -> list[tuple[str, str]]:
    """(subjects, phrase), each phrase once."""
    every = lines(drawn) if drawn is not None else []
    by_phrase: dict[str, list[Line]] = {}
    for line in found:
        by_phrase.setdefault(line.said, []).append(line)
    return [(_subjects(group, every), phrase) for phrase, group in by_phrase.items()]


def _subjects(group: Sequence[Line], every: Sequence[Line]) -> str:
    """Classes, with the coordinate that is fixed where they do not share the phrase at all its values."""
    named = []
    for name in dict.fromkeys(line.workload_class for line in group):
        fixed = [line.fixed for line in group if line.workload_class == name]
        alike = [
            line.fixed for line in every if line.workload_class == name and _places(line) == _places(group[0])
        ]
        named.append(name if len(fixed) == len(alike) else f"{name} ({_listed(fixed)})")
    return _listed(named)


def _places(line: Line) -> list[str]:
    return [where for where, _ in line.steps]


def _listed(names: Sequence[str], before_last: str = "and") -> str:
    return f" {before_last} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
