"""A few rows of a dump: enough to tell what stands where, and small enough for the memory.

Of at most `SEQUENCES` sequences the rows next to the end of the prompt are kept, `WINDOW` before it and
`WINDOW` after, with `REACH` rows of the states more on both sides: 8 x 40 rows at most. That is 284 MB in
bf16 for 62 boundaries of hidden size 7168, beside the one sequence that is being read.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

from results.hidden_states import HiddenStates

if TYPE_CHECKING:
    from torch import Tensor

SEQUENCES = 8
WINDOW = 16
REACH = 2  # how far a state may stand from where it belongs


class Phase(StrEnum):
    """Servers compute the two by different ways, and so can get one of them wrong."""

    PROMPT = "prompt"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """n rows one after the other of one sequence; H, W, h as in HiddenStates."""

    phase: Phase
    states: Mapping[int, "Tensor"]  # [n + 2 REACH, H]
    aux: "Tensor | None"  # [n, W]
    fc: "Tensor | None"  # [n, h]

    @property
    def rows(self) -> int:
        return next(len(state) for state in self.states.values()) - 2 * REACH


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Windows of one shape, and how often each shift of the tokens fits the tokens the drafter was given."""

    windows: tuple[Window, ...]
    sequences: int
    agreeing: Mapping[int, int]  # tokens, by shift
    compared: Mapping[int, int]

    @property
    def rows(self) -> int:
        return sum(window.rows for window in self.windows)

    @property
    def boundaries(self) -> tuple[int, ...]:
        """Those that every window has."""
        held = [set(window.states) for window in self.windows]
        return tuple(sorted(set.intersection(*held))) if held else ()

    def state(self, boundary: int, lag: int = 0) -> "Tensor":
        """[rows, H] in float32: the state of so many positions before."""
        import torch

        start = REACH - lag
        parts = [w.states[boundary][start : start + w.rows] for w in self.windows]
        return torch.cat(parts).float()

    def states(self, lag: int = 0) -> Iterator[tuple[int, "Tensor"]]:
        """One after the other: all at once in float32 would be twice the sample."""
        return ((boundary, self.state(boundary, lag)) for boundary in self.boundaries)

    def aux(self) -> "Tensor | None":
        """[rows, W] in float32."""
        return _joined([window.aux for window in self.windows])

    def fc(self) -> "Tensor | None":
        """[rows, h] in float32."""
        return _joined([window.fc for window in self.windows])

    def only(self, phase: Phase) -> "Sample":
        return replace(self, windows=tuple(w for w in self.windows if w.phase == phase))


def take(sequences: Iterable[HiddenStates], shifts: Iterable[int]) -> Sample:
    """Reads no more sequences than it needs. Those of another width than the first are left out."""
    windows: list[Window] = []
    agreeing, compared, read = dict.fromkeys(shifts, 0), dict.fromkeys(shifts, 0), 0
    for sequence in islice(sequences, SEQUENCES):
        read += 1
        windows.extend(w for w in _windows(sequence) if not windows or _shape(w) == _shape(windows[0]))
        for shift in agreeing:
            agreed, of = _agreement(sequence, shift)
            agreeing[shift] += agreed
            compared[shift] += of
    return Sample(tuple(windows), read, agreeing, compared)


def _windows(sequence: HiddenStates) -> Iterator[Window]:
    """The first rows are never taken: position 0 is an outlier in many models."""
    tensors = [*sequence.states.values(), sequence.served_aux, sequence.served_fc]
    last = min((len(tensor) for tensor in tensors if tensor is not None), default=0) - REACH
    border = max(min(sequence.prompt_tokens, last), REACH)
    for phase, start, stop in (
        (Phase.PROMPT, max(border - WINDOW, REACH), border),
        (Phase.ANSWER, border, min(border + WINDOW, last)),
    ):
        if sequence.states and stop > start:
            yield _window(sequence, phase, slice(start, stop))


def _window(sequence: HiddenStates, phase: Phase, rows: slice) -> Window:
    """Copies: a view would keep the whole sequence in memory."""
    wide = slice(rows.start - REACH, rows.stop + REACH)
    aux, fc = sequence.served_aux, sequence.served_fc
    return Window(
        phase,
        {boundary: state[wide].clone() for boundary, state in sequence.states.items()},
        None if aux is None else aux[rows].clone(),
        None if fc is None else fc[rows].clone(),
    )


def _shape(window: Window) -> tuple[int | None, ...]:
    tensors = (next(iter(window.states.values())), window.aux, window.fc)
    return tuple(None if tensor is None else tensor.shape[-1] for tensor in tensors)


def _joined(parts: "list[Tensor | None]") -> "Tensor | None":
    import torch

    held = [part for part in parts if part is not None]
    return torch.cat(held).float() if held else None


def _agreement(sequence: HiddenStates, shift: int) -> tuple[int, int]:
    """How many of the drafter's tokens are those of so many positions later, and of how many."""
    given, tokens = sequence.served_ids, sequence.token_ids
    if given is None:
        return 0, 0
    start, stop = max(0, -shift), min(len(given), len(tokens) - shift)
    if stop <= start:
        return 0, 0
    same = given[start:stop] == tokens[start + shift : stop + shift]
    return int(same.sum()), stop - start
