"""Moments of a trace: what each is spent on, and which of them count."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from analysis.recording import Recording, Spans
from analysis.trace_names import mark_of, work_of_operation
from results.profile import Stage, Work

Stretch = tuple[float, float]  # of time, in the trace's microseconds


class Label(NamedTuple):
    """What a moment is spent on; `name` of what no pattern knows, else -1."""

    work: Work | None
    stage: Stage | None
    name: int = -1


NOTHING = Label(None, None)


def pieces(found: Recording, operations: Spans, marks: Spans) -> Iterator[tuple[float, float, Label]]:
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
        outer_end, outer = open_spans[-1] if open_spans else (end, NOTHING)
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


def clipped(
    moments: Iterable[tuple[float, float, Label]], stretches: Sequence[Stretch]
) -> Iterator[tuple[float, float, Label]]:
    """What of the moments lies in the stretches; both are in order."""
    i = 0
    for start, end, label in moments:
        while i < len(stretches) and stretches[i][1] <= start:
            i += 1
        for low, high in stretches[i:]:
            if low >= end:
                break
            if max(start, low) < min(end, high):
                yield max(start, low), min(end, high), label
