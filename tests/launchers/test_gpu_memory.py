"""GPU memory and who holds it, on the scripted driver."""

import os

import pytest

from launchers import orphans
from launchers.gpu_memory import driver_state
from launchers.nvml import Driver
from results.machine_state import GpuHolder
from tests.nvml import ABSENT, Scripted, gpu

GB = 2**30


def test_a_healthy_gpu_and_its_holders(nvml: Scripted) -> None:
    nvml(gpu(processes=f"{os.getpid()}:{4 * GB},{ABSENT + 1}:{15 * GB}", reasons=1))
    state = driver_state()
    (found,) = state.gpus
    assert (state.version, state.cuda, state.absent) == ("610.43", "13.1", "")
    assert (found.index, found.uuid, found.name) == (0, "GPU-aaaa", "RTX 4090")
    assert (found.used_bytes, found.total_bytes) == (20 * GB, 24 * GB)
    assert found.holders is not None
    here, gone = found.holders
    assert (here.pid, here.memory_bytes, here.exists, bool(here.name)) == (os.getpid(), 4 * GB, True, True)
    assert gone == GpuHolder(ABSENT + 1, 15 * GB, False)
    assert (found.ecc_errors, found.throttled, found.persistence, found.refused) == (0, (), True, ())


@pytest.mark.parametrize(("namespace", "expected"), [(orphans.FIRST_NAMESPACE, True), ("pid:[1]", False)])
def test_pids_of_a_driver_are_those_of_the_first_namespace(
    nvml: Scripted, monkeypatch: pytest.MonkeyPatch, namespace: str, expected: bool
) -> None:
    """Elsewhere they are ours only if all of them exist."""
    monkeypatch.setattr(orphans, "_namespace", lambda pid: namespace)
    nvml(gpu(processes=f"{os.getpid()}:1,{ABSENT}:1"))
    assert driver_state().counts_as_here is expected


def test_a_gpu_that_holds_nothing(nvml: Scripted) -> None:
    nvml(gpu(processes=""))
    state = driver_state()
    assert state.gpus[0].holders == ()
    assert state.counts_as_here is None


def test_what_a_driver_refuses_is_named(nvml: Scripted) -> None:
    nvml(gpu(memory_used=None, processes="!4", ecc=None, reasons=None))
    (found,) = driver_state().gpus
    assert (found.used_bytes, found.holders, found.ecc_errors) == (None, None, None)
    assert set(found.refused) == {
        "memory used: NotSupported",
        "processes: NoPermission",
        "clocks: NotSupported",
    }


def test_slowed_down_by_heat(nvml: Scripted) -> None:
    nvml(gpu(reasons=0x41))
    assert driver_state().gpus[0].throttled == ("hw_thermal_slowdown",)


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launchers.gpu_memory.driver", lambda: Driver(absent="LibraryNotFound"))
    state = driver_state()
    assert (state.absent, state.gpus, state.counts_as_here) == ("LibraryNotFound", (), None)
