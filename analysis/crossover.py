"""Where speculation stops paying: along the load, and along the length of the prompts.

Said of measured Cells only: a crossover lies between two of them, and nobody knows where.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from analysis.labels import context_label
from analysis.loadmap import CellAnswer, LoadMap, State, pace_order
from analysis.words import listed

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
class _Axis:
    """A coordinate of the Cells: what it is called, and the word before a place on it."""

    name: str
    preposition: str
    place: Callable[[CellAnswer], str]


_LOAD = _Axis("load", "at", lambda a: a.cell.pace)
_LENGTH = _Axis("length", "with", lambda a: context_label(a.cell))


@dataclass(frozen=True, slots=True)
class Line:
    """The Cells of one class along one coordinate, the other one fixed."""

    workload_class: str
    along: _Axis
    fixed: str  # the place on the other coordinate
    steps: tuple[tuple[str, str], ...]  # in order: place, and what speculation does there

    @property
    def crosses(self) -> bool:
        """Whether it pays at one place and does not at another."""
        return {_PAYS, _DOES_NOT} <= {says for _, says in self.steps}

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(place for place, _ in self.steps)

    @property
    def said(self) -> str:
        """What one sees along it, without a subject."""
        runs = [(says, [place for place, _ in steps]) for says, steps in groupby(self.steps, lambda s: s[1])]
        order = [says for says, _ in runs]
        if order in ([_PAYS, _DOES_NOT], [_DOES_NOT, _PAYS]):
            change = "stops" if order[0] == _PAYS else "starts"
            return f"{change} paying between {runs[0][1][-1]} and {runs[1][1][0]}"
        if order == [_DOES_NOT]:
            return f"does not pay at any {self.along.name} measured"
        if len(order) == 1:
            return f"{order[0]} at every {self.along.name} measured"
        return ", ".join(f"{says} {self.along.preposition} {listed(places)}" for says, places in runs)


def lines(drawn: LoadMap) -> list[Line]:
    """Along the load for each class and length, then along the length for each class and load.

    A load is followed along one kind of pace; a replay has no order.
    """
    kinds: dict[str, list[CellAnswer]] = {}
    for a in drawn.cells:
        if order := pace_order(a.cell.pace):
            kinds.setdefault(order[0], []).append(a)
    along_load = [line for cells in kinds.values() for line in _along(_LOAD, cells, _LENGTH)]
    return along_load + _along(_LENGTH, drawn.cells, _LOAD)


def _along(axis: _Axis, cells: Iterable[CellAnswer], fixed: _Axis) -> list[Line]:
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for a in cells:
        key = (a.cell.workload_class, fixed.place(a))
        groups.setdefault(key, []).append((axis.place(a), _SAYS[a.state]))
    return [Line(name, axis, at, tuple(steps)) for (name, at), steps in groups.items() if len(steps) > 1]


def sentences(drawn: LoadMap | None) -> list[str]:
    """The crossovers, for the top of a report; empty where there is none."""
    every = lines(drawn) if drawn is not None else []
    pooled = _pooled([line for line in every if line.crosses], every)
    said = [f"Speculation {phrase} for {subjects}." for subjects, phrase in pooled]
    more = len(said) - _MOST_SENTENCES
    return said[:_MOST_SENTENCES] + (["The load map has more such changes."] if more > 0 else [])


def all_sentences(drawn: LoadMap) -> list[str]:
    """What one sees along every line of a map; nothing of one in which nothing is confirmed."""
    every = lines(drawn) if drawn.confirmed else []
    return [f"{subjects}: {phrase}." for subjects, phrase in _pooled(every, every)]


def _pooled(found: Sequence[Line], every: Sequence[Line]) -> list[tuple[str, str]]:
    """(subjects, phrase), each phrase once."""
    by_phrase: dict[str, list[Line]] = {}
    for line in found:
        by_phrase.setdefault(line.said, []).append(line)
    return [(_subjects(group, every), phrase) for phrase, group in by_phrase.items()]


def _subjects(group: Sequence[Line], every: Sequence[Line]) -> str:
    """Classes; with the places on the other coordinate, where the phrase is not true of all of them."""
    whole, parts = [], []
    for name in dict.fromkeys(line.workload_class for line in group):
        own = [line for line in group if line.workload_class == name]
        alike = [x for x in every if x.workload_class == name and x.places == own[0].places]
        other = _LENGTH if own[0].along is _LOAD else _LOAD
        if len(own) == len(alike):
            whole.append(name)
        else:
            parts.append(f"{name} {other.preposition} {listed([line.fixed for line in own])}")
    return listed([*whole, *parts])
