"""The load client measures itself against a canned server before it judges anyone."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.records import Request
from sweeps.canned import canned_server
from sweeps.load import Job, Target, drive
from sweeps.pace import Closed

_STREAMS = 64
_CHUNKS_PER_S = 100.0  # of one stream
_CHUNKS = 50  # of one stream: half a second


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the load client costs on this machine, now."""

    chunks_per_cpu_s: float
    overhead_s_per_chunk: float  # CPU time of the client for one chunk
    timing_error_p99_s: float  # how late a chunk is seen, beyond the quickest one


def calibrate() -> Calibration:
    """Measure the client for about a second. Raises MeasurementInvalid if it misses anything."""
    target_path = "/v1/chat/completions"
    with canned_server() as url:
        drive(Target(url, target_path), [_job("warm-up", 1)], Closed(1))
        jobs = [_job(str(number), _CHUNKS) for number in range(_STREAMS)]
        result = drive(Target(url, target_path), jobs, Closed(_STREAMS))
    chunks = sum(len(request.chunk_s) for request in result.requests)
    if chunks != _STREAMS * _CHUNKS:
        wrong = next((r.error for r in result.requests if r.error), None)
        evidence = f"saw {chunks} of {_STREAMS * _CHUNKS} chunks of a canned server ({wrong})"
        raise MeasurementInvalid(Reason.CLIENT_OVERHEAD, evidence)
    late_s = lateness_s(result.requests)
    return Calibration(
        chunks_per_cpu_s=chunks / result.client_cpu_s,
        overhead_s_per_chunk=result.client_cpu_s / chunks,
        timing_error_p99_s=late_s[int(0.99 * (chunks - 1))] - late_s[0],
    )


def lateness_s(requests: Sequence[Request]) -> list[float]:
    """Arrival minus writing of every chunk of a canned server, sorted; only differences mean anything."""
    return sorted(
        at_s - float(stamp)
        for request in requests
        for at_s, stamp in zip(request.chunk_s, request.text.split(), strict=True)
    )


def _job(name: str, chunks: int) -> Job:
    body = json.dumps({"max_tokens": chunks, "chunks_per_s": _CHUNKS_PER_S}).encode()
    return Job(name, "calibration", body)
