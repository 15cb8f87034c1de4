"""The client's measurement of itself."""

import os

import pytest

from sweeps.calibrate import Calibration, calibrate, lateness_s, overhead_share
from sweeps.canned import canned_server
from sweeps.load import Job, Target, drive
from sweeps.pace import Closed

CALIBRATION = Calibration(
    chunks_per_cpu_s=100_000, overhead_s_per_chunk=1e-5, timing_error_p99_s=0.001, cores=4
)


def test_the_client_measures_itself() -> None:
    calibration = calibrate()
    assert calibration.overhead_s_per_chunk == pytest.approx(1 / calibration.chunks_per_cpu_s)
    assert calibration.chunks_per_cpu_s > 0
    assert calibration.timing_error_p99_s >= 0
    assert 1 <= calibration.cores <= (os.cpu_count() or 1)


def test_overhead_is_the_share_of_all_cores_until_the_client_is_half_busy() -> None:
    assert overhead_share(0, 10.0, CALIBRATION) == 0.0
    assert overhead_share(40_000, 10.0, CALIBRATION) == pytest.approx(0.04 / 4)
    assert overhead_share(499_999, 10.0, CALIBRATION) == pytest.approx(0.5 / 4, rel=1e-3)
    assert overhead_share(500_000, 10.0, CALIBRATION) == pytest.approx(0.5)


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
