"""Whether a GPU has warmed up: a cold one runs faster than it will once it is hot."""

from collections.abc import Sequence
from statistics import fmean

from results.records import GpuSample

SPAN_S = 5.0  # looked at: a shorter one is flat by itself
MAX_RISE_C = 0.5  # between the means of its halves; drivers tell whole degrees
MAX_CLOCK_CHANGE = 0.02


def still_changing(samples: Sequence[GpuSample], span_s: float = SPAN_S) -> str:
    """What of the GPUs is not flat over the last seconds; "" = nothing, as far as the driver tells.

    `samples` are in order of time, of one or several GPUs under load without a pause.
    """
    end = samples[-1].sampled_at if samples else 0.0
    if samples and end - samples[0].sampled_at < span_s:
        return "seen for too short a time"
    last = [s for s in samples if s.sampled_at >= end - span_s]
    gpus = [[s for s in last if s.uuid == uuid] for uuid in dict.fromkeys(s.uuid for s in last)]
    if any(_temperature_moves(of_one, end - span_s / 2) for of_one in gpus):
        return "temperature"
    return "clock" if any(_clock_moves(of_one, end - span_s / 2) for of_one in gpus) else ""


def _temperature_moves(samples: Sequence[GpuSample], middle: float) -> bool:
    before, after = _halves([(s.sampled_at, s.temperature_c) for s in samples], middle)
    return bool(before and after) and abs(fmean(after) - fmean(before)) > MAX_RISE_C


def _clock_moves(samples: Sequence[GpuSample], middle: float) -> bool:
    before, after = _halves([(s.sampled_at, s.sm_clock_hz) for s in samples], middle)
    return bool(before and after) and abs(fmean(after) - fmean(before)) > MAX_CLOCK_CHANGE * fmean(before)


def _halves(values: Sequence[tuple[float, float | None]], middle: float) -> tuple[list[float], list[float]]:
    known = [(at, value) for at, value in values if value is not None]
    return [v for at, v in known if at < middle], [v for at, v in known if at >= middle]
