"""What a GPU ran: when a step begins on it, what its kernels are, and whom each moment belongs to."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence

from analysis.moments import Label, Stretch, pieces
from analysis.recording import Recording, Spans
from analysis.trace_names import work_of_kernel
from results.profile import Stage, Work

_RANKS = {Work.ALL_REDUCE: 1, Work.COPIES: 2}  # hidden behind what has a lower one; computing has 0


def begins_on_gpu(found: Recording, kernels: Spans, starts: Sequence[float]) -> dict[int, float]:
    """When the first kernel that a step launched began to run; steps without kernels have none."""
    begins: dict[int, float] = {}
    for start, launch in zip(kernels.starts, kernels.launched, strict=True):
        launched = found.launches.get(launch)
        step = bisect_right(starts, launched[0]) - 1 if launched is not None else -1
        if step >= 0:
            begins[step] = min(start, begins.get(step, start))
    return begins


class Labels:
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
    moments = [*pieces(found, Spans(), marks)]
    times = [*(start for start, _, _ in moments), moments[-1][1]]
    return times, [*(label.stage for _, _, label in moments), None]


def parts_in(
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


def shared_out(parts: Sequence[tuple[float, float, Label]]) -> tuple[dict[Label, float], float]:
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
