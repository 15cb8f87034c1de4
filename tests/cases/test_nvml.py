"""Published mistakes of reading GPUs: a part without a counter, an index taken for an identity."""

import pytest

from launchers.gpu import GpuWindow
from launchers.gpu_choice import Shown, choose, mismatch, pinned, visible_gpus
from results.records import EnergySource
from tests.nvml import SERVER, Scripted, gpu


def test_case_53_a_part_with_unified_memory_tells_what_it_can(nvml: Scripted) -> None:
    """GB10: no memory figure and no energy counter; power 11170 mW, 35 °C."""
    bare = dict.fromkeys(("memory_total", "power_limit_mw", "default_power_limit_mw", "ecc", "pcie_tx"))
    nvml(gpu(name="NVIDIA_GB10", memory_used="!3", energy_mj="!3", power_mw=11170, temperature=35, **bare))
    with GpuWindow(lambda: (SERVER,), {}) as window:
        pass
    sample = window.samples[0]
    assert sample.memory_bytes is None
    assert sample.power_w == 11.17
    assert sample.temperature_c == 35
    (found,) = window.gpus
    assert found.memory_bytes is None
    assert (found.unknown["memory_bytes"], found.unknown["energy_j"]) == ("NotSupported", "NotSupported")
    assert found.shared_memory_bytes is not None  # of /proc/meminfo, under a name of its own
    assert found.energy_source is EnergySource.INTEGRATED_POWER
    assert found.energy_j is not None
    assert found.energy_j > 0


def test_kin_of_case_53_a_gpu_that_may_not_be_asked(nvml: Scripted) -> None:
    """In a container without the rights, under an old driver: a name for each refusal."""
    nvml(gpu(energy_mj="!4", ecc="!13", memory_used="!4"))
    with GpuWindow(lambda: (SERVER,), {}) as window:
        pass
    (found,) = window.gpus
    assert (found.memory_bytes, found.shared_memory_bytes, found.ecc_errors) == (None, None, None)
    refused = {"energy_j": "NoPermission", "ecc_errors": "FunctionNotFound", "memory_bytes": "NoPermission"}
    assert found.unknown == refused


P40, RTX = Shown(0, "GPU-aaaa", "Tesla P40"), Shown(1, "GPU-bbbb", "RTX 3090", frozenset({4242}))
ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "0"}  # and no CUDA_DEVICE_ORDER: CUDA puts the RTX first
BUSY = {"GPU-aaaa": 0.0, "GPU-bbbb": 0.98}


def test_case_54_the_gpu_of_the_server_is_watched_by_uuid() -> None:
    chosen = choose([P40, RTX], (4242,), visible_gpus([P40, RTX], ENVIRONMENT))
    assert (chosen.uuids, chosen.seen, chosen.mismatch) == (("GPU-bbbb",), True, "")
    assert mismatch(chosen.uuids, [P40, RTX], (4242,), BUSY, 60) == ""
    assert pinned(chosen.uuids) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "GPU-bbbb"}


def test_case_54_watching_the_other_one_is_flagged() -> None:
    flag = mismatch(("GPU-aaaa",), [P40, RTX], (4242,), BUSY, 60)
    assert flag == "GPU_MISMATCH: the server is on GPU-bbbb, not only on GPU-aaaa"


@pytest.mark.parametrize("pids_seen", [True, False])
def test_kin_of_case_54_a_gpu_that_idles_under_load_is_flagged_without_any_pid(pids_seen: bool) -> None:
    unseen = Shown(1, "GPU-bbbb", "RTX 3090")
    flag = mismatch(("GPU-aaaa",), [P40, unseen], (4242,) if pids_seen else (), BUSY, 60)
    assert flag.startswith("GPU_MISMATCH: GPU-aaaa did nothing")
