"""Step 5: which wiring does the server use? Told from a dump, by number; and whether the dump is sound."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from analysis.wiring.match import LAGS, Fault, ServedWiring, served_wiring
from analysis.wiring.nearest import Nearest, spans
from analysis.wiring.pieces import USUAL_RANKS
from analysis.wiring.sanity import Flawed, Readout, find_flaws
from results.hidden_states import AnyDump, DumpHeader
from results.wiring import (
    Cause,
    Finding,
    Reading,
    Section,
    Severity,
    Step,
    boundary_name,
    boundary_names,
)

if TYPE_CHECKING:
    from torch import Tensor

SAME_OUTPUT = 0.03  # two kernels in bf16
_RULES = {
    Cause.ALGORITHM: "EAGLE-3 (arXiv 2503.01840) fuses several layers' states; the algorithm EAGLE gives one",
    Cause.FC_WIDTH: "the fusion layer reads as many states as it was trained with",
    Cause.TENSOR_PARALLEL: (
        "a drafter reads whole states: the sums over ranks complete, their columns gathered "
        "(reports of the contrary: sglang 28343, vllm-ascend 5825)"
    ),
    Cause.TOKEN_SHIFT: "the state at position p stands beside the token at p + 1 (EAGLE, arXiv 2401.15077)",
}
_FATAL = (Cause.ALGORITHM, Cause.FC_WIDTH)


def section(
    dump: AnyDump,
    slots: int | None = None,
    expected: Reading | None = None,
    fc_weight: "Tensor | None" = None,
    readout: Readout | None = None,
) -> tuple[Section, ServedWiring | None]:
    """Raises UsageError if the dump is damaged. Goes through it once, and reads its first sequences again.

    `slots` that the head's fusion layer reads; `expected` is what the engine is thought to do; fc_weight only
    if no norm stands before the layer; the readout only if it is the target's that was served.
    """
    header = dump.header
    greedy = readout if header.temperature == 0.0 else None
    flaws = find_flaws(dump, header.layers, greedy)
    ranks = header.tensor_parallel
    wiring = served_wiring(dump, header.layers, slots, ranks, fc_weight)
    if wiring.missing:
        return Section(Step.SERVED, seen=tuple(f.seen for f in flaws), skipped=wiring.missing), None
    return described(wiring, flaws, header, expected, looked_at_answers=greedy is not None), wiring


def described(
    wiring: ServedWiring,
    flaws: Sequence[Flawed],
    header: DumpHeader,
    expected: Reading | None,
    *,
    looked_at_answers: bool = False,
) -> Section:
    """In words."""
    differing = _differing(wiring, header, expected)
    return Section(
        Step.SERVED,
        checked=tuple(_checked(wiring, header.layers, looked_at_answers)),
        seen=tuple(_seen(wiring, flaws, header.layers)),
        follows=tuple(_follows(wiring, flaws, header.layers, expected)),
        findings=(*map(_finding, wiring.faults), *differing),
    )


def _checked(wiring: ServedWiring, layers: int, looked_at_answers: bool) -> Iterator[str]:
    yield "the dump: rows against tokens, finite numbers, columns of zeros or twice, lengths of the states"
    if looked_at_answers:
        yield "the tokens that the states predict against those of the answers"
    ranks = ", ".join(map(str, USUAL_RANKS))
    yield (
        f"{wiring.rows} rows of {wiring.sequences} sequences against {spans(wiring.captured, layers)}, "
        f"up to {max(LAGS)} positions off, whole and in the parts of {ranks} ranks"
    )


def _seen(wiring: ServedWiring, flaws: Sequence[Flawed], layers: int) -> Iterator[str]:
    yield from (flaw.seen for flaw in flaws)
    yield from (_slot(number, slot, layers) for number, slot in enumerate(wiring.slots, 1))
    yield from (fault.seen for fault in wiring.faults)
    if wiring.token_agreement is not None:
        yield f"{wiring.token_agreement:.0%} of the drafter's tokens are those after the states' positions"
    if wiring.fc_error is not None:
        whose = "those of" if wiring.fc_error <= SAME_OUTPUT else "not those of"
        yield f"the fusion layer's outputs are {whose} the head's folder: error {wiring.fc_error:.2g}"


def _slot(number: int, slot: Nearest, layers: int) -> str:
    name = boundary_name(slot.boundary, layers)
    what = f"= {name}" if slot.exact else f"is nearest {name}"
    if slot.runner_up is None:
        return f"slot {number} {what}: error {slot.error:.2g}"
    other = boundary_name(slot.runner_up, layers)
    return f"slot {number} {what}: error {slot.error:.2g}, next {other} {slot.runner_up_error:.2g}"


def _follows(
    wiring: ServedWiring, flaws: Sequence[Flawed], layers: int, expected: Reading | None
) -> Iterator[str]:
    if flaws:
        yield "The dump is not sound: capture again before believing what is said of it."
    if not wiring.decided:
        yield f"Which wiring the server uses is undecided: {wiring.why}."
    elif wiring.boundaries is not None:
        as_expected = expected is not None and expected.boundaries == wiring.boundaries
        but = (
            ", but not as a head is trained to read them"
            if wiring.faults
            else ", as was expected"
            if as_expected
            else ""
        )
        yield f"The server gives its drafter {boundary_names(wiring.boundaries, layers)}{but}."
    else:
        yield "What the server gives its drafter are no states that a head could have been trained with."


def _finding(fault: Fault) -> Finding:
    severity = Severity.FATAL if fault.cause in _FATAL else Severity.LIKELY
    return Finding(fault.cause, severity, fault.seen, _RULES[fault.cause])


def _differing(wiring: ServedWiring, header: DumpHeader, expected: Reading | None) -> tuple[Finding, ...]:
    """Then we are wrong about the engine; whether its drafter suffers, how that was trained decides."""
    if expected is None or wiring.boundaries in (None, expected.boundaries):
        return ()
    if any(fault.cause in _FATAL for fault in wiring.faults):
        return ()
    assert wiring.boundaries is not None
    same = sorted(wiring.boundaries) == sorted(expected.boundaries)
    served, thought = (boundary_names(b, header.layers) for b in (wiring.boundaries, expected.boundaries))
    seen = f"the drafter is given {served}; of {header.engine or 'the engine'} {thought} was expected"
    rule = "either this engine's version reads layer ids otherwise than we know, or another folder is served"
    return (Finding(Cause.ORDER if same else Cause.LAYERS, Severity.INFO, seen, rule),)
