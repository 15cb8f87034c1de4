"""Two equal parts of a machine: what may be named, and what a server is given of it."""

import os
import sys
from pathlib import Path

import pytest

from launchers.gpu_choice import Shown
from launchers.hardware_sets import HardwareSet, core_sets, gpu_sets, on_hardware
from launchers.launcher import Launch
from launchers.port import free_port
from launchers.process import ProcessLauncher
from results.errors import UsageError
from tests.waiting import wait_for

H200 = [Shown(i, f"GPU-{i}{i}", "NVIDIA H200") for i in range(4)]


def gpus(*found: HardwareSet) -> list[tuple[str, ...]]:
    return [one.gpus for one in found]


def test_by_default_the_halves_of_all_there_are() -> None:
    assert gpus(*gpu_sets(H200, {})) == [("GPU-00", "GPU-11"), ("GPU-22", "GPU-33")]


def test_what_a_cluster_gave_is_halved() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "1,3"}
    assert gpus(*gpu_sets(H200, environment)) == [("GPU-11",), ("GPU-33",)]
    assert gpus(*gpu_sets((), environment)) == [("1",), ("3",)]  # nothing shows their UUIDs


def test_gpus_of_a_container_are_halved() -> None:
    assert gpus(*gpu_sets(H200, {}, container=["0", "GPU-22"])) == [("GPU-00",), ("GPU-22",)]


def test_sets_are_named_by_index_or_uuid() -> None:
    assert gpus(*gpu_sets(H200, {}, [[0, "GPU-1"], ["3", "GPU-22"]])) == [
        ("GPU-00", "GPU-11"),
        ("GPU-33", "GPU-22"),
    ]
    assert gpus(*gpu_sets((), {}, [[0], [1]])) == [("0",), ("1",)]


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ([[0], [1, 2]], "same size"),
        ([[], []], "same size"),
        ([[0, 1], [1, 2]], "twice"),
        ([[0], ["GPU-00"]], "in both sets"),
        ([[0], [7]], "7 names no GPU"),
        ([[0], ["GPU-"]], "names 4 GPU"),
    ],
)
def test_sets_that_are_none_are_refused(named: list[list[int | str]], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        gpu_sets(H200, {}, named)


def test_other_cards_are_no_equal_set() -> None:
    mixed = [*H200[:3], Shown(3, "GPU-33", "NVIDIA A100")]
    with pytest.raises(UsageError, match="A100"):
        gpu_sets(mixed, {})
    assert gpus(*gpu_sets(mixed, {}, [[0], [2]])) == [("GPU-00",), ("GPU-22",)]


def test_gpus_of_others_are_not_taken() -> None:
    with pytest.raises(UsageError, match="GPU-00 is not among"):
        gpu_sets(H200, {"CUDA_VISIBLE_DEVICES": "1,2"}, [[0], [1]])


@pytest.mark.parametrize("shown", [(), H200[:1], H200[:3]])
def test_there_must_be_two_halves(shown: list[Shown]) -> None:
    with pytest.raises(UsageError, match="two equal sets"):
        gpu_sets(shown, {})


def test_a_server_gets_its_gpus_by_variables(tmp_path: Path) -> None:
    launch = Launch(("server",), 1, tmp_path / "log", {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "A": "b"})
    assert on_hardware(launch, HardwareSet(gpus=("GPU-22", "GPU-33"))).env == {
        "A": "b",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "GPU-22,GPU-33",
    }
    assert on_hardware(launch, HardwareSet(cores=(1,))).env == launch.env


def test_cores_must_be_ours() -> None:
    core = min(os.sched_getaffinity(0))
    with pytest.raises(UsageError, match="may not run on core 99999"):
        core_sets([[core], [99999]])
    with pytest.raises(UsageError, match="twice"):
        core_sets([[core], [core]])


def test_a_process_and_what_it_starts_run_on_their_cores(tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    code = (
        "import os, subprocess, sys; print(os.sched_getaffinity(0), flush=True); subprocess.run(sys.argv[1:])"
    )
    child = (sys.executable, "-c", "import os; print('child', os.sched_getaffinity(0), flush=True)")
    launch = Launch((sys.executable, "-c", code, *child), free_port(), tmp_path / "log")
    with ProcessLauncher(tmp_path).start(on_hardware(launch, HardwareSet(cores=(core,)))) as endpoint:
        wait_for(lambda: endpoint.exit_code() is not None)
    assert (tmp_path / "log").read_text().split("\n")[:2] == [f"{{{core}}}", f"child {{{core}}}"]
    with ProcessLauncher(tmp_path).start(launch) as endpoint:
        wait_for(lambda: endpoint.exit_code() is not None)
    assert (tmp_path / "log").read_text().splitlines()[0] == str(os.sched_getaffinity(0))
