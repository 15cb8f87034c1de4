"""A server started with a Capture inside, asked some prompts, and ended: a dump of what it saw.

Never a measurement: the instrumented server is slow, and has no CUDA graphs.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from launchers.engines.engine import Capture
from results.errors import MeasurementInvalid
from results.hidden_states import Dump, HiddenStates
from results.reasons import Reason
from results.records import Cell, Phase, Point, Request, SpecCounters
from sweeps.arm import Arm, measure, up
from sweeps.pace import Closed
from sweeps.setup import Setup
from sweeps.traced import folder_to_write
from sweeps.windows import Window
from sweeps.workload import Prompt

if TYPE_CHECKING:
    from torch import Tensor

# On ordinary traffic a wiring stood out from its nearest neighbour by z = 4.3 at 24 sequences of 160 tokens,
# by 2.0 at 8.
SEQUENCES = 24
ANSWER_TOKENS = 128
SECONDS = 1800.0  # then no further prompt is asked


@dataclass(frozen=True, slots=True)
class Captured:
    """A dump, and what the server said meanwhile."""

    dump: Dump
    texts: tuple[str, ...]  # the answers, in the order of the sequences
    counted: SpecCounters | None  # of the same requests, by the engine's own counters
    notes: tuple[str, ...] = field(default=())  # what does not fit together


def usual_prompts(setup: Setup, count: int = SEQUENCES) -> Sequence[Prompt]:
    """As many of the sweep's own prompts, the classes in turn; fewer if it has no more."""
    by_class: dict[str, list[Prompt]] = {}
    for windows in setup.windows.values():
        for prompt in (p for window in windows for p in window.prompts):
            own = by_class.setdefault(prompt.workload_class, [])
            if prompt.content not in [p.content for p in own]:
                own.append(prompt)
    rounds = range(max(map(len, by_class.values()), default=0))
    in_turn = (own[i] for i in rounds for own in by_class.values() if i < len(own))
    return list(islice(in_turn, count))


def capture(
    setup: Setup,
    point: Point,
    prompts: Sequence[Prompt],
    into: Path,
    *,
    boundaries: Collection[int] | None = None,
    answer_tokens: int = ANSWER_TOKENS,
    seconds: float = SECONDS,
) -> Captured:
    """Ask a server of this Point the prompts one at a time, greedily, and write what is seen into a folder.

    `boundaries`: those of the target that are kept, None = all. Raises UsageError if servers of this
    engine or Point show nothing, MeasurementInvalid with the cause if one did not start, ended or hung.
    """
    window = Window(
        Cell("capture", str(Closed(1))), Closed(1), [replace(p, max_tokens=None) for p in prompts]
    )
    quiet = _greedy(setup, window, answer_tokens)
    with folder_to_write(setup) as folder:
        capture = setup.engine.capture(point, setup.served, folder, boundaries)
        with up(quiet, capture.point, "capture", window.prompts, capture) as arm:
            _raise_failure(arm)
            skipped = _count(capture)
            _ask(quiet, arm, window, time.monotonic() + seconds)
        _raise_failure(arm)
        if not arm.requests:
            raise MeasurementInvalid(Reason.HANG, f"no prompt was answered within {seconds:g} s")
        accepted: list[int] = []
        sequences = _ours(capture, skipped, arm.requests, accepted)
        dump = Dump.write(into, replace(capture.header, temperature=0.0), sequences)
    counts = [turn.counted for turn in arm.turns[window.cell] if turn.counted is not None]
    counted = sum(counts[1:], counts[0]) if counts else None
    texts = tuple(r.reasoning_text + r.text for r in arm.requests)
    return Captured(dump, texts, counted, tuple(_differences(accepted, counted)))


def _greedy(setup: Setup, window: Window, answer_tokens: int) -> Setup:
    """The same server and requests, but greedy, short, and one at a time."""
    asked = {"temperature": 0.0, "sampling": {}, "max_tokens": answer_tokens}
    workload = setup.sweep.workload.model_copy(update=asked)
    sweep = setup.sweep.model_copy(update={"workload": workload})
    return replace(setup, sweep=sweep, windows={Phase.SEARCH: [window]}, warm_up=setup.warm_up[:1])


def _ask(setup: Setup, arm: Arm, window: Window, until_s: float) -> None:
    for turn in window.turns():
        if arm.is_over or time.monotonic() > until_s:
            return
        measure(setup, arm, turn, None)


def _raise_failure(arm: Arm) -> None:
    if arm.failure is not None:
        raise MeasurementInvalid(arm.failure.reason, arm.failure.evidence)


def _count(capture: Capture) -> int:
    """Sequences of the warm-up."""
    try:
        return sum(1 for _ in capture.sequences())
    except MeasurementInvalid:  # there was none
        return 0


def _ours(
    capture: Capture, skipped: int, requests: Sequence[Request], accepted: list[int]
) -> Iterator[HiddenStates]:
    """The sequences of these requests; drafts accepted in their rounds go to `accepted`."""
    found = islice(capture.sequences(), skipped, None)
    for request in requests:
        sequence = next(found, None)
        if sequence is None or sequence.prompt_tokens != (request.prompt_tokens or sequence.prompt_tokens):
            seen = "nothing" if sequence is None else f"a prompt of {sequence.prompt_tokens} tokens"
            raise MeasurementInvalid(
                Reason.TRACE_UNUSABLE,
                f"of prompt {request.prompt_id} with {request.prompt_tokens} tokens {seen} was captured",
            )
        accepted += sequence.accepted
        tokens = len(sequence.token_ids)
        yield cut(sequence, sequence.prompt_tokens + (request.output_tokens or tokens))


def cut(sequence: HiddenStates, tokens: int) -> HiddenStates:
    """So many tokens of it at most, and the rows before the last of them; its rounds stay."""
    kept = min(tokens, len(sequence.token_ids))
    rows = kept - 1

    def to_rows(tensor: "Tensor | None") -> "Tensor | None":
        return None if tensor is None else tensor[:rows]

    return replace(
        sequence,
        token_ids=sequence.token_ids[:kept],
        states={b: state[:rows] for b, state in sequence.states.items()},
        served_aux=to_rows(sequence.served_aux),
        served_fc=to_rows(sequence.served_fc),
        served_ids=to_rows(sequence.served_ids),
    )


def _differences(accepted: Sequence[int], counted: SpecCounters | None) -> Iterator[str]:
    """What the passes and the server's counters say of the same rounds."""
    if counted is None:
        return
    if (len(accepted), sum(accepted)) != (counted.drafts, counted.accepted_tokens):
        yield (
            f"the passes had {len(accepted)} rounds with {sum(accepted)} accepted drafts, the server counted"
            f" {counted.drafts} with {counted.accepted_tokens}"
        )
