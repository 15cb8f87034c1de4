"""The driver and its GPUs at one moment: who holds their memory, and what is wrong with them."""

from collections.abc import Iterator
from contextlib import suppress

import psutil

from launchers.gpu_processes import MAX_PID, are_of_this_namespace
from launchers.nvml import Device, Refusal, driver, event_reasons
from launchers.orphans import is_first_namespace
from results.machine_state import DriverState, GpuHolder, GpuState

IDLE = ("gpu_idle",)  # the clocks' usual reason, and no fault


def driver_state() -> DriverState:
    """Without a driver `absent` says why, as it calls that itself."""
    found = driver()
    gpus = tuple(_gpu(device) for device in found.devices)
    pids = frozenset(holder.pid for gpu in gpus for holder in gpu.holders or ())
    counts_as_here = (is_first_namespace() or are_of_this_namespace(pids)) if pids else None
    return DriverState(found.version, found.cuda, found.absent, gpus, counts_as_here)


def _gpu(device: Device) -> GpuState:
    used, mask, total, ecc = (
        device.reading("memory_bytes"),
        device.reading("throttled"),
        device.figure("memory_total_bytes"),
        device.figure("ecc_errors"),
    )
    processes = device.processes()
    asked = {"memory used": used, "processes": processes, "clocks": mask}
    persistence, mig = device.known("persistence"), device.known("mig")
    return GpuState(
        device.index,
        device.uuid,
        device.name,
        _whole(used),
        _whole(total),
        None if isinstance(processes, Refusal) else tuple(_holders(processes)),
        _whole(ecc),
        () if isinstance(mask, Refusal) else _reasons(int(mask)),
        None if persistence is None else bool(persistence),
        None if mig is None else bool(mig),
        tuple(f"{what}: {answer.name}" for what, answer in asked.items() if isinstance(answer, Refusal)),
    )


def _whole(answer: float | Refusal) -> int | None:
    return None if isinstance(answer, Refusal) else int(answer)


def _reasons(mask: int) -> tuple[str, ...]:
    return tuple(reason for reason in event_reasons(mask) if reason not in IDLE)


def _holders(processes: dict[int, int | None]) -> Iterator[GpuHolder]:
    for pid, memory_bytes in sorted(processes.items()):
        exists, name = pid <= MAX_PID and psutil.pid_exists(pid), ""
        with suppress(psutil.Error):
            name = str(psutil.Process(pid).name()) if exists else ""
        yield GpuHolder(pid, memory_bytes, exists, name)
