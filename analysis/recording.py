"""What of a trace is looked at, in arrays: about 30 bytes for a kernel or an operation."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from analysis.trace_names import mark_of

Thread = tuple[object, object]  # process and thread, as the trace names them

_KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime"})
_MARKS = frozenset({"user_annotation", "python_function"})


@dataclass(slots=True)
class Spans:
    """Times in microseconds, and for each a name by its number in `Recording.names`."""

    starts: "array[float]" = field(default_factory=lambda: array("d"))
    ends: "array[float]" = field(default_factory=lambda: array("d"))
    names: "array[int]" = field(default_factory=lambda: array("I"))
    launched: "array[int]" = field(default_factory=lambda: array("q"))  # number of its launch; -1 = none

    def add(self, start: float, duration: float, name: int, launch: int = -1) -> None:
        self.starts.append(start)
        self.ends.append(start + duration)
        self.names.append(name)
        self.launched.append(launch)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[float, float, int]]:
        return zip(self.starts, self.ends, self.names, strict=True)


@dataclass(slots=True)
class Recording:
    """One rank's trace: what the GPU ran, or without one what the CPU's threads did."""

    names: list[str] = field(default_factory=list)
    marks: dict[Thread, Spans] = field(default_factory=dict)
    operations: dict[Thread, Spans] = field(default_factory=dict)  # empty if there are kernels
    kernels: dict[object, Spans] = field(default_factory=dict)  # by device
    launches: dict[int, tuple[float, Thread]] = field(default_factory=dict)  # what a kernel was started by
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        found = self._numbers.setdefault(name, len(self.names))
        if found == len(self.names):
            self.names.append(name)
        return found


def recorded(events: Iterable[Mapping[str, Any]]) -> Recording:
    """Sort the events of a trace into what matters here."""
    found = Recording()
    for event in events:
        if event.get("ph") == "X" and "ts" in event and "dur" in event:
            _add(found, event)
    return found


def _add(found: Recording, event: Mapping[str, Any]) -> None:
    category, name, start = event.get("cat"), str(event.get("name")), float(event["ts"])
    duration, thread = max(0.0, float(event["dur"])), (event.get("pid"), event.get("tid"))
    if category in _KERNELS:
        found.operations.clear()  # of no use beside kernels, and many
        launch = int(event.get("args", {}).get("correlation", -1))
        device = event.get("args", {}).get("device", event.get("pid"))
        found.kernels.setdefault(device, Spans()).add(start, duration, found.number(name), launch)
    elif category == "cpu_op" and not found.kernels:
        found.operations.setdefault(thread, Spans()).add(start, duration, found.number(name))
    elif category in _LAUNCHES and "correlation" in event.get("args", {}):
        found.launches[int(event["args"]["correlation"])] = start, thread
    elif category in _MARKS and mark_of(name) is not None:
        found.marks.setdefault(thread, Spans()).add(start, duration, found.number(name))
