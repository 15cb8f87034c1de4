"""The second section of the doctor, on this machine as it is and with a left-over of one's own."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchers.leftovers import created_at
from results.wiring import Step
from sweeps.doctor.state import section
from tests.nvml import Scripted, gpu

SLEEPS = "import time; print(flush=True); time.sleep(600)"


@pytest.fixture
def named() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this test under an engine's name, in the session of the test."""
    argv = ["sglang::scheduler_TP0", "-c", SLEEPS]
    process = subprocess.Popen(argv, executable=sys.executable, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_a_worker_that_somebody_keeps_is_seen_and_not_proposed(named: subprocess.Popen[bytes]) -> None:
    found = section()
    assert found.step is Step.STATE
    assert any(f"worker sglang::scheduler_TP0 (pid {named.pid}, " in line for line in found.seen)
    assert not any(line.startswith(f"kill {named.pid} ") for line in found.follows)
    assert named.poll() is None
    assert created_at(named.pid) is not None


def test_a_gpu_held_by_a_process_that_is_gone(nvml: Scripted) -> None:
    nvml(gpu())
    found = section()
    assert any("GPU 0 RTX 4090: 21.5 GB of 25.8 GB used" in line for line in found.seen)
    assert any("21.5 GB on GPU 0 are held by pid" in line for line in found.follows)


def test_a_folder_without_servers_adds_nothing(tmp_path: Path) -> None:
    assert not any("tuner reap" in line for line in section([tmp_path]).follows)
