"""Upper limits of a configuration: what can be limited, how far a limit is kept, and how that is said.

A limit holds in every Cell that counts: the worst one decides. Over several Blocks the median one does.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from analysis.anchor import Place
from analysis.block import LATENCIES, figure
from analysis.places import label
from results.records import EQUAL_WEIGHTS, ArmRun, Block, GpuTelemetry, Measurement, Phase, Weights


def _fullest_gpu_bytes(measurement: Measurement) -> float | None:
    """Peak memory of the fullest of the server's GPUs: the first to run out."""
    return max(_of_every_gpu(measurement, lambda gpu: gpu.memory_bytes), default=None)


def _power_w(measurement: Measurement) -> float | None:
    """Mean power of the server's GPUs together."""
    return sum(_of_every_gpu(measurement, lambda gpu: gpu.power_w)) or None


def _of_every_gpu(measurement: Measurement, read: Callable[[GpuTelemetry], float | None]) -> list[float]:
    """A figure of each of the server's GPUs; empty unless it is known of all."""
    telemetry = measurement.telemetry
    known = [seen for gpu in telemetry.gpus if (seen := read(gpu)) is not None]
    return known if len(known) == len(telemetry.gpus) and not telemetry.gpu_mismatch else []


SERVER_MEMORY, GPU_MEMORY = "server_memory_bytes", "gpu_memory_bytes"
JOULES, POWER = "joules_per_token", "power_w"
OF_THE_HARDWARE: Mapping[str, Callable[[Measurement], float | None]] = {
    SERVER_MEMORY: lambda m: m.telemetry.server_memory_bytes,
    GPU_MEMORY: _fullest_gpu_bytes,
    JOULES: lambda m: m.joules_per_token,
    POWER: _power_w,
}
LIMITS = (*LATENCIES, *OF_THE_HARDWARE)

_LEAST = 1e-9  # of a figure that is 0: its logarithm must be finite
_MOST_DIGITS = 6


def value(measurement: Measurement, name: str) -> float | None:
    """The figure that a limit of this name bounds, in the unit of the name; None if it was not measured."""
    read = OF_THE_HARDWARE.get(name)
    return read(measurement) if read is not None else figure(measurement, name)


def limit_ratios(
    run: ArmRun, limits: Mapping[str, float], weights: Weights = EQUAL_WEIGHTS
) -> dict[str, float | None]:
    """log(value / limit) of the worst Cell for each limit: above 0 is broken; None = not measured.

    A Cell of weight 0 is measured and does not count here either, nor does one whose load it could not admit.
    """
    counted = [m for m in run.measurements if weights.of(m.cell) > 0 and not m.capacity_limited]
    found: dict[str, float | None] = {}
    for name, limit in limits.items():
        known = [v for m in counted if (v := value(m, name)) is not None]
        found[name] = math.log(max(*known, _LEAST) / limit) if known and len(known) == len(counted) else None
    return found


def median_ratios(
    runs: Sequence[ArmRun], limits: Mapping[str, float], weights: Weights = EQUAL_WEIGHTS
) -> dict[str, float | None]:
    """The same of the median run; None = not measured in one of them."""
    each = [limit_ratios(run, limits, weights) for run in runs]
    found: dict[str, float | None] = {}
    for name in limits:
        known = [r for ratios in each if (r := ratios[name]) is not None]
        found[name] = median(known) if known and len(known) == len(each) else None
    return found


def broken_at(
    runs: Sequence[tuple[Place, ArmRun]], limits: Mapping[str, float], weights: Weights = EQUAL_WEIGHTS
) -> str:
    """Limits that the median run of one place breaks though that of all does not, in words; "" = none.

    A run keeps a limit or it does not, wherever it was: so all runs may have a say together. But a place
    that is slower may break it every time.
    """
    if len({place for place, _ in runs}) < 2 or not limits:
        return ""
    told = []
    for place in dict.fromkeys(place for place, _ in runs):
        own = [run for at, run in runs if at == place]
        if said := broken(median_ratios(own, limits, weights), limits):
            told.append(f"on {label(place)}, in the median of {len(own)}, {said}")
    return "; ".join(told)


def not_kept(ratios: Mapping[str, float | None], limits: Mapping[str, float]) -> str:
    """Every limit that is broken, or was not measured, in words; "" = all are kept."""
    return ", ".join(words(name, r, limits[name]) for name, r in ratios.items() if r is None or r > 0)


def broken(ratios: Mapping[str, float | None], limits: Mapping[str, float]) -> str:
    """Every limit that is broken for certain, in words."""
    return not_kept({name: r for name, r in ratios.items() if r is not None}, limits)


def broken_by_baseline(
    blocks: Sequence[Block], limits: Mapping[str, float], weights: Weights = EQUAL_WEIGHTS
) -> str:
    """The limits that the baseline itself breaks, in words; "" = none.

    By the confirmation where there is one, else by the search; of the baseline that was used last.
    """
    usable = [b for b in blocks if b.invalid is None]
    usable = [b for b in usable if b.phase is Phase.CONFIRM] or usable
    runs = [b.baseline for b in usable if b.compared_with == usable[-1].compared_with]
    whole = [run for run in runs if run is not None and run.failure is None and run.complete]
    return broken(median_ratios(whole, limits, weights), limits)


def words(name: str, log_ratio: float | None, limit: float) -> str:
    """How a figure stands to its limit: `ttft_p95_s is 0.61 s, the limit 0.5 s`."""
    if log_ratio is None:
        return f"{name} was not measured, the limit {shown(name, limit)}"
    reached = math.exp(log_ratio) * limit
    texts = [(shown(name, reached, n), shown(name, limit, n)) for n in range(3, _MOST_DIGITS + 1)]
    ours, bound = next((pair for pair in texts if pair[0] != pair[1]), texts[0])
    return f"{name} is {ours}, the limit {bound}"


def shown(name: str, amount: float, digits: int = 3) -> str:
    """An amount in the unit of a limit: `0.5 s`, `24 GiB`, `1.52 J per token`, `300 W`."""
    if name in (SERVER_MEMORY, GPU_MEMORY):
        unit, size = ("GiB", 2**30) if amount >= 2**30 else ("MiB", 2**20)
        return f"{_plain(amount / size, digits)} {unit}"
    return f"{_plain(amount, digits)} {({JOULES: 'J per token', POWER: 'W'}).get(name, 's')}"


def _plain(number: float, digits: int) -> str:
    """Digits that count, never as a power of ten where people would not: 1200, not 1.2e+03."""
    return f"{number:.{digits}g}" if number < 10**digits else f"{number:.0f}"


_PREFIXES = ("", "k", "m", "g", "t")


def bytes_of(text: str) -> float:
    """Bytes of a text such as `24 GiB`, `800 MB` or `1.5e9`. Raises ValueError."""
    found = re.fullmatch(r"\s*(\d+\.?\d*(?:e\d+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if found is None:
        raise ValueError(f"{text!r} is no amount of memory: write e.g. 24 GiB, 800 MB, or a number of bytes")
    size = 1024 if found[3] else 1000
    return float(found[1]) * float(size ** _PREFIXES.index(found[2]))
