"""The layer over pynvml: real bindings, error codes and bit masks, on a scripted library."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launchers.nvml import CLOCKS_EVENT_REASONS, READINGS, Refusal, driver, event_reasons, installed_gpus
from tests.nvml import SERVER, Scripted, gpu, library, script


def test_figures_in_plain_units(nvml: Scripted) -> None:
    found = nvml(gpu(reasons=0x24))
    assert (found.version, found.cuda, found.absent) == ("610.43", "13.1", "")
    (device,) = found.devices
    assert (device.uuid, device.name, device.index) == ("GPU-aaaa", "RTX 4090", 0)
    assert {field: device.reading(field) for field in READINGS} == {
        "utilisation": 0.98,
        "memory_bytes": 20 * 2**30,
        "power_w": 300.0,
        "sm_clock_hz": 2.5e9,
        "memory_clock_hz": 1e10,
        "temperature_c": 64,
        "throttled": 0x24,
    }
    assert device.processes() == {SERVER: 20 * 2**30}
    assert device.pcie_bytes() == (1000, 2000)
    assert device.figure("ecc_errors") == 0


def test_reasons_are_named_by_the_bits_of_the_driver() -> None:
    import pynvml

    for bit, name in CLOCKS_EVENT_REASONS.items():
        camel = "".join(word.capitalize() for word in name.split("_"))
        camel = camel.replace("DisplayClocks", "DisplayClock")
        assert getattr(pynvml, f"nvmlClocksEventReason{camel}") == bit
    assert event_reasons(0) == ()
    assert event_reasons(0x44) == ("sw_power_cap", "hw_thermal_slowdown")
    assert event_reasons(0x2004) == ("sw_power_cap", "bit_0x2000")


@pytest.mark.parametrize(
    ("code", "name", "final", "loss"),
    [
        (3, "NotSupported", True, False),
        (4, "NoPermission", True, False),
        (13, "FunctionNotFound", True, False),
        (15, "GpuIsLost", False, True),
        (16, "ResetRequired", False, True),
        (999, "Unknown", False, False),
        (77, "error 77", False, False),
    ],
)
def test_what_the_driver_refuses_has_its_name(
    nvml: Scripted, code: int, name: str, final: bool, loss: bool
) -> None:
    (device,) = nvml(gpu(power_mw=f"!{code}", processes=f"!{code}", pcie_rx=f"!{code}")).devices
    for answer in (device.reading("power_w"), device.processes(), device.pcie_bytes()):
        assert answer == Refusal(name)
        assert isinstance(answer, Refusal)
        assert (answer.is_final, answer.is_loss) == (final, loss)
    assert device.known("power_limit_w") == 450.0


def test_memory_of_a_process_may_be_unknown(nvml: Scripted) -> None:
    (device,) = nvml(gpu(processes=f"{SERVER}:?")).devices
    assert device.processes() == {SERVER: None}


def test_drivers_before_535_have_the_older_name_of_the_reasons(nvml: Scripted) -> None:
    (device,) = nvml(gpu(reasons=8), options=("-DBEFORE_535",)).devices
    assert device.reading("throttled") == 8


def test_pcie_counters_or_else_a_rate(nvml: Scripted) -> None:
    (device,) = nvml(gpu(pcie_tx=None, pcie_rx=None, pcie_throughput_kb=1500)).devices
    assert device.pcie_bytes() == Refusal("NotSupported")
    assert device.pcie_bytes_per_s() == (1.5e6, 1.5e6)


def test_errors_are_taken_once(nvml: Scripted) -> None:
    (device,) = nvml(gpu(xid=79)).devices
    errors = device.errors()
    assert (errors.refusal, errors.take(), errors.take()) == (None, [79], [])
    errors.close()
    (silent,) = nvml(gpu(xid=None)).devices
    assert silent.errors().refusal == Refusal("NotSupported")
    assert silent.errors().take() == []


def test_instances_of_mig(nvml: Scripted) -> None:
    off, on = nvml(gpu(), gpu(uuid="GPU-bbbb", mig="MIG-1111,MIG-2222")).devices
    assert (off.mig_uuids(), on.mig_uuids()) == ((), ("MIG-1111", "MIG-2222"))


def test_the_fingerprint_holds_what_a_result_depends_on(nvml: Scripted) -> None:
    nvml(gpu(), gpu(uuid="GPU-bbbb", memory_used=None, ecc_mode=None, power_limit_mw=300_000))
    found = installed_gpus()
    first, second = found.devices
    assert (found.driver, found.cuda) == ("610.43", "13.1")
    assert (first.uuid, first.pci_bus_id, first.ecc, first.persistence) == (
        "GPU-aaaa",
        "00000000:01:00.0",
        True,
        True,
    )
    assert (first.max_sm_clock_hz, first.max_memory_clock_hz) == (3.105e9, 1.0501e10)
    assert (second.memory_bytes, second.ecc) == (None, None)
    assert (second.power_limit_w, second.default_power_limit_w) == (300.0, 450.0)


def test_a_driver_that_is_not_loaded(nvml: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(gpu())
    driver.cache_clear()
    monkeypatch.setenv("NVML_SCRIPT", "/nowhere")
    assert driver().absent == "DriverNotLoaded"
    assert (driver().devices, installed_gpus().devices) == ((), ())


def test_without_pynvml_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    driver.cache_clear()
    assert driver().absent == "nvidia-ml-py is not installed"
    assert driver().devices == ()
    driver.cache_clear()


LOOK = "from launchers.nvml import driver; print(driver().absent or [d.uuid for d in driver().devices])"


def test_the_library_is_found_where_the_system_looks(tmp_path: Path) -> None:
    """In a process of its own: pynvml's own look-up, with and without the library."""
    path = tmp_path / "script"
    path.write_text(script(gpu()))
    for folder, seen in ((library().parent, "['GPU-aaaa']"), ("/nowhere", "LibraryNotFound")):
        environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "NVML_SCRIPT": str(path)}
        done = subprocess.run([sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True)
        assert done.stdout.strip() == seen, done.stderr
