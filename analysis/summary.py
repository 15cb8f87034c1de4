"""From raw Requests to the Measurement of one arm in one Cell."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median
from types import MappingProxyType

from analysis.goodput import goodput
from analysis.gpu_windows import merged_gpus
from analysis.output import is_degenerate
from analysis.statistics import quantiles, ratio
from results.reasons import Reason
from results.records import Acceptance, Cell, Failure, Measurement, Request, Telemetry

MAX_WAITING_SHARE = 0.05  # of gauge samples in which the server let requests wait
MIN_CONCURRENCY_SHARE = 0.95  # of the concurrency asked for

NO_BOUNDS: Mapping[str, float] = MappingProxyType({})

Window = tuple[float, float]  # start and end, seconds since the load began


def summarise(
    cell: Cell,
    requests: Sequence[Request],
    wall_s: float,
    acceptance: Acceptance,
    telemetry: Telemetry,
    *,
    max_tokens: int | None,
    bounds: Mapping[str, float] = NO_BOUNDS,
    capacity_limited: str = "",
) -> Measurement:
    """Summary of the Requests of one Cell, sent from second 0 to `wall_s`.

    Tokens come from usage only: one successful request without usage and there is no token figure.
    Throughput counts the tokens of the steady window (see steady_window); `output_tokens` is that
    count, rounded. Latencies are those of every successful request. No figure is NaN or infinite.
    `bounds` are those of a request that counts for the goodput (see analysis.goodput).
    """
    good = [r for r in requests if r.error is None]
    errors = [r.error for r in requests if r.error is not None]
    window = steady_window(requests, requested_concurrency(cell), wall_s)
    wall = window[1] - window[0]
    tokens = tokens_within(good, window)
    goodput_per_s, within_limits_share = goodput(requests, window, bounds)
    return Measurement(
        cell=cell,
        requests=len(requests),
        failed=len(errors),
        first_error=errors[0] if errors else None,
        output_tokens=None if tokens is None else round(tokens),
        wall_s=wall,
        tokens_per_s=None if tokens is None else ratio(tokens, wall),
        mean_request_tokens_per_s=_mean(_request_rates(good)),
        ttft_s=quantiles([r.ttft_s for r in good if r.ttft_s is not None]),
        tpot_s=quantiles([r.tpot_s for r in good if r.tpot_s is not None]),
        chunk_gap_s=quantiles([b - a for r in good for a, b in pairwise(r.chunk_s)]),
        end_to_end_s=quantiles([r.end_to_end_s for r in good]),
        concurrency=achieved_concurrency(requests, window),
        empty_share=_share(not r.text.strip() for r in good),
        truncated_share=_share(_is_truncated(r, max_tokens) for r in good),
        degenerate_share=_share(is_degenerate(r.reasoning_text + r.text, None) for r in good),
        tokens_by_prompt=tokens_by_prompt(good),
        acceptance=acceptance,
        telemetry=telemetry,
        goodput_per_s=goodput_per_s,
        within_limits_share=within_limits_share,
        prompt_tokens=_median([r.prompt_tokens for r in good if r.prompt_tokens is not None]),
        capacity_limited=capacity_limited,
    )


def in_one_window(turns: Sequence[tuple[Sequence[Request], float]]) -> tuple[Request, ...]:
    """Requests of several turns (with the wall time of each) as if the turns had followed without a break."""
    moved, offset_s = [], 0.0
    for requests, wall_s in turns:
        moved += [_later(request, offset_s) for request in requests]
        offset_s += wall_s
    return tuple(moved)


def _later(request: Request, offset_s: float) -> Request:
    if offset_s == 0:
        return request
    first_byte_s = None if request.first_byte_s is None else request.first_byte_s + offset_s
    return replace(
        request,
        scheduled_s=request.scheduled_s + offset_s,
        sent_s=request.sent_s + offset_s,
        first_byte_s=first_byte_s,
        chunk_s=[at_s + offset_s for at_s in request.chunk_s],
        ended_s=request.ended_s + offset_s,
    )


def merged_telemetry(turns: Sequence[Telemetry]) -> Telemetry:
    """One window of several: figures averaged by wall time, memory at its peak; unknown if any is."""
    if len(turns) < 2:
        return turns[0] if turns else Telemetry(0.0)
    wall_s = sum(t.wall_s for t in turns)

    def mean(figures: Sequence[float | None]) -> float | None:
        known = [f * t.wall_s for f, t in zip(figures, turns, strict=True) if f is not None]
        return sum(known) / wall_s if len(known) == len(turns) else None

    memory = [t.server_memory_bytes for t in turns if t.server_memory_bytes is not None]
    return Telemetry(
        wall_s=wall_s,
        server_cores=mean([t.server_cores for t in turns]),
        client_cores=mean([t.client_cores for t in turns]),
        foreign_cores=mean([t.foreign_cores for t in turns]),
        stolen_cores=mean([t.stolen_cores for t in turns]),
        cpu_pressure=mean([t.cpu_pressure for t in turns]),
        memory_pressure=mean([t.memory_pressure for t in turns]),
        server_memory_bytes=max(memory, default=None),
        frequency_hz=mean([t.frequency_hz for t in turns]),
        cores=turns[0].cores,
        gpus=merged_gpus(turns),
        gpu_mismatch=next((t.gpu_mismatch for t in turns if t.gpu_mismatch), ""),
    )


def requested_concurrency(cell: Cell) -> int | None:
    """n of a closed(n) pace; None for open loops."""
    found = re.fullmatch(r"closed\((\d+)\)", cell.pace.replace(" ", ""))
    return int(found.group(1)) if found else None


def steady_window(requests: Sequence[Request], concurrency: int | None, wall_s: float) -> Window:
    """The part of the load that counts, without ramp and drain.

    closed(1): all of it. closed(n): from the first to the last moment with n requests in flight;
    short dips between, while the client sends the next, belong to it. Open loop: from the first
    reply completed to the last request sent. If there is no such part (n was never reached, or too
    few requests): all of it; the achieved concurrency or the minimum window then tells.
    """
    whole = (0.0, wall_s)
    if concurrency == 1 or not requests:
        return whole
    if concurrency is None:
        window = (min(r.ended_s for r in requests), max(r.sent_s for r in requests))
    else:
        window = _time_with_at_least(concurrency, requests) or whole
    return window if window[1] > window[0] else whole


def _time_with_at_least(n: int, requests: Sequence[Request]) -> Window | None:
    steps = list(_in_flight(requests))
    reached = [at for at, count in steps if count >= n]
    left = [after for (_, count), (after, _) in pairwise(steps) if count >= n]
    return (reached[0], left[-1]) if reached else None


def _in_flight(requests: Sequence[Request]) -> Iterable[tuple[float, int]]:
    """(time, requests in flight from then on), in time order; an end comes before a start at once."""
    events = sorted([(r.ended_s, -1) for r in requests] + [(r.sent_s, 1) for r in requests])
    count = 0
    for at, step in events:
        count += step
        yield at, count


def max_in_flight(requests: Sequence[Request]) -> int:
    """Most requests open at one time; one that starts when another ends does not overlap it."""
    return max((count for _, count in _in_flight(requests)), default=0)


def achieved_concurrency(requests: Sequence[Request], window: Window | None = None) -> float:
    """Mean number of requests in flight, from timestamps; without a window, from first to last."""
    if not requests:
        return 0.0
    start, end = window or (min(r.sent_s for r in requests), max(r.ended_s for r in requests))
    open_s = sum(max(0.0, min(r.ended_s, end) - max(r.sent_s, start)) for r in requests)
    return ratio(open_s, end - start) or 0.0


def total_output_tokens(requests: Sequence[Request]) -> int | None:
    """Tokens of all successful requests; None if there is none or one came without usage."""
    counts = [r.output_tokens for r in requests if r.error is None]
    known = [n for n in counts if n is not None]
    return sum(known) if known and len(known) == len(counts) else None


def tokens_within(requests: Sequence[Request], window: Window) -> float | None:
    """Output tokens of successful requests that arrived in the window, edges included.

    A request that straddles an edge counts by the share of its chunks inside, each chunk weighing
    the same; one without chunks counts when it ended. None if any request came without usage.
    """
    if total_output_tokens(requests) is None:
        return None
    return math.fsum(_tokens_within(r, window) for r in requests if r.error is None)


def _tokens_within(request: Request, window: Window) -> float:
    start, end = window
    times = request.chunk_s if len(request.chunk_s) else (request.ended_s,)
    inside = sum(start <= t <= end for t in times)
    return (request.output_tokens or 0) * inside / len(times)


def tokens_by_prompt(requests: Sequence[Request]) -> dict[str, int]:
    """Output tokens of every successful request by prompt id; the second visit is `id#2` and so on."""
    visits: dict[str, int] = {}
    counts: dict[str, int] = {}
    for r in sorted(requests, key=lambda r: r.scheduled_s):
        if r.error is None and r.output_tokens is not None:
            visits[r.prompt_id] = visit = visits.get(r.prompt_id, 0) + 1
            counts[r.prompt_id if visit == 1 else f"{r.prompt_id}#{visit}"] = r.output_tokens
    return counts


def capacity_limited(
    running: Sequence[float], waiting: Sequence[float], requested: int | None
) -> Failure | None:
    """Whether the server could not admit the load, from gauge samples of the window; None = no sign.

    `waiting` decides if it was sampled (requests waited in more than 5 % of samples); else the mean
    of `running` against the concurrency requested.
    """
    if waiting:
        share = _share(w > 0 for w in waiting)
        running_mean = f", {fmean(running):.1f} running on average" if running else ""
        evidence = f"requests waited in {share:.1%} of {len(waiting)} samples{running_mean}"
        return Failure(Reason.CAPACITY_LIMITED, evidence) if share > MAX_WAITING_SHARE else None
    if running and requested and fmean(running) < MIN_CONCURRENCY_SHARE * requested:
        evidence = f"{fmean(running):.1f} running on average of {requested} requested"
        return Failure(Reason.CAPACITY_LIMITED, evidence)
    return None


def _request_rates(requests: Sequence[Request]) -> list[float]:
    rates = [ratio(r.output_tokens or 0, r.ended_s - r.sent_s) for r in requests]
    known = all(r.output_tokens is not None for r in requests)
    return [rate for rate in rates if rate is not None] if known else []


def _is_truncated(request: Request, max_tokens: int | None) -> bool:
    if request.finish_reason is not None:
        return request.finish_reason == "length"
    return max_tokens is not None and (request.output_tokens or 0) >= max_tokens


def _share(flags: Iterable[bool]) -> float:
    seen = list(flags)
    return sum(seen) / len(seen) if seen else 0.0


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _median(values: Sequence[float]) -> float | None:
    return float(median(values)) if values else None


def requests_by_cell(
    measurements: Sequence[Measurement], requests: Sequence[Request]
) -> dict[Cell, Sequence[Request]]:
    """Requests are kept in the order of the Cells; empty if there are more or fewer than were counted."""
    if sum(m.requests for m in measurements) != len(requests):
        return {}
    found, begin = dict[Cell, Sequence[Request]](), 0
    for measurement in measurements:
        found[measurement.cell] = requests[begin : begin + measurement.requests]
        begin += measurement.requests
    return found
