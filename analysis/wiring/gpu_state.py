"""What the driver tells of its GPUs, in words: who holds memory that a server wants, and what is broken."""

from collections.abc import Iterator

from analysis.words import count, listed
from results.machine_state import GpuState, MachineState, Role

UNACCOUNTED_BYTES = 2**30  # the driver keeps some for itself
NO_GPU = ("LibraryNotFound", "DriverNotLoaded", "nvidia-ml-py is not installed")
MISMATCH = "LibRmVersionMismatch"


def size(memory_bytes: int | None) -> str:
    """`656 MB`, `1.2 GB`."""
    if memory_bytes is None:
        return "an unknown amount"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if memory_bytes >= scale:
            amount = memory_bytes / scale
            return f"{amount:.1f} {unit}" if unit == "GB" else f"{amount:.0f} {unit}"
    return f"{memory_bytes} B"


def driver_lines(state: MachineState) -> Iterator[str]:
    driver = state.driver
    if driver.absent:
        yield f"no NVIDIA driver answers ({driver.absent}): nothing is known of GPUs"
        return
    if driver.version is not None:
        gpus = count(len(driver.gpus), "GPU")
        yield f"NVIDIA driver {driver.version}, CUDA {driver.cuda or 'unknown'}, {gpus}"
    yield from (_gpu_line(gpu) for gpu in driver.gpus)


def _gpu_line(gpu: GpuState) -> str:
    holders = "who holds it is not told"
    if gpu.holders is not None:
        told = [f"{h.name or 'process'} {h.pid}: {size(h.memory_bytes)}" for h in gpu.holders]
        holders = ", ".join(told) or "no process listed"
    refused = f"; refused: {', '.join(gpu.refused)}" if gpu.refused else ""
    used = f"{size(gpu.used_bytes)} of {size(gpu.total_bytes)} used"
    return f"GPU {gpu.index} {gpu.name}: {used} ({holders}){refused}"


def gpu_lines(state: MachineState) -> Iterator[str]:
    if state.driver.absent == MISMATCH:
        yield "the driver was updated while its old kernel module is loaded: restart the machine"
    elif state.driver.absent and state.driver.absent not in NO_GPU:
        yield f"the driver does not answer ({state.driver.absent}): nvidia-smi and dmesg tell more"
    for gpu in state.driver.gpus:
        yield from _shared_gpu(gpu, state)
        yield from _gone_holders(gpu, state)
        yield from _unaccounted(gpu)
        yield from _faults(gpu)


def _shared_gpu(gpu: GpuState, state: MachineState) -> Iterator[str]:
    """Two servers on one GPU take each other's memory and time."""
    keepers = {p.pid: p.owner if p.role is Role.WORKER else p.pid for p in state.processes}
    servers = {keepers[h.pid] for h in gpu.holders or () if keepers.get(h.pid) is not None}
    if len(servers) > 1:
        pids = [str(pid) for pid in sorted(filter(None, servers))]
        yield f"GPU {gpu.index} is shared by the servers {listed(pids)}: they slow each other down"


def _gone_holders(gpu: GpuState, state: MachineState) -> Iterator[str]:
    for holder in gpu.holders or ():
        if holder.exists:
            continue
        held = f"{size(holder.memory_bytes)} on GPU {gpu.index} are held by pid {holder.pid}"
        if state.driver.counts_as_here:
            yield (
                f"{held}, which does not exist any more: they are freed when the last process of its server "
                "ends, else by a restart of the machine"
            )
        else:
            yield f"{held} of another PID namespace: look outside this container"


def _unaccounted(gpu: GpuState) -> Iterator[str]:
    """Memory in use that no listed process has; on a shared card (MIG) it cannot be told."""
    told = [h.memory_bytes for h in gpu.holders or ()]
    known = [memory for memory in told if memory is not None]
    if gpu.used_bytes is None or gpu.holders is None or len(known) < len(told) or gpu.mig:
        return
    rest = gpu.used_bytes - sum(known)
    if rest > UNACCOUNTED_BYTES:
        yield (
            f"{size(rest)} on GPU {gpu.index} are held by no process that the driver lists: by one that has "
            "ended, or by one of another container"
        )


def _faults(gpu: GpuState) -> Iterator[str]:
    if gpu.ecc_errors:
        errors = count(gpu.ecc_errors, "uncorrected memory error")
        yield f"GPU {gpu.index} has had {errors} since the driver started"
    slowed = [reason for reason in gpu.throttled if "thermal" in reason or reason.startswith("hw_")]
    if slowed:
        yield f"GPU {gpu.index} is slowed down now: {', '.join(slowed)}"
    if any("GpuIsLost" in r or "ResetRequired" in r for r in gpu.refused):
        yield f"GPU {gpu.index} is lost: reset it or restart the machine; dmesg tells the XID"
