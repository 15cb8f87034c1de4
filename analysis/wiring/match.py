"""Which wiring does the server use? What its drafter was given is compared with the target's boundaries.

No accuracy is involved: a state is found again up to the noise of its number format, or it is none of those
captured, and then no name is given. Why not the distance of all rows at once: position 0 can be longer than
all others together.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analysis.wiring.fused import MOST_CHOICES, choices, find_inputs
from analysis.wiring.incomplete import Between, between, multiple
from analysis.wiring.nearest import ROUNDING, Nearest, median_error, nearest, spans
from analysis.wiring.pieces import USUAL_RANKS, find_layout
from analysis.wiring.sample import REACH, Phase, Sample, take
from results.hidden_states import HiddenStates
from results.wiring import Cause, Reading, boundary_name, boundary_names

if TYPE_CHECKING:
    from torch import Tensor

LAGS = (0, *(sign * lag for lag in range(1, REACH + 1) for sign in (1, -1)))
RIGHT_SHIFT = 1
SHIFTS = (RIGHT_SHIFT, *(shift for shift in range(-2, 4) if shift != RIGHT_SHIFT))
AGREEING = 0.98
LEAST_ROWS = 12  # of a phase, to be judged alone


@dataclass(frozen=True, slots=True)
class Fault:
    """Something in how the states are passed that no training has."""

    cause: Cause
    seen: str


@dataclass(frozen=True, slots=True)
class ServedWiring:
    """What the drafter was given. `boundaries` in the order of the slots; None if they cannot be named."""

    decided: bool
    boundaries: tuple[int, ...] | None = None
    faults: tuple[Fault, ...] = ()
    slots: tuple[Nearest, ...] = ()  # the figures behind it
    why: str = ""  # not decided: what stands against it
    missing: str = ""  # not tried: what would be needed
    rows: int = 0
    sequences: int = 0
    captured: tuple[int, ...] = ()
    hidden_lag: int = 0  # the state is that of so many positions before
    token_shift: int | None = None  # the drafter's token is that of so many positions later; None = unknown
    token_agreement: float | None = None  # with the token after each row's, the right one
    fc_error: float | None = None  # of the layer's output against the weights given, where both are known


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    layers: int
    slots: int | None
    ranks: int | None
    fc_weight: "Tensor | None"


def served_wiring(
    sequences: Iterable[HiddenStates],
    layers: int,
    slots: int | None = None,
    tensor_parallel: int | None = None,
    fc_weight: "Tensor | None" = None,
) -> ServedWiring:
    """Reads no more than `sample.SEQUENCES` sequences; see there for the memory it takes.

    `layers` of the target; `slots` that the head's fusion layer reads (its width by H), None = unknown;
    `tensor_parallel` ranks that served, None = unknown; fc_weight [h, slots H] names the boundaries where
    the dump holds the layer's output alone, provided that no norm stands before the layer.
    """
    sample = take(sequences, SHIFTS)
    asked = _Asked(layers, slots, tensor_parallel, fc_weight)
    wiring = _confirmed(_decide(sample, asked), sample, asked)
    return replace(
        _with_tokens(wiring, sample),
        rows=sample.rows,
        sequences=sample.sequences,
        captured=sample.boundaries,
        fc_error=_fc_error(sample, fc_weight),
    )


def _decide(sample: Sample, asked: _Asked) -> ServedWiring:
    if not sample.boundaries:
        return ServedWiring(False, missing="the dump holds no states of the target, or too few rows of them")
    aux = sample.aux()
    if aux is not None:
        return _from_states(aux, sample, asked)
    fused = sample.fc()
    if fused is not None and asked.fc_weight is not None:
        return _from_fused(fused, asked.fc_weight, sample, asked)
    part = "nothing" if fused is None else "only the fusion layer's output, without its weights,"
    return ServedWiring(False, missing=f"the dump holds {part} of what the drafter was given")


def _from_states(aux: "Tensor", sample: Sample, asked: _Asked) -> ServedWiring:
    width = sample.state(sample.boundaries[0]).shape[-1]
    given = aux.shape[-1]
    if not bool(aux.any()):
        return ServedWiring(False, why=f"the drafter was given {given} zeros a token")
    wiring = _whole(aux, sample, asked) if given % width == 0 else None
    if wiring is None or not wiring.decided:
        wiring = _in_pieces(aux, sample, asked) or wiring
    wrong = _wrong_width(given, width, asked)
    if wiring is not None and (wrong is None or len(wiring.boundaries or ()) == asked.slots):
        return wiring  # of as many slots as there should be: their parts explain the width
    if wrong is None:
        return ServedWiring(False, why=f"{given} numbers a token are no states of {width}, nor parts of them")
    return _of_wrong_width(wiring, wrong, asked)


def _whole(aux: "Tensor", sample: Sample, asked: _Asked) -> ServedWiring:
    """Every slot a boundary: at the right position, at another, multiplied, or in part."""
    width = sample.state(sample.boundaries[0]).shape[-1]
    given = aux.split(width, dim=-1)
    found = {lag: _nearest_slots(given, sample, asked.layers, lag) for lag in LAGS[:1]}
    if not _all_exact(found[0]):
        found |= {lag: _nearest_slots(given, sample, asked.layers, lag) for lag in LAGS[1:]}
    parts = _parts_missing(given, sample, found[0], asked.layers)
    lag = next((lag for lag, slots in found.items() if _all_exact(slots)), None)
    if lag is not None and not (lag == 0 and any(parts)):
        return _at_lag(found[lag], lag)
    return _multiplied(given, sample, asked) or _in_part(found[0], parts, sample, asked)


def _nearest_slots(given: "tuple[Tensor, ...]", sample: Sample, layers: int, lag: int) -> tuple[Nearest, ...]:
    errors: list[dict[int, float]] = [{} for _ in given]
    for boundary, state in sample.states(lag):
        for slot, one in zip(errors, given, strict=True):
            slot[boundary] = median_error(one, state)
    return tuple(nearest(slot, layers) for slot in errors)


def _all_exact(slots: tuple[Nearest, ...]) -> bool:
    return all(slot.exact for slot in slots)


def _at_lag(slots: tuple[Nearest, ...], lag: int) -> ServedWiring:
    faults = (
        ()
        if lag == 0
        else (Fault(Cause.TOKEN_SHIFT, f"the states are those of {_positions(lag, 'before')}"),)
    )
    return ServedWiring(True, _boundaries(slots), faults, slots, hidden_lag=lag)


def _multiplied(given: "tuple[Tensor, ...]", sample: Sample, asked: _Asked) -> ServedWiring | None:
    found = multiple(given, sample, asked.layers)
    if found is None:
        return None
    scale, slots = found
    names = boundary_names(_boundaries(slots), asked.layers)
    seen = f"every state is {scale:.3g} times what it should be ({names}): a sum over ranks taken wrongly"
    if asked.ranks is not None and round(max(scale, 1 / scale)) != asked.ranks:
        return ServedWiring(False, slots=slots, why=f"every state is {scale:.3g} times {names}")
    return ServedWiring(True, _boundaries(slots), (Fault(Cause.TENSOR_PARALLEL, seen),), slots)


def _parts_missing(
    given: "tuple[Tensor, ...]", sample: Sample, slots: tuple[Nearest, ...], layers: int
) -> list[Between | None]:
    """Also of what passes for exact: what is missing may be as small as noise, but noise has no direction."""
    pairs = zip(given, slots, strict=True)
    return [between(one, sample, slot, layers) if slot.error > ROUNDING else None for one, slot in pairs]


def _in_part(
    slots: tuple[Nearest, ...], parts: "list[Between | None]", sample: Sample, asked: _Asked
) -> ServedWiring:
    """Slots of which a layer's last sum is incomplete, beside those that are right (b0 has no such sum)."""
    if any(part is None and not slot.exact for part, slot in zip(parts, slots, strict=True)):
        return ServedWiring(False, slots=slots, why=_none_of(slots, sample, asked.layers))
    seen = "; ".join(_way(part, asked.layers) for part in parts if part is not None)
    if asked.ranks == 1:
        return ServedWiring(False, slots=slots, why=f"{seen}; one rank has no sum to complete")
    boundaries = tuple(
        slot.boundary if part is None else part.boundary for part, slot in zip(parts, slots, strict=True)
    )
    words = f"{seen}: what the layer adds is there in part, as before the sum over ranks is complete"
    return ServedWiring(True, boundaries, (Fault(Cause.TENSOR_PARALLEL, words),), slots)


def _way(part: Between, layers: int) -> str:
    before, after = (boundary_name(b, layers) for b in (part.boundary - 1, part.boundary))
    return f"a state is {part.way:.0%} of the way from {before} to {after}"


def _in_pieces(aux: "Tensor", sample: Sample, asked: _Asked) -> ServedWiring | None:
    ranks = {*USUAL_RANKS, *([asked.ranks] if asked.ranks and asked.ranks > 1 else [])}
    layout = find_layout(aux, sample, asked.layers, sorted(ranks))
    if layout is None:
        return None
    return ServedWiring(True, layout.boundaries, (Fault(Cause.TENSOR_PARALLEL, layout.seen),))


def _wrong_width(given: int, width: int, asked: _Asked) -> Fault | None:
    if asked.slots is None or given == asked.slots * width:
        return None
    if given == width:
        seen = f"the drafter is given one state of {width}: its fusion layer, of {asked.slots}, is skipped"
        return Fault(Cause.ALGORITHM, seen)
    reads = f"its fusion layer reads {asked.slots} states of {width}"
    return Fault(Cause.FC_WIDTH, f"the drafter is given {given} numbers a token, {reads}")


def _of_wrong_width(wiring: ServedWiring | None, fault: Fault, asked: _Asked) -> ServedWiring:
    """The width alone proves the fault, whatever the states are."""
    if wiring is None or wiring.boundaries is None:
        slots = () if wiring is None else wiring.slots
        return ServedWiring(True, None, (fault,), slots, why="" if wiring is None else wiring.why)
    seen = f"{fault.seen}; given is {boundary_names(wiring.boundaries, asked.layers)}"
    return replace(wiring, faults=(replace(fault, seen=seen), *wiring.faults))


def _from_fused(fused: "Tensor", weight: "Tensor", sample: Sample, asked: _Asked) -> ServedWiring:
    slots, rest = divmod(weight.shape[-1], sample.state(sample.boundaries[0]).shape[-1])
    if rest or weight.shape[0] != fused.shape[-1]:
        shape = f"{weight.shape[0]} x {weight.shape[1]}"
        return ServedWiring(
            False, why=f"weights of {shape} did not make the {fused.shape[-1]} numbers a token"
        )
    if choices(sample, slots) > MOST_CHOICES:
        return ServedWiring(False, why=f"too many to try: {slots} of {len(sample.boundaries)} boundaries")
    found = find_inputs(fused, weight, sample, asked.layers)
    for lag in LAGS:
        at_lag = found if lag == 0 else find_inputs(fused, weight, sample, asked.layers, lag)
        if _all_exact(at_lag):
            return _at_lag(at_lag, lag)
    return ServedWiring(False, slots=found, why=_none_of(found, sample, asked.layers))


def _none_of(slots: tuple[Nearest, ...], sample: Sample, layers: int) -> str:
    number, slot = next((i, slot) for i, slot in enumerate(slots, 1) if not slot.exact)
    held = spans(sample.boundaries, layers)
    return (
        f"slot {number} is none of the captured {held} for certain: "
        f"nearest {boundary_name(slot.boundary, layers)}, error {slot.error:.2g}"
    )


def _boundaries(slots: tuple[Nearest, ...]) -> tuple[int, ...]:
    return tuple(slot.boundary for slot in slots)


def _positions(lag: int, direction: str) -> str:
    count = abs(lag)
    other = {"before": "after", "after": "before"}[direction]
    return f"{count} position{'s' * (count > 1)} {direction if lag > 0 else other}"


def _confirmed(wiring: ServedWiring, sample: Sample, asked: _Asked) -> ServedWiring:
    """The rows of the prompt and of the answer must say the same: servers compute them by different ways."""
    alone: Mapping[Phase, Sample] = {phase: sample.only(phase) for phase in Phase}
    said = {phase: _decide(part, asked) for phase, part in alone.items() if part.rows >= LEAST_ROWS}
    if len({_gist(one) for one in said.values()}) < 2:
        return wiring
    each = "; ".join(f"rows of the {phase}: {_in_words(one, asked.layers)}" for phase, one in said.items())
    return replace(wiring, decided=False, boundaries=None, faults=(), why=each)


def _gist(wiring: ServedWiring) -> tuple[object, ...]:
    return wiring.decided, wiring.boundaries, wiring.hidden_lag, tuple(fault.cause for fault in wiring.faults)


def _in_words(wiring: ServedWiring, layers: int) -> str:
    if not wiring.decided:
        return wiring.why
    named = boundary_names(wiring.boundaries or (), layers)
    return "; ".join([*([named] if named else []), *(fault.seen for fault in wiring.faults)])


def _with_tokens(wiring: ServedWiring, sample: Sample) -> ServedWiring:
    """The shift at which the drafter's tokens are the text's; the right one if several fit, as in loops."""
    shares = {s: sample.agreeing[s] / of for s, of in sample.compared.items() if of}
    right = shares.get(RIGHT_SHIFT)
    shift = next((s for s, share in shares.items() if share >= AGREEING), None)
    wiring = replace(wiring, token_shift=shift, token_agreement=right)
    if shift is None or shift == RIGHT_SHIFT or right is None:
        return wiring
    away = _positions(shift - RIGHT_SHIFT, "after")
    seen = f"the drafter's tokens are those {away} the right ones; {right:.0%} of them are right"
    return replace(wiring, faults=(*wiring.faults, Fault(Cause.TOKEN_SHIFT, seen)))


def _fc_error(sample: Sample, weight: "Tensor | None") -> float | None:
    aux, fused = sample.aux(), sample.fc()
    if (
        aux is None
        or fused is None
        or weight is None
        or tuple(weight.shape) != (fused.shape[-1], aux.shape[-1])
    ):
        return None
    return median_error(aux @ weight.float().T, fused)


def reading_seen(wiring: ServedWiring, otherwise: Reading) -> Reading | None:
    """The reading that the server was seen to use; what a dump does not show is as `otherwise`.

    None if the boundaries are not known, or the states are such that no Reading says it.
    """
    causes = {fault.cause for fault in wiring.faults}
    if not wiring.decided or wiring.boundaries is None or Cause.TENSOR_PARALLEL in causes:
        return None
    return replace(
        otherwise,
        boundaries=wiring.boundaries,
        uses_fc=otherwise.uses_fc and Cause.ALGORITHM not in causes,
        hidden_lag=wiring.hidden_lag,
        token_shift=otherwise.token_shift if wiring.token_shift is None else wiring.token_shift,
    )
