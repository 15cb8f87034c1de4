"""Traces for tests: made from a few lines, or excerpts of what the engines really wrote."""

import gzip
import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from analysis.trace import summarise
from analysis.trace_events import events
from results.profile import TraceSummary

EXCERPTS = Path(__file__).with_name("traces")  # of the CPU rigs, cut to two steps; process 1, thread 1
HOST, STREAM, COPY_STREAM = 1, 7, 8

Event = dict[str, Any]

_NUMBERS = count(1)


def span(category: str, name: str, start: float, end: float, **more: Any) -> Event:
    """An event from `start` to `end`, in microseconds, of the host's one thread."""
    event = {"ph": "X", "cat": category, "name": name, "pid": HOST, "tid": HOST, "ts": start}
    return {**event, "dur": end - start, **more}


def op(name: str, start: float, end: float) -> Event:
    return span("cpu_op", name, start, end)


def mark(name: str, start: float, end: float) -> Event:
    return span("user_annotation", name, start, end)


def decode(start: float, end: float) -> list[Event]:
    """A step of SGLang without speculation."""
    return [mark("scheduler.run_batch", start, end), mark("step[DECODE bs=1]", start, end)]


def kernel(name: str, launched: float, start: float, end: float, stream: int = STREAM) -> list[Event]:
    """A kernel of device 0, and the call on the host that launched it."""
    category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    number = next(_NUMBERS)
    args = {"correlation": number, "device": 0, "stream": stream}
    return [
        span("cuda_runtime", "cudaLaunchKernel", launched, launched + 1, args={"correlation": number}),
        span(category, name, start, end, pid=0, tid=stream, args=args),
    ]


def as_bytes(trace: Sequence[Event]) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": list(trace)}).encode()


def summary(trace: Sequence[Event]) -> TraceSummary:
    return summarise(events([as_bytes(trace)]))


def excerpt(name: str) -> list[Event]:
    content = gzip.decompress((EXCERPTS / f"{name}.trace.json.gz").read_bytes())
    found: list[Event] = json.loads(content)["traceEvents"]
    return found
