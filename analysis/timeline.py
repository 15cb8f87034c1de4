"""What happened over the time of a measurement: load and GPUs of two servers, on one clock.

Every Cell begins at the same moment for both, however long each needed for it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from analysis.summary import requests_by_cell
from results.records import ArmRun, Cell, GpuSample, Request

MOST_STEPS = 240  # of all Cells together
_SHORTEST_STEP_S = 0.5
_FEWEST_STEPS = 24
_BREAK_S = 0.5  # GPUs are sampled ten times a second: a longer silence is the turn of another server
_GAP_SHARE = 0.015  # between two Cells, of the whole


@dataclass(frozen=True, slots=True)
class Curve:
    """Means over equal steps of time: `begins_s` of the first; None = not known, or the load had ended."""

    begin_s: float
    step_s: float
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Track:
    """One figure of one server over time, Cell by Cell."""

    figure: str  # "tokens_per_s", "in_flight", "power_w", "sm_clock_hz" or "utilisation"
    arm: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """The time of one Cell in a timeline."""

    label: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """One Block over time. Seconds of load; the time between the Cells is left out."""

    block: int
    arms: tuple[str, ...]  # the reference first
    spans: tuple[Span, ...]
    tracks: tuple[Track, ...]

    def of(self, figure: str) -> list[Track]:
        return [track for track in self.tracks if track.figure == figure]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was kept of one arm: `run` and its raw records, as they were written."""

    name: str
    run: ArmRun
    requests: Sequence[Request]
    samples: Sequence[GpuSample]


def timeline(block: int, arms: Sequence[Recorded]) -> Timeline | None:
    """None if the raw records are gone, or do not fit the arm that they belong to."""
    split = [requests_by_cell(arm.run.measurements, arm.requests) for arm in arms]
    cells = [cell for cell in split[0] if all(found.get(cell) for found in split)] if split else []
    if not cells:
        return None
    lengths = [max(r.ended_s for found in split for r in found[cell]) for cell in cells]
    spans, whole_s = _spans(cells, lengths), sum(lengths)
    step_s = max(whole_s / MOST_STEPS, min(_SHORTEST_STEP_S, whole_s / _FEWEST_STEPS))
    tracks = [
        track
        for arm, found in zip(arms, split, strict=True)
        for track in _tracks(
            arm, [(span, found[cell]) for span, cell in zip(spans, cells, strict=True)], step_s
        )
    ]
    return Timeline(block, tuple(arm.name for arm in arms), tuple(spans), tuple(tracks))


def _spans(cells: Sequence[Cell], lengths: Sequence[float]) -> list[Span]:
    gap_s, begin_s, spans = _GAP_SHARE * sum(lengths), 0.0, list[Span]()
    for cell, length_s in zip(cells, lengths, strict=True):
        spans.append(Span(cell.label, begin_s, begin_s + length_s))
        begin_s += length_s + gap_s
    return spans


def _tracks(arm: Recorded, parts: Sequence[tuple[Span, Sequence[Request]]], step_s: float) -> list[Track]:
    loads = {
        "tokens_per_s": [_curve(span, _tokens_per_s(sent, step_s), step_s) for span, sent in parts],
        "in_flight": [_curve(span, _in_flight(sent, step_s), step_s) for span, sent in parts],
    }
    gpus = [(span, _moments(arm.samples, span.label)) for span, _ in parts]
    for figure, read in _OF_GPUS.items():
        loads[figure] = [_curve(span, _of_gpus(seen, step_s, read), step_s) for span, seen in gpus]
    return [Track(figure, arm.name, tuple(curves)) for figure, curves in loads.items() if _is_known(curves)]


def _curve(span: Span, values: Iterable[float | None], step_s: float) -> Curve:
    return Curve(span.begin_s, step_s, tuple(values))


def _is_known(curves: Iterable[Curve]) -> bool:
    return any(value is not None for curve in curves for value in curve.values)


def _steps(requests: Sequence[Request], step_s: float) -> list[float]:
    """How long each step is: the last one ends with the load."""
    end_s = max(r.ended_s for r in requests)
    whole = max(1, math.ceil(end_s / step_s - 1e-9))
    return [min(step_s, end_s - i * step_s) or step_s for i in range(whole)]


def _tokens_per_s(requests: Sequence[Request], step_s: float) -> list[float | None]:
    """Each piece of text of a reply weighs the same. Unknown if a reply came without usage."""
    steps = _steps(requests, step_s)
    answered = [r for r in requests if r.error is None]
    if any(r.output_tokens is None for r in answered):
        return [None] * len(steps)
    tokens = [0.0] * len(steps)
    for request in answered:
        times = request.chunk_s if len(request.chunk_s) else (request.ended_s,)
        for at_s in times:
            tokens[min(int(at_s / step_s), len(steps) - 1)] += (request.output_tokens or 0) / len(times)
    return [count / length_s for count, length_s in zip(tokens, steps, strict=True)]


def _in_flight(requests: Sequence[Request], step_s: float) -> list[float | None]:
    """Mean number of open requests in each step."""
    steps = _steps(requests, step_s)
    open_s = [0.0] * len(steps)
    for request in requests:
        for i in range(int(request.sent_s / step_s), min(int(request.ended_s / step_s) + 1, len(steps))):
            begin_s = i * step_s
            open_s[i] += max(0.0, min(request.ended_s, begin_s + steps[i]) - max(request.sent_s, begin_s))
    return [seconds / length_s for seconds, length_s in zip(open_s, steps, strict=True)]


@dataclass(frozen=True, slots=True)
class _Moment:
    at_s: float  # since the load of its Cell began
    sample: GpuSample


def _moments(samples: Sequence[GpuSample], cell: str) -> list[_Moment]:
    """The samples of one Cell; turns of other servers between them are taken out, as with the requests."""
    own = sorted((s for s in samples if s.cell == cell), key=lambda s: s.sampled_at)
    moments, at_s = [_Moment(0.0, s) for s in own[:1]], 0.0
    for before, sample in pairwise(own):
        passed_s = sample.sampled_at - before.sampled_at
        at_s += passed_s if passed_s < _BREAK_S else 0.0
        moments.append(_Moment(at_s, sample))
    return moments


def _of_gpus(
    moments: Sequence[_Moment], step_s: float, read: Callable[[Sequence[GpuSample]], float | None]
) -> list[float | None]:
    steps: list[list[GpuSample]] = [[] for _ in range(1 + int(moments[-1].at_s / step_s) if moments else 0)]
    for moment in moments:
        steps[int(moment.at_s / step_s)].append(moment.sample)
    return [read(found) if found else None for found in steps]


def _each_gpu(
    samples: Sequence[GpuSample], field: Callable[[GpuSample], float | None]
) -> Mapping[str, float] | None:
    """Mean of one figure of each GPU; None if the driver did not tell it."""
    by_gpu: dict[str, list[float]] = {}
    for sample in samples:
        value = field(sample)
        if value is None:
            return None
        by_gpu.setdefault(sample.uuid, []).append(value)
    return {uuid: fmean(values) for uuid, values in by_gpu.items()}


def _power_w(samples: Sequence[GpuSample]) -> float | None:
    found = _each_gpu(samples, lambda s: s.power_w)
    return sum(found.values()) if found else None


def _slowest_hz(samples: Sequence[GpuSample]) -> float | None:
    found = _each_gpu(samples, lambda s: s.sm_clock_hz)
    return min(found.values()) if found else None


def _utilisation(samples: Sequence[GpuSample]) -> float | None:
    found = _each_gpu(samples, lambda s: s.utilisation)
    return fmean(found.values()) if found else None


_OF_GPUS: Mapping[str, Callable[[Sequence[GpuSample]], float | None]] = {
    "power_w": _power_w,
    "sm_clock_hz": _slowest_hz,
    "utilisation": _utilisation,
}
