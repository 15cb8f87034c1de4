"""The client's measurement of itself."""

import pytest

from sweeps.calibrate import calibrate, lateness_s
from sweeps.canned import canned_server
from sweeps.load import Job, Target, drive
from sweeps.pace import Closed


def test_the_client_measures_itself() -> None:
    calibration = calibrate()
    assert calibration.overhead_s_per_chunk == pytest.approx(1 / calibration.chunks_per_cpu_s)
    assert calibration.chunks_per_cpu_s > 0
    assert calibration.timing_error_p99_s >= 0


def test_every_chunk_of_a_canned_stream_is_seen_in_order_with_its_time() -> None:
    job = Job("p", "c", b'{"max_tokens": 20, "chunks_per_s": 1000}')
    with canned_server() as url:
        result = drive(Target(url, "/v1/chat/completions"), [job] * 6, Closed(3))
    for request in result.requests:
        stamps = [float(stamp) for stamp in request.text.split()]
        assert (request.error, request.output_tokens, len(stamps)) == (None, 20, 20)
        assert stamps == sorted(stamps)
        assert len(request.chunk_s) == 20
    assert lateness_s(result.requests) == sorted(lateness_s(result.requests))
