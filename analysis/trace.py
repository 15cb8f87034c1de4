"""Where the time of a decode step goes, from a trace of a running server.

Looked at are decode steps that a decode step follows: their requests were in flight all the time, so
nothing between the two is idleness. Every moment of them is counted once, by the kind of work and by the
stage of the step, so that the shares of either sum to one.

On a GPU a moment belongs to the kernels that run: to those that compute before those that exchange
tensors before copies, in equal parts to several; without any it is a host gap. On a CPU a moment belongs
to the outermost operation that has a known kind, or to Python. A kernel's stage is that of the moment at
which it was launched, an operation's that of the marks around it.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from analysis.recording import Recording, Spans, Thread, recorded
from analysis.trace_events import TraceDamaged
from analysis.trace_names import mark_of, work_of_kernel, work_of_operation
from results.profile import Stage, TraceSummary, Work

LARGEST_OTHERS = 5
_MICROSECOND_S = 1e-6
_RANKS = {Work.ALL_REDUCE: 1, Work.COPIES: 2}  # hidden behind what has a lower one; computing has 0

Stretch = tuple[float, float]  # of time, in the trace's microseconds


class Label(NamedTuple):
    """What a moment is spent on; `name` of what no pattern knows, else -1."""

    work: Work | None
    stage: Stage | None
    name: int = -1


_NOTHING = Label(None, None)


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


# CPU


def _of_cpu(found: Recording, thread: Thread | None, steps: Sequence[Step]) -> TraceSummary:
    if thread is None or thread not in found.operations:
        thread = max(found.operations, key=lambda t: len(found.operations[t]))
    stretches, count = _stretches(steps, {i: step.start for i, step in enumerate(steps)})
    operations = found.operations[thread]
    if not steps:
        stretches = [(min(operations.starts), max(operations.ends))]
    spent: dict[Label, float] = defaultdict(float)
    pieces = _pieces(found, operations, found.marks.get(thread, Spans()))
    for start, end, label in _clipped(pieces, stretches):
        spent[label] += end - start
    return _summary(found, "cpu", steps, stretches, count, spent)


def _pieces(found: Recording, operations: Spans, marks: Spans) -> Iterator[tuple[float, float, Label]]:
    """The time of one thread in order, each piece with what it is spent on; also what is between spans."""
    spans = [(start, end, name, True) for start, end, name in operations]
    spans += [(start, end, name, False) for start, end, name in marks]
    spans.sort(key=lambda span: (span[0], -span[1]))
    open_spans: list[tuple[float, Label]] = []
    at = spans[0][0]
    for start, end, name, is_operation in spans:
        while open_spans and open_spans[-1][0] <= start:
            until, label = open_spans.pop()
            yield at, until, label
            at = until
        outer_end, outer = open_spans[-1] if open_spans else (end, _NOTHING)
        yield at, start, outer
        at = start
        label = _inside(outer, found.names[name], name) if is_operation else _marked(outer, found.names[name])
        open_spans.append((min(end, outer_end), label))
    while open_spans:
        until, label = open_spans.pop()
        yield at, until, label
        at = until


def _inside(outer: Label, name: str, number: int) -> Label:
    """An operation is of the kind of the one that calls it, if that has one."""
    if outer.work not in (None, Work.OTHER):
        return outer
    work = work_of_operation(name)
    return Label(work, outer.stage, number if work is Work.OTHER else -1)


def _marked(outer: Label, name: str) -> Label:
    mark = mark_of(name)
    stage = mark.stage if mark is not None else None
    return outer if stage is None else outer._replace(stage=stage)


def _clipped(
    pieces: Iterable[tuple[float, float, Label]], stretches: Sequence[Stretch]
) -> Iterator[tuple[float, float, Label]]:
    """What of the pieces lies in the stretches; both are in order."""
    i = 0
    for start, end, label in pieces:
        while i < len(stretches) and stretches[i][1] <= start:
            i += 1
        for low, high in stretches[i:]:
            if low >= end:
                break
            if max(start, low) < min(end, high):
                yield max(start, low), min(end, high), label


# GPU


def _of_gpu(found: Recording, steps: Sequence[Step]) -> TraceSummary:
    kernels = max(found.kernels.values(), key=len)  # one rank drives one GPU
    stretches, count = _stretches(steps, _begins_on_gpu(found, kernels, steps))
    if not steps:
        stretches = [(min(kernels.starts), max(kernels.ends))]
    labels = _Labels(found)
    named = [
        (start, end, labels.of(name, launch))
        for start, end, name, launch in zip(
            kernels.starts, kernels.ends, kernels.names, kernels.launched, strict=True
        )
    ]
    named.sort(key=lambda kernel: kernel[0])
    spent, hidden = _shared_out(_parts(named, stretches))
    wall = sum(end - start for start, end in stretches)
    spent[_NOTHING] = max(0.0, wall - sum(spent.values()))
    return _summary(found, "gpu", steps, stretches, count, spent, hidden)


def _begins_on_gpu(found: Recording, kernels: Spans, steps: Sequence[Step]) -> dict[int, float]:
    """When the first kernel that a step launched began to run; steps without kernels have none."""
    starts, begins = [step.start for step in steps], dict[int, float]()
    for start, launch in zip(kernels.starts, kernels.launched, strict=True):
        launched = found.launches.get(launch)
        step = bisect_right(starts, launched[0]) - 1 if launched is not None else -1
        if step >= 0:
            begins[step] = min(start, begins.get(step, start))
    return begins


class _Labels:
    """What kernels are, by name and by the moment at which they were launched."""

    def __init__(self, found: Recording) -> None:
        self._found = found
        self._works = [work_of_kernel(name) for name in found.names]
        self._stages = {thread: _changes(found, marks) for thread, marks in found.marks.items()}

    def of(self, name: int, launch: int) -> Label:
        work = self._works[name]
        return Label(work, self._stage(launch), name if work is Work.OTHER else -1)

    def _stage(self, launch: int) -> Stage | None:
        launched = self._found.launches.get(launch)
        if launched is None or launched[1] not in self._stages:
            return None
        times, stages = self._stages[launched[1]]
        at = bisect_right(times, launched[0]) - 1
        return stages[at] if at >= 0 else None


def _changes(found: Recording, marks: Spans) -> tuple[list[float], list[Stage | None]]:
    """Times at which the stage of a thread changes, and to what."""
    pieces = [*_pieces(found, Spans(), marks)] if len(marks) else []
    times = [start for start, _, _ in pieces] + [pieces[-1][1]] if pieces else []
    return times, [label.stage for _, _, label in pieces] + [None]


def _parts(
    kernels: Sequence[tuple[float, float, Label]], stretches: Sequence[Stretch]
) -> list[tuple[float, float, Label]]:
    """What of the kernels lies in the stretches. Kernels overlap, so they are no pieces in order."""
    ends = [end for _, end in stretches]
    parts = []
    for start, end, label in kernels:
        for low, high in stretches[bisect_right(ends, start) :]:
            if low >= end:
                break
            if max(start, low) < min(end, high):
                parts.append((max(start, low), min(end, high), label))
    return parts


def _shared_out(parts: Sequence[tuple[float, float, Label]]) -> tuple[dict[Label, float], float]:
    """Time of each label with every moment counted once; and of exchange that hid behind computing."""
    edges = [(start, 1, label) for start, _, label in parts] + [(end, -1, label) for _, end, label in parts]
    edges.sort(key=lambda edge: edge[0])
    spent: dict[Label, float] = defaultdict(float)
    active = Counter[Label]()
    hidden = at = 0.0
    for time, change, label in edges:
        if active and time > at:
            front = min(_rank(running) for running in active)
            owners = [running for running in active if _rank(running) == front]
            for owner in owners:
                spent[owner] += (time - at) / len(owners)
            if front == 0 and any(running.work is Work.ALL_REDUCE for running in active):
                hidden += time - at
        at = time
        active[label] += change
        if not active[label]:
            del active[label]
    return spent, hidden


def _rank(label: Label) -> int:
    return _RANKS.get(label.work, 0) if label.work is not None else 0


# Both


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
