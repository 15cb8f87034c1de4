"""States that the ranks of a tensor-parallel group did not put together as they should.

What the drafter was given is cut into pieces of H / ranks columns, each of which is found among the same
pieces of the boundaries, whatever the place it stands at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.wiring.nearest import Nearest, nearest, row_errors
from analysis.wiring.sample import Sample
from results.wiring import boundary_names

if TYPE_CHECKING:
    from torch import Tensor

USUAL_RANKS = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class Piece:
    """The columns that one rank holds of a boundary."""

    boundary: int
    rank: int  # from 0


@dataclass(frozen=True, slots=True)
class Layout:
    """How the pieces stand. `boundaries` is None if no order of the slots can be told from them."""

    boundaries: tuple[int, ...] | None
    seen: str


def find_layout(given: "Tensor", sample: Sample, layers: int, ranks: Sequence[int]) -> Layout | None:
    """Of given [rows, W]; None if there is a piece that is neither zero nor one of a captured boundary.

    The fewest ranks that explain it: those of twice as many would do so as well.
    """
    width = sample.state(sample.boundaries[0]).shape[-1]
    for count in sorted(ranks):
        if width % count == 0 and given.shape[-1] % (width // count) == 0:
            found = _find(given.unflatten(-1, (-1, width // count)), sample, layers, count)
            if found is not None:
                pieces, matches = found
                return _named(pieces, count, layers, matches)
    return None


def _find(
    blocks: "Tensor", sample: Sample, layers: int, ranks: int
) -> tuple[tuple[Piece | None, ...], tuple[Nearest, ...]] | None:
    """Blocks [rows, pieces, H / ranks]; a piece of zeros is None."""
    errors = _errors(blocks, sample, ranks)
    pieces: list[Piece | None] = []
    matches = []
    for number, is_zero in enumerate((blocks == 0).all(-1).all(0).tolist()):
        if is_zero:
            pieces.append(None)
            continue
        rank = min(range(ranks), key=lambda r: min(e[number][r] for e in errors.values()))
        match = nearest({boundary: e[number][rank] for boundary, e in errors.items()}, layers)
        if not match.exact:
            return None
        pieces.append(Piece(match.boundary, rank))
        matches.append(match)
    return (tuple(pieces), tuple(matches)) if matches else None


def _errors(blocks: "Tensor", sample: Sample, ranks: int) -> dict[int, list[list[float]]]:
    """By boundary, piece and rank."""
    import torch

    errors = {}
    for boundary, state in sample.states():
        parts = state.unflatten(-1, (ranks, -1))
        medians = [
            row_errors(block.unsqueeze(1), parts).median(0).values.nan_to_num(nan=torch.inf)
            for block in blocks.unbind(1)
        ]
        errors[boundary] = torch.stack(medians).tolist()
    return errors


def _named(pieces: tuple[Piece | None, ...], ranks: int, layers: int, matches: tuple[Nearest, ...]) -> Layout:
    held = [piece for piece in pieces if piece is not None]
    boundaries, how = _pattern(pieces, held, ranks)
    which = boundary_names(boundaries or sorted({piece.boundary for piece in held}), layers)
    how = how.format(ranks=ranks, rank=held[0].rank + 1)
    return Layout(boundaries, f"{how}: {which} (error at most {max(m.error for m in matches):.2g})")


def _pattern(
    pieces: tuple[Piece | None, ...], held: list[Piece], ranks: int
) -> tuple[tuple[int, ...] | None, str]:
    one_rank = len({piece.rank for piece in held}) == 1
    full = len(held) == len(pieces)
    if one_rank and full and len(pieces) % ranks == 0 and _all_alike(held, ranks):
        heads = tuple(piece.boundary for piece in held[::ranks])
        return heads, "every state is the part of rank {rank} of {ranks}, {ranks} times side by side"
    if one_rank and full:
        return tuple(
            p.boundary for p in held
        ), "of every state there is the part of rank {rank} of {ranks} alone"
    if one_rank and len(held) * ranks == len(pieces) and _one_each(pieces, ranks):
        return tuple(p.boundary for p in held), "every state is the part of rank {rank} of {ranks} and zeros"
    slots = len(pieces) // ranks
    heads = tuple(piece.boundary for piece in held[:slots])
    if held == [Piece(boundary, rank) for rank in range(ranks) for boundary in heads]:
        return heads, "first the parts of rank 1 of {ranks} of all states, then those of rank 2, and so on"
    return None, "the parts of {ranks} ranks stand in no order that makes states"


def _all_alike(held: list[Piece], ranks: int) -> bool:
    return all(len(set(slot)) == 1 for slot in _slots(held, ranks))


def _one_each(pieces: tuple[Piece | None, ...], ranks: int) -> bool:
    return all(sum(piece is not None for piece in slot) == 1 for slot in _slots(pieces, ranks))


def _slots(pieces: Sequence[Piece | None], ranks: int) -> list[Sequence[Piece | None]]:
    return [pieces[start : start + ranks] for start in range(0, len(pieces), ranks)]
