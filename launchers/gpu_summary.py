"""What the samples and counters of one GPU come to: arithmetic only."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from launchers.nvml import Refusal
from results.records import EnergySource, GpuSample, GpuTelemetry

WENT_BACK = Refusal("counter went back")  # it wrapped, or the driver was loaded anew


@dataclass(frozen=True, slots=True)
class Counters:
    """What only grows, at one end of a window. `at_s` is when the energy was read."""

    at_s: float
    energy_j: float | Refusal
    ecc_errors: float | Refusal
    pcie_tx_bytes: float | Refusal
    pcie_rx_bytes: float | Refusal


def of_samples(uuid: str, name: str, samples: Sequence[GpuSample]) -> GpuTelemetry:
    """Means of utilisation, power and clocks; peaks of memory and temperature; shares of the reasons."""
    reasons = [s.throttled for s in samples if s.throttled is not None]
    counts = Counter(reason for named in reasons for reason in named)
    return GpuTelemetry(
        uuid=uuid,
        name=name,
        samples=len(samples),
        utilisation=_mean(s.utilisation for s in samples),
        memory_bytes=max((s.memory_bytes for s in samples if s.memory_bytes is not None), default=None),
        power_w=_mean(s.power_w for s in samples),
        sm_clock_hz=_mean(s.sm_clock_hz for s in samples),
        memory_clock_hz=_mean(s.memory_clock_hz for s in samples),
        temperature_c=max((s.temperature_c for s in samples if s.temperature_c is not None), default=None),
        throttled={reason: count / len(reasons) for reason, count in counts.items()},
    )


def with_counters(
    seen: GpuTelemetry, samples: Sequence[GpuSample], before: Counters, after: Counters
) -> GpuTelemetry:
    """The same with what the counters grew by. Without one for energy: the power of the samples."""
    wall_s = after.at_s - before.at_s
    grown = {
        name: _grown(getattr(before, name), getattr(after, name))
        for name in ("energy_j", "ecc_errors", "pcie_tx_bytes", "pcie_rx_bytes")
    }
    known = {name: value for name, value in grown.items() if not isinstance(value, Refusal)}
    refused = {_field(name): value.name for name, value in grown.items() if isinstance(value, Refusal)}
    errors, energy_j = known.get("ecc_errors"), known.get("energy_j")
    source = EnergySource.COUNTER if energy_j is not None else EnergySource.UNKNOWN
    power_w = None if seen.lost else mean_power_w(samples)
    if energy_j is None and power_w is not None:
        energy_j, source = power_w * wall_s, EnergySource.INTEGRATED_POWER
    return replace(
        seen,
        energy_j=energy_j,
        energy_source=source,
        ecc_errors=None if errors is None else int(errors),
        pcie_tx_bytes_per_s=_rate(known.get("pcie_tx_bytes"), wall_s),
        pcie_rx_bytes_per_s=_rate(known.get("pcie_rx_bytes"), wall_s),
        unknown={**seen.unknown, **refused},
    )


def mean_power_w(samples: Sequence[GpuSample]) -> float | None:
    """Mean power over time by the trapezoid rule; samples need not be evenly spaced."""
    known = [(s.sampled_at, s.power_w) for s in samples if s.power_w is not None]
    span_s = known[-1][0] - known[0][0] if len(known) > 1 else 0.0
    if span_s <= 0:
        return known[0][1] if known else None
    return sum((b - a) * (p + q) / 2 for (a, p), (b, q) in pairwise(known)) / span_s


def _grown(before: float | Refusal, after: float | Refusal) -> float | Refusal:
    if isinstance(after, Refusal):
        return after
    if isinstance(before, Refusal):
        return before
    return after - before if after >= before else WENT_BACK


def _field(counter: str) -> str:
    """The field of GpuTelemetry that a counter becomes."""
    return f"{counter}_per_s" if counter.startswith("pcie") else counter


def _rate(grown: float | None, wall_s: float) -> float | None:
    return None if grown is None or wall_s <= 0 else grown / wall_s


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def shown_refusals(seen: GpuTelemetry, refused: Mapping[str, Refusal]) -> dict[str, str]:
    """The refusals of fields that have no figure at all."""
    return {name: r.name for name, r in refused.items() if getattr(seen, name, None) in (None, (), {})}
