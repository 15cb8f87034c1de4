"""Which series, Cells and positions moved in a night, in sentences."""

from collections.abc import Sequence

from analysis.nightly.figures import (
    FAILED,
    change,
    failed,
    figure,
    kind_name,
    name_of,
    position_of,
    sentence,
    worst_first,
)
from analysis.nightly.judgement import Judged, Judgement, State
from analysis.words import count, listed, one_line
from results.nights import BASELINE, LENGTH, SPEED_UP, cell_of, kind_of

_NAMED = 3  # Cells or warnings that are told one by one
_LEAK = "no single night is out, but the last week lies below the first nights of the segment"


def fell(judgement: Judgement) -> list[str]:
    """What failed: each kind over all Cells, then its Cells; positions last."""
    kinds = (SPEED_UP, BASELINE, LENGTH)
    found = [s for kind in kinds for s in (*_overall(judgement, kind), *_cells(judgement, kind))]
    return [*found, *_positions(judgement), *_leaks(judgement)]


def _regressed(judgement: Judgement, kind: str) -> list[Judged]:
    """Of one kind, worst first."""
    return [j for j in failed(judgement.series) if kind_of(j.series) == kind and j.state is State.REGRESSION]


def _overall(judgement: Judgement, kind: str) -> list[str]:
    return [
        sentence(f"{name_of(j.series)} fell: {from_to(j)}{_again(j)}")
        for j in _regressed(judgement, kind)
        if not cell_of(j.series)
    ]


def from_to(judged: Judged) -> str:
    """`1.210x -> 1.080x (-10.7 %)`: what was expected, and what came."""
    moved = f" ({said})" if (said := change(judged)) else ""
    return f"{figure(judged.series, judged.expected)} -> {figure(judged.series, judged.value)}{moved}"


def _again(judged: Judged) -> str:
    return "" if judged.again is None else f", {figure(judged.series, judged.again)} in the rerun"


def _cells(judgement: Judgement, kind: str) -> list[str]:
    """In which Cells it fell, the worst by name, and how many hold."""
    down = [j for j in _regressed(judgement, kind) if cell_of(j.series)]
    if not down:
        return []
    judged = [j for j in judgement.series if kind_of(j.series) == kind and cell_of(j.series)]
    named = [f"{one_line(cell_of(j.series))} {from_to(j)}" for j in down[:_NAMED]]
    more = [count(len(down) - _NAMED, "more Cell")] if len(down) > _NAMED else []
    hold = len(judged) - len(down)
    rest = f"; {count(hold, 'other Cell')} {'holds' if hold == 1 else 'hold'}" if hold else ", in every Cell"
    rest = rest if len(judged) > 1 else ""
    return [f"By Cell, the {kind_name(kind)} fell in {listed([*named, *more])}{rest}."]


def _positions(judgement: Judgement) -> list[str]:
    """Over all Cells, else in the Cells where they moved."""
    down = [j for j in failed(judgement.series) if position_of(j.series) is not None]
    cells = list(dict.fromkeys(cell_of(j.series) for j in down if j.state is State.REGRESSION))
    return [_positions_in(judgement, cell) for cell in ([""] if "" in cells else cells[:_NAMED])]


def _positions_in(judgement: Judgement, cell: str) -> str:
    down = positions_down(judgement, cell)
    where = f" in {one_line(cell)}" if cell else ""
    return f"Acceptance{where} fell {_places(judgement, cell, down)}: {from_to(down[0])}."


def positions_down(judgement: Judgement, cell: str) -> list[Judged]:
    """The positions of one Cell that failed, the first one first."""
    return [j for j in _at_positions(judgement, cell) if j.state in FAILED]


def _at_positions(judgement: Judgement, cell: str) -> list[Judged]:
    found = [j for j in judgement.series if position_of(j.series) is not None and cell_of(j.series) == cell]
    return sorted(found, key=lambda j: position_of(j.series) or 0)


def _places(judgement: Judgement, cell: str, down: Sequence[Judged]) -> str:
    """`from position 3 on`, `at every position`, `at positions 2 and 4`."""
    every = _at_positions(judgement, cell)
    numbers = [str(position_of(j.series)) for j in down]
    if len(down) == 1:
        return f"at position {numbers[0]}"
    if len(down) == len(every):
        return "at every position"
    if list(down) == every[-len(down) :]:
        return f"from position {numbers[0]} on"
    return f"at positions {listed(numbers)}"


def _leaks(judgement: Judgement) -> list[str]:
    leaks = [j for j in failed(judgement.series) if j.state is State.LEAK]
    return [sentence(f"{name_of(j.series)} is lost slowly: {j.warning or _LEAK}") for j in leaks]


def recovered(judgement: Judgement) -> list[str]:
    """Series that were out at first and not in the rerun."""
    return [_recovered(j) for j in worst_first(judgement.series) if _is_noise(j)]


def _is_noise(judged: Judged) -> bool:
    if judged.again is None or judged.lowest is None:
        return False
    return judged.breached and judged.state is State.PASS and judged.again >= judged.lowest


def _recovered(judged: Judged) -> str:
    first, lowest, again = (figure(judged.series, v) for v in (judged.value, judged.lowest, judged.again))
    out = f"{name_of(judged.series)} was below its bound at first ({first}, lowest {lowest})"
    return sentence(f"{out} and not in the rerun ({again}): taken as noise")


def warnings(judgement: Judgement) -> list[str]:
    """What is to be known though nothing failed; the worst by name. What recovered is told by itself."""
    unsettled = [j for j in worst_first(judgement.series) if j.state not in FAILED and not _is_noise(j)]
    warned = [j for j in unsettled if j.warning]
    more = len(warned) - _NAMED
    return [
        *(sentence(f"{name_of(j.series)}: {one_line(j.warning)}") for j in warned[:_NAMED]),
        *([f"There are {count(more, 'more warning')} in the table."] if more > 0 else []),
    ]
