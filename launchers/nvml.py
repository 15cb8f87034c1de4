"""NVIDIA's driver as typed figures: a thin layer over pynvml, where a refusal is a value, not an exception.

Units are ours (W, Hz, bytes, shares), names of errors the driver's own (`NotSupported`). Handles are
kept: asking for one takes milliseconds on a real driver. pynvml's Python costs about a microsecond a
call, which is nothing beside what the driver takes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from results.environment import Gpu, Gpus

T = TypeVar("T")

# Bits of nvmlClocksEventReasons, under the names that nvidia-smi gives them.
CLOCKS_EVENT_REASONS: Mapping[int, str] = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}
MAX_EVENTS = 100  # taken from an event set at one time

# What is read of a GPU many times a second, by the field of GpuSample that it becomes.
_READINGS: Mapping[str, Callable[[Any, Any], float]] = {
    "utilisation": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "memory_bytes": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "power_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "sm_clock_hz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6,
    "memory_clock_hz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) * 1e6,
    "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "throttled": lambda nvml, gpu: _event_mask(nvml, gpu),
}
READINGS = tuple(_READINGS)

# What is read once, or at the two ends of a window.
_FIGURES: Mapping[str, Callable[[Any, Any], float]] = {
    "energy_j": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000,
    "ecc_errors": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(
        gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    ),
    "power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    "default_power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) / 1000,
    "max_sm_clock_hz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6,
    "max_memory_clock_hz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM) * 1e6,
    "memory_total_bytes": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total,
    "ecc": lambda nvml, gpu: nvml.nvmlDeviceGetEccMode(gpu)[0],
    "persistence": lambda nvml, gpu: nvml.nvmlDeviceGetPersistenceMode(gpu),
    "mig": lambda nvml, gpu: nvml.nvmlDeviceGetMigMode(gpu)[0],
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the driver does not tell: its name for the error."""

    name: str

    @property
    def is_final(self) -> bool:
        """Whether asking again is in vain."""
        return self.name in ("NotSupported", "NoPermission", "FunctionNotFound", "Deprecated")

    @property
    def is_loss(self) -> bool:
        """Whether the GPU itself is gone."""
        return self.name in ("GpuIsLost", "ResetRequired", "GpuNotFound")


class Device:
    """One GPU. Every method answers with a figure or a Refusal, and never raises."""

    def __init__(self, nvml: Any, handle: Any, index: int, uuid: str) -> None:
        self.index = index  # NVML's, which is the order on the PCI bus
        self.uuid = uuid
        self._nvml, self._handle = nvml, handle
        name = self._ask(nvml.nvmlDeviceGetName)
        self.name = "GPU" if isinstance(name, Refusal) else str(name)

    def reading(self, field: str) -> float | Refusal:
        """One of READINGS; `throttled` as a bit mask."""
        return _asked(self._nvml, _READINGS[field], self._nvml, self._handle)

    def figure(self, name: str) -> float | Refusal:
        """One of the figures that are read seldom: `energy_j`, `ecc_errors`, `power_limit_w` ..."""
        return _asked(self._nvml, _FIGURES[name], self._nvml, self._handle)

    def known(self, name: str) -> float | None:
        """The same figure, or None."""
        value = self.figure(name)
        return None if isinstance(value, Refusal) else value

    def processes(self) -> dict[int, int | None] | Refusal:
        """Memory of every process with a compute context here, by pid (of the namespace of the driver)."""
        found = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses_v3)
        return found if isinstance(found, Refusal) else {p.pid: p.usedGpuMemory for p in found}

    def pcie_bytes(self) -> tuple[int, int] | Refusal:
        """Bytes sent and received since the driver was loaded. The counters may wrap."""
        ids = [self._nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, self._nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES]
        values = self._ask(self._nvml.nvmlDeviceGetFieldValues, ids)
        if isinstance(values, Refusal):
            return values
        refused = next((v.nvmlReturn for v in values if v.nvmlReturn), 0)
        if refused:
            return _refusal(self._nvml.NVMLError(refused))
        return int(values[0].value.ullVal), int(values[1].value.ullVal)

    def pcie_bytes_per_s(self) -> tuple[float, float] | Refusal:
        """Rate sent and received over 20 ms each: the call blocks for as long."""
        nvml, rates = self._nvml, []
        for counter in (nvml.NVML_PCIE_UTIL_TX_BYTES, nvml.NVML_PCIE_UTIL_RX_BYTES):
            kilobytes = self._ask(nvml.nvmlDeviceGetPcieThroughput, counter)
            if isinstance(kilobytes, Refusal):
                return kilobytes
            rates.append(kilobytes * 1000.0)
        return rates[0], rates[1]

    def mig_uuids(self) -> tuple[str, ...]:
        """Its MIG instances; none where MIG is off."""
        nvml, found = self._nvml, []
        count = self._ask(nvml.nvmlDeviceGetMaxMigDeviceCount) if self.known("mig") else 0
        for index in range(0 if isinstance(count, Refusal) else int(count)):
            handle = self._ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, index)
            if not isinstance(handle, Refusal):
                found.append(_asked(nvml, nvml.nvmlDeviceGetUUID, handle))
        return tuple(str(uuid) for uuid in found if not isinstance(uuid, Refusal))

    def pci_bus_id(self) -> str | None:
        found = self._ask(self._nvml.nvmlDeviceGetPciInfo)
        return None if isinstance(found, Refusal) else str(found.busId)

    def errors(self) -> "Errors":
        """Listens from now on for errors (XID)."""
        return Errors(self._nvml, self._handle)

    def _ask(self, call: Callable[..., Any], *further: Any) -> Any:
        return _asked(self._nvml, call, self._handle, *further)


class Errors:
    """The XID errors of one GPU since this was made, where the driver offers the event."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._set = _asked(nvml, nvml.nvmlEventSetCreate)
        self.refusal = self._set if isinstance(self._set, Refusal) else self._register(handle)

    def _register(self, handle: Any) -> Refusal | None:
        kind = self._nvml.nvmlEventTypeXidCriticalError
        answer = _asked(self._nvml, self._nvml.nvmlDeviceRegisterEvents, handle, kind, self._set)
        return answer if isinstance(answer, Refusal) else None

    def take(self) -> list[int]:
        """The errors since the last call, without waiting."""
        found: list[int] = []
        while self.refusal is None and len(found) < MAX_EVENTS:
            event = _asked(self._nvml, self._nvml.nvmlEventSetWait, self._set, 0)
            if isinstance(event, Refusal):  # Timeout: there is none
                break
            found.append(int(event.eventData))
        return found

    def close(self) -> None:
        if not isinstance(self._set, Refusal):
            _asked(self._nvml, self._nvml.nvmlEventSetFree, self._set)


@dataclass(frozen=True, slots=True)
class Driver:
    """NVIDIA's driver of this machine; without it no devices, and `absent` says why."""

    devices: Sequence[Device] = ()
    version: str | None = None
    cuda: str | None = None
    absent: str = ""


@cache
def driver() -> Driver:
    """Opened once and kept for the life of the process: opening may take a second."""
    try:
        import pynvml
    except ImportError:
        return Driver(absent="nvidia-ml-py is not installed")
    nvml: Any = pynvml
    opened = _asked(nvml, nvml.nvmlInit)
    if isinstance(opened, Refusal):
        return Driver(absent=opened.name)
    version, cuda = (
        _asked(nvml, f) for f in (nvml.nvmlSystemGetDriverVersion, nvml.nvmlSystemGetCudaDriverVersion_v2)
    )
    return Driver(
        _devices(nvml),
        None if isinstance(version, Refusal) else str(version),
        None if isinstance(cuda, Refusal) else f"{cuda // 1000}.{cuda % 1000 // 10}",
    )


def _devices(nvml: Any) -> tuple[Device, ...]:
    """Those that this process may see; one that is lost, or another's, is passed over."""
    count, found = _asked(nvml, nvml.nvmlDeviceGetCount), []
    for index in range(0 if isinstance(count, Refusal) else int(count)):
        handle = _asked(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
        uuid = handle if isinstance(handle, Refusal) else _asked(nvml, nvml.nvmlDeviceGetUUID, handle)
        if not isinstance(uuid, Refusal):
            found.append(Device(nvml, handle, index, str(uuid)))
    return tuple(found)


def tells_energy() -> bool:
    """Whether every GPU tells its energy, or at least its power."""
    devices = driver().devices
    return bool(devices) and all(
        d.known("energy_j") is not None or not isinstance(d.reading("power_w"), Refusal) for d in devices
    )


def tells_memory() -> bool:
    """Whether every GPU tells how much of its memory is used."""
    devices = driver().devices
    return bool(devices) and not any(isinstance(d.reading("memory_bytes"), Refusal) for d in devices)


def installed_gpus() -> Gpus:
    """The GPUs for the fingerprint of this machine."""
    found = driver()
    return Gpus(tuple(_gpu(device) for device in found.devices), found.version, found.cuda)


def _gpu(device: Device) -> Gpu:
    memory, ecc, persistence = (device.known(f) for f in ("memory_total_bytes", "ecc", "persistence"))
    return Gpu(
        uuid=device.uuid,
        name=device.name,
        pci_bus_id=device.pci_bus_id(),
        memory_bytes=None if memory is None else int(memory),
        power_limit_w=device.known("power_limit_w"),
        default_power_limit_w=device.known("default_power_limit_w"),
        max_sm_clock_hz=device.known("max_sm_clock_hz"),
        max_memory_clock_hz=device.known("max_memory_clock_hz"),
        ecc=None if ecc is None else bool(ecc),
        persistence=None if persistence is None else bool(persistence),
    )


def _event_mask(nvml: Any, gpu: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
    except nvml.NVMLError_FunctionNotFound:  # drivers before 535
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))


def event_reasons(mask: int) -> tuple[str, ...]:
    """The names of the bits of a clocks-event mask; one without a name as `bit_0x400`."""
    bits = [1 << i for i in range(mask.bit_length()) if mask >> i & 1]
    return tuple(CLOCKS_EVENT_REASONS.get(bit, f"bit_{bit:#x}") for bit in bits)


def _asked(nvml: Any, call: Callable[..., T], *arguments: Any) -> T | Refusal:
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        return _refusal(error)


def _refusal(error: Any) -> Refusal:
    name = type(error).__name__.removeprefix("NVMLError_")
    return Refusal(f"error {error.value}" if name == "NVMLError" else name)
