"""Where the time of a decode step goes, from a trace of a running server.

Looked at are decode steps that a decode step follows: their requests were in flight all the time, so
nothing between the two is idleness. Every moment of them is counted once, by the kind of work and by the
stage of the step, so that the shares of either sum to one.

On a GPU a moment belongs to the kernels that run: to those that compute before those that exchange
tensors before copies, in equal parts to several; without any it is a host gap. On a CPU a moment belongs
to the outermost operation that has a known kind, or to Python. A kernel's stage is that of the moment at
which it was launched, an operation's that of the marks around it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from analysis.moments import NOTHING, Label, Stretch, clipped, pieces
from analysis.recording import Recording, Spans, Thread, recorded
from analysis.trace_events import TraceDamaged
from analysis.trace_gpu import Labels, begins_on_gpu, parts_in, shared_out
from analysis.trace_names import mark_of
from results.profile import Stage, TraceSummary, Work

LARGEST_OTHERS = 5
_MICROSECOND_S = 1e-6


class Step(NamedTuple):
    """One step of the engine, as the host began it."""

    start: float
    decodes: bool


def summarise(events: Iterable[Mapping[str, Any]]) -> TraceSummary:
    """The summary of one rank's trace. Raises TraceDamaged if there is nothing to sum up."""
    found = recorded(events)
    thread = _thread_of_steps(found)
    steps = _steps(found, found.marks[thread]) if thread is not None else []
    if found.kernels:
        return _of_gpu(found, steps)
    if found.operations:
        return _of_cpu(found, thread, steps)
    raise TraceDamaged("it holds no kernel and no operation")


# Steps


def _thread_of_steps(found: Recording) -> Thread | None:
    """The thread that runs the engine's steps; None if none is marked."""

    def begun(thread: Thread) -> int:
        return sum(_is_step(found, name) for name in found.marks[thread].names)

    best = max(found.marks, key=begun, default=None)
    return best if best is not None and begun(best) else None


def _is_step(found: Recording, name: int) -> bool:
    mark = mark_of(found.names[name])
    return mark is not None and mark.is_step


def _steps(found: Recording, marks: Spans) -> list[Step]:
    """In order. A step decodes if its mark says so, or all that is marked inside it."""
    told: list[tuple[float, list[bool]]] = []
    for start, _, name in sorted(marks, key=_outermost_first):
        mark = mark_of(found.names[name])
        if mark is not None and mark.is_step:
            told.append((start, []))
        if told and mark is not None and mark.decodes is not None:
            told[-1][1].append(mark.decodes)
    return [Step(start, bool(said) and all(said)) for start, said in told]


def _outermost_first(span: tuple[float, float, int]) -> tuple[float, float]:
    return span[0], -span[1]


def _stretches(steps: Sequence[Step], begins: Mapping[int, float]) -> tuple[list[Stretch], int]:
    """Decode steps that a decode step follows, joined where they touch; and how many they are.

    `begins` tells when a step (by its number) begins on the device.
    """
    joined: list[Stretch] = []
    count = 0
    for i, (step, following) in enumerate(pairwise(steps)):
        start, end = begins.get(i), begins.get(i + 1)
        if not (step.decodes and following.decodes) or start is None or end is None or end <= start:
            continue
        count += 1
        if joined and joined[-1][1] == start:
            joined[-1] = joined[-1][0], end
        elif not joined or start >= joined[-1][1]:
            joined.append((start, end))
    return joined, count


# Sums


def _of_cpu(found: Recording, thread: Thread | None, steps: Sequence[Step]) -> TraceSummary:
    if thread is None or thread not in found.operations:
        thread = max(found.operations, key=lambda t: len(found.operations[t]))
    stretches, count = _stretches(steps, {i: step.start for i, step in enumerate(steps)})
    operations = found.operations[thread]
    if not steps:
        stretches = [(min(operations.starts), max(operations.ends))]
    spent: dict[Label, float] = defaultdict(float)
    moments = pieces(found, operations, found.marks.get(thread, Spans()))
    for start, end, label in clipped(moments, stretches):
        spent[label] += end - start
    return _summary(found, "cpu", steps, stretches, count, spent)


def _of_gpu(found: Recording, steps: Sequence[Step]) -> TraceSummary:
    kernels = max(found.kernels.values(), key=len)  # one rank drives one GPU
    stretches, count = _stretches(steps, begins_on_gpu(found, kernels, [step.start for step in steps]))
    if not steps:
        stretches = [(min(kernels.starts), max(kernels.ends))]
    labels = Labels(found)
    named = [
        (start, end, labels.of(name, launch))
        for start, end, name, launch in zip(
            kernels.starts, kernels.ends, kernels.names, kernels.launched, strict=True
        )
    ]
    named.sort(key=lambda kernel: kernel[0])
    spent, hidden = shared_out(parts_in(named, stretches))
    wall = sum(end - start for start, end in stretches)
    spent[NOTHING] = max(0.0, wall - sum(spent.values()))
    return _summary(found, "gpu", steps, stretches, count, spent, hidden)


def _summary(
    found: Recording,
    device: str,
    steps: Sequence[Step],
    stretches: Sequence[Stretch],
    count: int,
    spent: Mapping[Label, float],
    hidden: float = 0.0,
) -> TraceSummary:
    if not stretches:
        raise TraceDamaged(f"of its {len(steps)} steps no two decode in a row")
    work_s, stages_s, others = (defaultdict[str, float](float) for _ in range(3))
    for label, microseconds in spent.items():
        work, seconds = label.work or Work.HOST, microseconds * _MICROSECOND_S
        work_s[work.value] += seconds
        stages_s[_stage_of(label).value] += seconds
        if work is Work.OTHER:
            others[found.names[label.name]] += seconds
    return TraceSummary(
        device=device,
        steps=count,
        decodes=sum(step.decodes for step in steps),
        prefills=sum(not step.decodes for step in steps),
        wall_s=sum(end - start for start, end in stretches) * _MICROSECOND_S,
        work_s=dict(work_s),
        stages_s=dict(stages_s),
        hidden_s=hidden * _MICROSECOND_S,
        others_s=dict(sorted(others.items(), key=lambda item: -item[1])[:LARGEST_OTHERS]),
    )


def _stage_of(label: Label) -> Stage:
    if label.stage is not None:
        return label.stage
    if label.work is None:
        return Stage.HOST
    return Stage.SAMPLING if label.work is Work.SAMPLING else Stage.OTHER
