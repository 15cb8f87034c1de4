"""Is a dump what it says it is? Checked before anything is concluded from it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

from results.hidden_states import HiddenStates
from results.wiring import boundary_name, boundary_names

if TYPE_CHECKING:
    from torch import Tensor

RANKS = (2, 4, 8)
SHIFTS = (1, 0, 2, -1, 3, -2)  # the right one first: in a loop several fit
AGREEING = 0.9  # greedy text in bf16 on another kernel differs at a near tie now and then
LEAST_TOKENS = 16
UNEVEN = 2.0  # healthy streams grow from layer to layer, or shrink a little
READ_ROWS = 256  # of logits at a time


class Flaw(StrEnum):
    SHAPE = "shape"
    NOT_FINITE = "not finite"
    ZERO_BLOCK = "columns of zeros"
    REPEATED_BLOCK = "columns twice"
    UNEVEN = "uneven lengths"
    SHIFTED = "beside other tokens"
    OTHER_MODEL = "not this model, or not greedy"


@dataclass(frozen=True, slots=True)
class Flawed:
    """What a healthy dump does not have."""

    flaw: Flaw
    seen: str  # with figures


@dataclass(frozen=True, slots=True, eq=False)
class Readout:
    """What makes logits of a target's states: N times lm_head. Without the norm N must be in the dump."""

    lm_head: "Tensor"  # [V, H]
    norm: "Tensor | None" = None  # [H], as it multiplies
    eps: float = 1e-6


def find_flaws(
    sequences: Iterable[HiddenStates], layers: int, readout: Readout | None = None
) -> tuple[Flawed, ...]:
    """Of a dump, a sequence at a time. Pass a readout only if the answers are greedy (temperature 0)."""
    seen = _Seen()
    for number, sequence in enumerate(sequences, 1):
        misshapen = tuple(_misshapen(sequence, number))
        seen.shapes += misshapen
        if misshapen:
            continue
        for boundary, state in sequence.states.items():
            seen.columns.setdefault(boundary, _Columns()).add(state)
        if readout is not None:
            seen.add_tokens(sequence, layers, readout)
    return tuple(_all_flaws(seen, layers))


def _all_flaws(seen: "_Seen", layers: int) -> Iterator[Flawed]:
    yield from seen.shapes[:1]  # the others are likely of the same kind
    for boundary, columns in sorted(seen.columns.items()):
        yield from columns.flaws(boundary_name(boundary, layers))
    yield from _uneven({b: c.length for b, c in seen.columns.items() if b <= layers}, layers)
    yield from _misplaced(seen.agreeing, seen.answered)


@dataclass
class _Columns:
    """Of one boundary over all sequences."""

    rows: int = 0
    not_finite: int = 0  # numbers
    lengths: list[float] = field(default_factory=list)  # root mean square, the median of each sequence
    largest: "Tensor | None" = None  # [H], magnitude
    apart: dict[int, float] = field(default_factory=dict)  # by ranks: most that the first two blocks differ

    def add(self, state: "Tensor") -> None:
        import torch

        finite = torch.isfinite(state)
        self.not_finite += state.numel() - int(finite.sum())
        state = state.float().masked_fill(~finite, 0.0)
        self.rows += len(state)
        self.lengths.append(float(state.square().mean(-1).sqrt().median()))
        largest = state.abs().amax(0)
        self.largest = largest if self.largest is None else torch.maximum(self.largest, largest)
        for ranks in (r for r in RANKS if state.shape[-1] % r == 0):
            first, second, *_ = state.chunk(ranks, dim=-1)
            self.apart[ranks] = max(self.apart.get(ranks, 0.0), float((first - second).abs().max()))

    @property
    def length(self) -> float:
        return median(self.lengths)

    def flaws(self, name: str) -> Iterator[Flawed]:
        if self.not_finite:
            yield Flawed(
                Flaw.NOT_FINITE, f"{name}: {self.not_finite} numbers in {self.rows} rows are not finite"
            )
        zero = self._zero_blocks()
        if zero is not None:
            yield Flawed(
                Flaw.ZERO_BLOCK, f"{name}: {zero[0]} of {zero[1]} equal parts of every row are zeros"
            )
        twice = min((ranks for ranks, apart in self.apart.items() if apart == 0.0), default=None)
        if twice is not None and zero is None:
            yield Flawed(
                Flaw.REPEATED_BLOCK, f"{name}: the first two of {twice} equal parts of every row are the same"
            )

    def _zero_blocks(self) -> tuple[int, int] | None:
        """How many of how many, for the coarsest cut that shows any."""
        if self.largest is None:
            return None
        for ranks in (r for r in RANKS if len(self.largest) % r == 0):
            zeros = int((self.largest.unflatten(0, (ranks, -1)) == 0).all(-1).sum())
            if zeros:
                return zeros, ranks
        return None


@dataclass
class _Seen:
    shapes: tuple[Flawed, ...] = ()
    columns: dict[int, _Columns] = field(default_factory=dict)
    agreeing: dict[int, int] = field(default_factory=lambda: dict.fromkeys(SHIFTS, 0))
    answered: int = 0

    def add_tokens(self, sequence: HiddenStates, layers: int, readout: Readout) -> None:
        """What the states say comes next, against the answer, at every shift on the same rows."""
        last = _last_states(sequence, layers, readout)
        tokens = sequence.token_ids
        if last is None:
            return
        start = max(sequence.prompt_tokens - 1, -min(SHIFTS))
        stop = min(len(last), len(tokens) - max(SHIFTS))
        if stop <= start:
            return
        said = _argmax(last[start:stop], readout.lm_head).to(tokens.device)
        self.answered += stop - start
        for shift in SHIFTS:
            self.agreeing[shift] += int((said == tokens[start + shift : stop + shift]).sum())


def _misshapen(sequence: HiddenStates, number: int) -> Iterator[Flawed]:
    if not sequence.states:
        return
    rows = {len(state) for state in sequence.states.values()}
    widths = {state.shape[-1] for state in sequence.states.values()}
    served = (sequence.served_aux, sequence.served_fc, sequence.served_ids)
    rows |= {len(tensor) for tensor in served if tensor is not None}
    if len(rows) > 1:
        yield Flawed(Flaw.SHAPE, f"sequence {number}: {_listed(rows)} rows of what should have as many")
    if max(rows) > len(sequence.token_ids):
        seen = f"sequence {number}: {max(rows)} rows, {len(sequence.token_ids)} tokens"
        yield Flawed(Flaw.SHAPE, seen)
    if len(widths) > 1:
        yield Flawed(Flaw.SHAPE, f"sequence {number}: states of {_listed(widths)} numbers")


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _uneven(lengths: Mapping[int, float], layers: int) -> Iterator[Flawed]:
    """A boundary much shorter, or much longer, than both the one before and the one after it.

    One whose sum is incomplete, or that lacks the residual, is. Growth however steep is not: the first layers
    of some models add a hundred times what the embedding holds.
    """
    held = sorted(lengths)
    for before, here, after in zip(held, held[1:], held[2:], strict=False):
        sides = lengths[before], lengths[after]
        short, long = lengths[here] * UNEVEN < min(sides), lengths[here] > UNEVEN * max(sides)
        if after - before == 2 and (short or long):
            figures = ", ".join(f"{lengths[b]:.3g}" for b in (before, here, after))
            names = boundary_names((before, here, after), layers)
            yield Flawed(Flaw.UNEVEN, f"median root mean square of {names}: {figures}")


def _misplaced(agreeing: Mapping[int, int], answered: int) -> Iterator[Flawed]:
    if answered < LEAST_TOKENS:
        return
    best = max(SHIFTS, key=lambda shift: agreeing[shift])  # the first of equals
    right = agreeing[1] / answered
    if right >= AGREEING:
        return
    if agreeing[best] / answered >= AGREEING:
        off = best - 1
        seen = (
            f"the states predict the tokens {abs(off)} {'later' if off > 0 else 'earlier'} than they should: "
            f"{agreeing[best]} of {answered}, at the right place {agreeing[1]}"
        )
        yield Flawed(Flaw.SHIFTED, seen)
    else:
        seen = (
            f"the token that the states predict is the answer's in {agreeing[1]} of {answered}, "
            f"in {agreeing[best]} at the best shift"
        )
        yield Flawed(Flaw.OTHER_MODEL, seen)


def _last_states(sequence: HiddenStates, layers: int, readout: Readout) -> "Tensor | None":
    """[rows, H] after the final norm, in float32; None if the dump has neither them nor what makes them."""
    import torch

    if layers + 1 in sequence.states:
        return sequence.states[layers + 1].float()
    if layers not in sequence.states or readout.norm is None:
        return None
    state = sequence.states[layers].float()
    scale = torch.rsqrt(state.square().mean(-1, keepdim=True) + readout.eps)
    return state * scale * readout.norm.float()


def _argmax(states: "Tensor", lm_head: "Tensor") -> "Tensor":
    """[rows]; in the head's own type, so that no copy of it is made."""
    import torch

    parts = [(part.to(lm_head) @ lm_head.T).argmax(-1) for part in states.split(READ_ROWS)]
    return torch.cat(parts)
