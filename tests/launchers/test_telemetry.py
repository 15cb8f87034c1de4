"""Whose CPU time it was: checked against processes whose use is known."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from launchers.telemetry import HostWindow, pressure_s
from tests.waiting import wait_for

SPIN = "while True: pass"


def spun(pid: int) -> float:
    return float(psutil.Process(pid).cpu_times().user)


def test_work_is_booked_on_its_owner() -> None:
    server = subprocess.Popen([sys.executable, "-S", "-c", SPIN])
    try:
        before = spun(server.pid)
        with HostWindow(lambda: (server.pid,)) as window:
            wait_for(lambda: spun(server.pid) >= before + 0.3)
        seen, used = window.telemetry, spun(server.pid) - before
        assert seen.server_cores is not None
        assert 0.25 <= seen.server_cores * seen.wall_s <= used
        assert seen.server_memory_bytes is not None
        assert seen.server_memory_bytes > 1_000_000
        # The same work, when nobody says that it is the server's.
        before = spun(server.pid)
        with HostWindow(lambda: (os.getppid(),)) as window:
            wait_for(lambda: spun(server.pid) >= before + 0.3)
        assert window.telemetry.foreign_cores is not None
        assert window.telemetry.foreign_cores * window.telemetry.wall_s >= 0.2
    finally:
        server.kill()
        server.wait()


def test_the_clients_own_work() -> None:
    with HostWindow(lambda: ()) as window:
        begin = time.process_time()
        while time.process_time() < begin + 0.2:
            pass
    seen = window.telemetry
    assert seen.client_cores is not None
    assert seen.client_cores * seen.wall_s >= 0.2
    assert (seen.server_cores, seen.foreign_cores, seen.server_memory_bytes) == (None, None, None)


def test_a_server_that_ends_inside_the_window_keeps_what_it_used() -> None:
    server = subprocess.Popen([sys.executable, "-S", "-c", SPIN])
    with HostWindow(lambda: (server.pid,), period_s=0.02) as window:
        wait_for(lambda: spun(server.pid) >= 0.3)
        time.sleep(0.1)
        server.kill()
        server.wait()
    assert window.telemetry.server_cores is not None
    assert window.telemetry.server_cores > 0


def test_pressure_is_read_in_seconds(tmp_path: Path) -> None:
    (tmp_path / "cpu").write_text(
        "some avg10=1.53 avg60=0.87 avg300=0.20 total=2500000\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    )
    assert pressure_s("cpu", tmp_path) == 2.5


def test_a_system_without_pressure_or_steal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert pressure_s("cpu", tmp_path) is None
    monkeypatch.setattr("launchers.telemetry.pressure_s", lambda resource: None)
    times = type("Times", (), {"user": 1.0, "system": 1.0})
    monkeypatch.setattr(psutil, "cpu_times", times)
    with HostWindow(lambda: ()) as window:
        pass
    seen = window.telemetry
    assert (seen.stolen_cores, seen.cpu_pressure, seen.memory_pressure) == (None, None, None)


def test_a_server_that_is_measured_beside_is_neither_ours_nor_foreign() -> None:
    beside = subprocess.Popen([sys.executable, "-S", "-c", SPIN])
    idle = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    try:
        before = spun(beside.pid)
        alone = HostWindow(lambda: (idle.pid,))
        company = HostWindow(lambda: (idle.pid,), beside=lambda: (beside.pid,))
        with alone, company:
            wait_for(lambda: spun(beside.pid) >= before + 0.5)
        seen = [w.telemetry for w in (alone, company)]
        foreign_s = [(t.foreign_cores or 0.0) * t.wall_s for t in seen]
        assert foreign_s[0] - foreign_s[1] >= 0.3
        assert all(t.server_cores is not None and t.server_cores * t.wall_s < 0.2 for t in seen)
    finally:
        beside.kill()
        idle.kill()
