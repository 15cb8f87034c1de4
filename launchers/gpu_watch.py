"""One GPU while a window is open: what is asked of it, and when."""

import time
from dataclasses import replace
from statistics import fmean

import psutil

from launchers.gpu_summary import Counters, of_samples, shown_refusals, with_counters
from launchers.nvml import READINGS, Device, Refusal, event_reasons
from results.records import GpuProcess, GpuSample, GpuTelemetry


class GpuWatch:
    """Listens for errors once made; then `begin`, `sample` and `look` at will, `end`, `telemetry`."""

    def __init__(self, device: Device, cell: str) -> None:
        self.device = device
        self.samples: list[GpuSample] = []
        self._cell = cell
        self._is_lost = False
        self._refused: dict[str, Refusal] = {}  # the first refusal of each field
        self._in_vain: set[str] = set()  # readings not worth asking for again
        self._xids: list[int] = []
        self._shared_memory_bytes: int | None = None
        self._pcie_rates: list[tuple[float, float]] = []  # sent, received
        self._errors = device.errors()
        if self._errors.refusal is not None:
            self.refuse("xids", self._errors.refusal)

    def begin(self) -> None:
        self.sample()
        self._before = self._counters()

    def end(self) -> None:
        self._after = self._counters()

    def close(self) -> None:
        self._errors.close()

    def sample(self) -> None:
        """One more sample; none of a GPU that is lost."""
        read = {field: self._reading(field) for field in READINGS}
        if self._is_lost:
            return
        mask, memory = read.pop("throttled"), read.pop("memory_bytes")
        self.samples.append(
            GpuSample(
                cell=self._cell,
                sampled_at=time.time(),
                uuid=self.device.uuid,
                memory_bytes=None if memory is None else int(memory),
                throttled=None if mask is None else event_reasons(int(mask)),
                **read,
            )
        )

    def look(self) -> None:
        """At what changes seldom: errors, and the host's memory where the GPU has none of its own."""
        self._xids += self._errors.take()
        if self._refused.get("memory_bytes") == Refusal("NotSupported"):
            memory = psutil.virtual_memory()
            used = int(memory.total - memory.available)
            self._shared_memory_bytes = max(self._shared_memory_bytes or 0, used)

    def look_at_pcie(self) -> None:
        """The rate of this moment, where the driver has no counters of bytes: waits for 40 ms."""
        if not isinstance(self._before.pcie_tx_bytes, Refusal) or "pcie" in self._in_vain:
            return
        rates = self.device.pcie_bytes_per_s()
        if isinstance(rates, Refusal):
            self._in_vain.add("pcie")
        else:
            self._pcie_rates.append(rates)

    def refuse(self, field: str, refusal: Refusal) -> None:
        """Note that the driver does not tell this."""
        self._refused.setdefault(field, refusal)
        self._is_lost |= refusal.is_loss
        if refusal.is_final:
            self._in_vain.add(field)

    def telemetry(self, processes: tuple[GpuProcess, ...]) -> GpuTelemetry:
        """The whole window, which has ended."""
        limit, default = (self._figure(name) for name in ("power_limit_w", "default_power_limit_w"))
        seen = replace(
            of_samples(self.device.uuid, self.device.name, self.samples),
            power_limit_w=limit,
            default_power_limit_w=default,
            shared_memory_bytes=self._shared_memory_bytes,
            xids=tuple(self._xids),
            processes=processes,
            lost=self._is_lost,
        )
        seen = with_counters(seen, self.samples, self._before, self._after)
        if self._pcie_rates:
            sent, received = (fmean(rates) for rates in zip(*self._pcie_rates, strict=True))
            seen = replace(seen, pcie_tx_bytes_per_s=sent, pcie_rx_bytes_per_s=received)
        return replace(seen, unknown={**seen.unknown, **shown_refusals(seen, self._refused)})

    def last(self, seconds: float) -> GpuTelemetry:
        """The end of the window by its samples: no counters."""
        since = self.samples[-1].sampled_at - seconds if self.samples else 0.0
        tail = [sample for sample in self.samples if sample.sampled_at >= since]
        limit = self._figure("power_limit_w")
        return replace(of_samples(self.device.uuid, self.device.name, tail), power_limit_w=limit)

    @property
    def wall_s(self) -> float:
        return self._after.at_s - self._before.at_s

    def _reading(self, field: str) -> float | None:
        return (
            None if self._is_lost or field in self._in_vain else self._told(field, self.device.reading(field))
        )

    def _figure(self, name: str) -> float | None:
        return self._told(name, self.device.figure(name))

    def _told(self, field: str, value: float | Refusal) -> float | None:
        if isinstance(value, Refusal):
            self.refuse(field, value)
            return None
        return value

    def _counters(self) -> Counters:
        """Energy before all else."""
        energy_j, at_s = self.device.figure("energy_j"), time.monotonic()
        ecc_errors, pcie = self.device.figure("ecc_errors"), self.device.pcie_bytes()
        sent, received = (pcie, pcie) if isinstance(pcie, Refusal) else pcie
        for value in (energy_j, ecc_errors, sent):
            self._is_lost |= isinstance(value, Refusal) and value.is_loss
        return Counters(at_s, energy_j, ecc_errors, sent, received)
