"""The GPUs of several windows as those of one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from results.records import EnergySource, GpuProcess, GpuTelemetry, Telemetry

T = TypeVar("T", int, float)


def merged_gpus(windows: Sequence[Telemetry]) -> tuple[GpuTelemetry, ...]:
    """Each GPU over all windows that have it: energy and errors add, means by wall time, peaks stay peaks.

    A figure that is unknown in one of them is unknown.
    """
    found: dict[str, list[tuple[GpuTelemetry, float]]] = {}
    for window in windows:
        for gpu in window.gpus:
            found.setdefault(gpu.uuid, []).append((gpu, window.wall_s))
    return tuple(_merged(seen) for seen in found.values())


def _merged(seen: Sequence[tuple[GpuTelemetry, float]]) -> GpuTelemetry:
    gpus = [gpu for gpu, _ in seen]
    walls_s = [wall_s for _, wall_s in seen]
    wall_s = sum(walls_s)

    def mean(read: Callable[[GpuTelemetry], float | None]) -> float | None:
        known = [value * s for g, s in zip(gpus, walls_s, strict=True) if (value := read(g)) is not None]
        return sum(known) / wall_s if len(known) == len(gpus) and wall_s > 0 else None

    return replace(
        gpus[-1],
        samples=sum(gpu.samples for gpu in gpus),
        utilisation=mean(lambda g: g.utilisation),
        memory_bytes=_peak([g.memory_bytes for g in gpus]),
        shared_memory_bytes=_peak([g.shared_memory_bytes for g in gpus]),
        power_w=mean(lambda g: g.power_w),
        sm_clock_hz=mean(lambda g: g.sm_clock_hz),
        memory_clock_hz=mean(lambda g: g.memory_clock_hz),
        temperature_c=_peak([g.temperature_c for g in gpus]),
        throttled=_throttled(gpus),
        energy_j=_sum([g.energy_j for g in gpus]),
        energy_source=_source(gpus),
        pcie_tx_bytes_per_s=mean(lambda g: g.pcie_tx_bytes_per_s),
        pcie_rx_bytes_per_s=mean(lambda g: g.pcie_rx_bytes_per_s),
        ecc_errors=_sum([g.ecc_errors for g in gpus]),
        xids=tuple(xid for g in gpus for xid in g.xids),
        processes=_processes(gpus),
        unknown={field: name for g in gpus for field, name in g.unknown.items()},
        lost=any(g.lost for g in gpus),
    )


def _peak(values: Iterable[T | None]) -> T | None:
    return max((value for value in values if value is not None), default=None)


def _sum(values: Sequence[T | None]) -> T | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _throttled(gpus: Sequence[GpuTelemetry]) -> dict[str, float]:
    """Shares by samples: a short window counts for little."""
    samples = sum(gpu.samples for gpu in gpus)
    reasons = dict.fromkeys(reason for gpu in gpus for reason in gpu.throttled)
    return {
        reason: sum(gpu.throttled.get(reason, 0.0) * gpu.samples for gpu in gpus) / samples
        for reason in (reasons if samples else ())
    }


def _source(gpus: Sequence[GpuTelemetry]) -> EnergySource:
    """The weakest."""
    sources = {gpu.energy_source for gpu in gpus}
    weakest_first = (EnergySource.UNKNOWN, EnergySource.INTEGRATED_POWER, EnergySource.COUNTER)
    return next(source for source in weakest_first if source in sources)


def _processes(gpus: Sequence[GpuTelemetry]) -> tuple[GpuProcess, ...]:
    """Each once, with the most memory it had. Ours if any window says so."""
    found: dict[int, GpuProcess] = {}
    for process in (process for gpu in gpus for process in gpu.processes):
        known = found.get(process.pid, process)
        ours = known.ours if known.ours or process.ours is None else process.ours
        most = _peak([known.memory_bytes, process.memory_bytes])
        found[process.pid] = replace(process, memory_bytes=most, ours=ours)
    return tuple(found.values())
