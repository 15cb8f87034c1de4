"""A server's GPUs during one window, on the scripted library: what is seen, and what when it is not."""

import os
import threading
from collections.abc import Callable, Mapping

import pytest

from launchers.gpu import GpuWindow
from results.records import EnergySource, GpuTelemetry
from tests.nvml import ABSENT, SERVER, STRANGER, Scripted, gpu
from tests.waiting import wait_for

QUICK_HZ = 200.0


def watched(
    samples: int = 5,
    pids: Callable[[], tuple[int, ...]] = lambda: (SERVER,),
    environment: Mapping[str, str] | None = None,
) -> GpuWindow:
    """A window that stayed open for about so many samples of each GPU, or until nothing more came."""
    window = GpuWindow(pids, environment or {}, "chat @ closed(1)", rate_hz=QUICK_HZ)
    with window:
        for watch in window._watches:
            wait_for(lambda w=watch: len(w.samples) >= samples or w._is_lost)  # type: ignore[misc]
    return window


def only(window: GpuWindow) -> GpuTelemetry:
    (found,) = window.gpus
    return found


def test_a_healthy_gpu(nvml: Scripted) -> None:
    nvml(gpu(reasons=4))
    window = watched()
    found = only(window)
    assert (found.uuid, found.name, found.memory_bytes) == ("GPU-aaaa", "RTX 4090", 20 * 2**30)
    assert found.utilisation == pytest.approx(0.98)
    assert (found.power_w, found.power_limit_w, found.default_power_limit_w) == (300.0, 450.0, 450.0)
    assert (found.sm_clock_hz, found.memory_clock_hz, found.temperature_c) == (2.5e9, 1e10, 64)
    assert found.throttled == {"sw_power_cap": 1.0}
    assert (found.ecc_errors, found.xids, found.lost, found.unknown) == (0, (), False, {})
    assert found.samples == len(window.samples) >= 6
    (process,) = found.processes
    assert (process.pid, process.memory_bytes, process.ours) == (SERVER, 20 * 2**30, True)
    assert window.mismatch == ""
    assert {(s.cell, s.uuid, s.throttled) for s in window.samples} == {
        ("chat @ closed(1)", "GPU-aaaa", ("sw_power_cap",))
    }
    assert [s.sampled_at for s in window.samples] == sorted(s.sampled_at for s in window.samples)


def test_energy_comes_from_the_counter_at_the_two_ends(nvml: Scripted) -> None:
    nvml(gpu())
    window = watched()
    found, (watch,) = only(window), window._watches
    assert found.energy_source is EnergySource.COUNTER
    assert found.energy_j == pytest.approx(300.0 * watch.wall_s, rel=0.3)
    assert found.pcie_tx_bytes_per_s == pytest.approx(1e6 / watch.wall_s)  # a million between two readings
    assert found.pcie_rx_bytes_per_s == found.pcie_tx_bytes_per_s


def test_without_a_counter_energy_is_integrated_power_and_says_so(nvml: Scripted) -> None:
    nvml(gpu(energy_mj=None))
    window = watched()
    found, (watch,) = only(window), window._watches
    assert found.energy_source is EnergySource.INTEGRATED_POWER
    assert found.energy_j == pytest.approx(300.0 * watch.wall_s)
    nvml(gpu(energy_mj=None, power_mw="!4"))
    silent = only(watched())
    assert (silent.energy_j, silent.energy_source) == (None, EnergySource.UNKNOWN)
    assert silent.unknown == {"energy_j": "NotSupported", "power_w": "NoPermission"}


def test_every_figure_may_be_refused_and_none_becomes_zero(nvml: Scripted) -> None:
    names = ["utilisation", "memory_used", "power_mw", "power_limit_mw", "default_power_limit_mw", "sm_mhz"]
    names += ["memory_mhz", "temperature", "reasons", "energy_mj", "ecc", "pcie_tx", "pcie_rx", "xid"]
    nvml(gpu(processes="!4", **dict.fromkeys(names, "!3")))
    found = only(watched(pids=lambda: (), environment={"CUDA_VISIBLE_DEVICES": "0"}))
    assert found.unknown.pop("processes") == "NoPermission"  # type: ignore[attr-defined]
    assert set(found.unknown.values()) == {"NotSupported"}
    assert len(found.unknown) == len(names)
    assert all(getattr(found, field) in (None, (), {}) for field in found.unknown)
    assert found.energy_source is EnergySource.UNKNOWN
    assert found.shared_memory_bytes is not None
    assert found.shared_memory_bytes > 0


def test_a_figure_refused_now_and_then_is_known(nvml: Scripted) -> None:
    nvml(gpu(utilisation="!999"))
    window = GpuWindow(lambda: (SERVER,), {}, rate_hz=QUICK_HZ)
    with window:
        (watch,) = window._watches
        wait_for(lambda: len(watch.samples) >= 3)
        assert "utilisation" not in watch._in_vain  # asked again each time
    assert only(window).unknown == {"utilisation": "Unknown"}


def test_a_gpu_that_is_lost_in_mid_window_ends_it_in_order(nvml: Scripted) -> None:
    nvml(gpu(lost_after=4), gpu(uuid="GPU-bbbb", processes=f"{SERVER}:1"))
    lost, healthy = watched(samples=8).gpus
    assert (lost.lost, lost.samples, lost.power_w) == (True, 3, 300.0)
    assert (lost.energy_j, lost.energy_source) == (None, EnergySource.UNKNOWN)
    assert lost.unknown["energy_j"] == "GpuIsLost"
    assert (healthy.lost, healthy.unknown) == (False, {})
    assert healthy.energy_j is not None


def test_a_stranger_is_told_from_the_server(nvml: Scripted) -> None:
    nvml(gpu(processes=f"{SERVER}:100,{STRANGER}:2000,{os.getpid()}:5"))
    server, stranger, other = only(watched(pids=lambda: (SERVER, os.getpid()))).processes
    assert (server.ours, stranger.ours, other.ours) == (True, False, True)
    assert (stranger.pid, stranger.memory_bytes, stranger.name) == (STRANGER, 2000, "")
    assert other.name  # the system shows it


def test_whose_a_process_is_cannot_be_known_where_the_server_is_not_seen(nvml: Scripted) -> None:
    nvml(gpu(processes=f"{STRANGER}:2000"))
    (process,) = only(watched(environment={"CUDA_VISIBLE_DEVICES": "0"})).processes
    assert process.ours is None


def test_a_server_of_another_arm_is_no_stranger(nvml: Scripted) -> None:
    import subprocess

    other = subprocess.Popen(["sleep", "60"])
    try:
        nvml(gpu(processes=f"{SERVER}:100,{other.pid}:200"))
        assert [p.ours for p in only(watched()).processes] == [True, True]
    finally:
        other.kill()
        other.wait()


def test_on_mig_a_neighbour_is_no_stranger(nvml: Scripted) -> None:
    nvml(gpu(mig="MIG-1111", utilisation=None, processes=f"{SERVER}:100,{STRANGER}:200"))
    found = only(watched())
    assert [p.ours for p in found.processes] == [True, None]
    assert found.unknown["utilisation"] == "NotSupported"


def test_a_process_that_came_later_may_be_the_servers(nvml: Scripted) -> None:
    nvml(gpu(processes=f"{SERVER}:100,{SERVER + 1}:200"))
    answers = iter([(SERVER,), (SERVER, SERVER + 1)])
    assert [p.ours for p in only(watched(pids=lambda: next(answers))).processes] == [True, True]


def test_the_gpu_of_the_servers_process_is_watched_whatever_its_number(nvml: Scripted) -> None:
    idle = gpu(uuid="GPU-aaaa", name="Tesla_P40", utilisation=0, processes="")
    busy = gpu(uuid="GPU-bbbb", name="RTX_3090")
    nvml(idle, busy)
    for environment in ({}, {"CUDA_VISIBLE_DEVICES": "0"}):
        window = watched(environment=environment)
        assert (only(window).uuid, window.mismatch) == ("GPU-bbbb", "")
    ordered = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    window = watched(environment=ordered)
    assert only(window).uuid == "GPU-bbbb"
    assert window.mismatch.startswith("GPU_MISMATCH: the environment leaves GPU-aaaa")


def test_errors_of_the_window_are_kept(nvml: Scripted) -> None:
    nvml(gpu(xid=79))
    assert only(watched()).xids == (79,)


def test_a_server_on_the_cpu_beside_idle_gpus_has_none(nvml: Scripted) -> None:
    nvml(gpu(utilisation=0, processes=""))
    assert watched().gpus == ()
    nvml(gpu(processes=f"{os.getpid()}:100"))  # pids are ours, and the server's is not among them
    assert watched().gpus == ()


def test_without_a_driver_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> tuple[int, ...]:
        raise AssertionError

    threads = threading.active_count()
    window = GpuWindow(never, {"CUDA_VISIBLE_DEVICES": "0"})
    with window:
        assert threading.active_count() == threads
    assert (window.gpus, window.mismatch, window.samples, window.last(10)) == ((), "", [], ())


def test_the_end_of_a_window_by_itself(nvml: Scripted) -> None:
    nvml(gpu())
    window = watched(samples=20)
    (last,) = window.last(0.02)
    assert 1 <= last.samples < only(window).samples
    assert (last.power_w, last.power_limit_w, last.energy_j) == (300.0, 450.0, None)


def test_pids_of_the_tests_are_of_no_process() -> None:
    with open("/proc/sys/kernel/pid_max") as file:  # noqa: PTH123
        assert int(file.read()) < ABSENT
