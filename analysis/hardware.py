"""What the hardware did while it was measured, as tables: GPUs, energy, host. Pooled over valid Blocks."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict

from analysis import findings, places, words
from analysis.gpu import gpu_warnings, named
from analysis.report_input import ReportInput
from analysis.summary import merged_telemetry
from analysis.tables import Entry, Table
from results.records import Block, GpuTelemetry, Measurement, Point, Telemetry

NO_GPU = "No GPU was at work for these servers. What the host did stands in its place."
_IDLE = "gpu_idle"  # among the reasons for a clock, and no slowdown


def judged_points(report: ReportInput) -> list[Point]:
    """The baseline, then the finalists, or the best of the search: those that were measured anywhere."""
    compared_with = findings.compared_with(report.blocks)
    subject = findings.subject(report)
    others = [v.point for v in report.verdicts] or ([subject] if subject is not None else [])
    found = {p.key: p for p in (compared_with, *others) if findings.windows(p, report.blocks)}
    return [*found.values()]


def measured_points(report: ReportInput) -> list[Point]:
    """Whose hardware is shown: those of the judged points that were measured at the place shown."""
    return [p for p in judged_points(report) if _windows(p, report)]


def _noted(said: str, report: ReportInput) -> str:
    """A note with the sentence that says which of several places is shown, where there are several."""
    return f"{said} {places.only_of(_of_subject(report))}".strip()


def _windows(point: Point, report: ReportInput) -> list[Measurement]:
    """Those at the place that measured the subject most: two nodes are not one hardware."""
    place = places.busiest(_of_subject(report))
    return findings.windows(point, places.at(place, report.blocks))


def _of_subject(report: ReportInput) -> list[Block]:
    subject, valid = findings.subject(report), findings.valid(report.blocks)
    return [b for b in valid if subject is not None and b.arm(subject) is not None] or valid


def telemetry(point: Point, report: ReportInput) -> Telemetry:
    """The hardware of one Point over all its windows at one place."""
    return merged_telemetry([m.telemetry for m in _windows(point, report)])


def has_gpus(report: ReportInput) -> bool:
    return any(telemetry(point, report).gpus for point in measured_points(report))


def cautions(report: ReportInput) -> tuple[str, ...]:
    """What to know about the GPUs of the subject and the baseline, unless its verdict says so already."""
    points, subject, verdict = (
        measured_points(report),
        findings.subject(report),
        findings.best_verdict(report),
    )
    if len(points) < 2 or subject is None:
        return ()
    notes = gpu_warnings(telemetry(points[0], report), telemetry(subject, report))
    return tuple(note for note in notes if verdict is None or note not in verdict.warnings)


def in_short(report: ReportInput) -> str:
    """One line on the hardware of the subject, or of the baseline; "" = nothing was measured."""
    points = measured_points(report)
    if not points:
        return ""
    point = next((p for p in points if p == findings.subject(report)), points[0])
    seen = telemetry(point, report)
    if seen.gpus:
        return f"{_gpus_in_short(seen.gpus)}; {_energy_in_short(point, points[0], report)}"
    if seen.server_cores is None:
        return "no GPU"
    of = f" of {seen.cores}" if seen.cores else ""
    return f"no GPU; the server kept {seen.server_cores:.2f}{of} cores busy"


def _gpus_in_short(found: Sequence[GpuTelemetry]) -> str:
    names = Counter(gpu.name for gpu in found)
    listed = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in names.items())
    powers = [gpu.power_w for gpu in found if gpu.power_w is not None]
    return f"{listed} at {sum(powers):.0f} W" if powers else listed


def _energy_in_short(point: Point, reference: Point, report: ReportInput) -> str:
    ours, theirs = (joules_per_token(_windows(p, report)) for p in (point, reference))
    if not ours:
        return "energy unknown"
    compared = "" if not theirs or point == reference else f", baseline {_digits(theirs)} J"
    return f"{_digits(ours)} J per token{compared}"


def figures(report: ReportInput) -> list[dict[str, object]]:
    """The same for other programs."""
    return [
        {
            "configuration": point.label,
            "joules_per_token": joules_per_token(_windows(point, report)),
            **asdict(telemetry(point, report)),
        }
        for point in measured_points(report)
    ]


def gpus(report: ReportInput) -> Table:
    """Each GPU of each configuration."""
    rows = [_gpu_row(p, gpu) for p in measured_points(report) for gpu in telemetry(p, report).gpus]
    columns = (
        "Configuration",
        "GPU",
        "Busy",
        "Memory",
        "Power",
        "SM clock",
        "Hottest",
        "Held by",
        "PCIe",
    )
    note = _noted("Means over the windows of valid Blocks; memory and temperature at their highest.", report)
    return Table("gpus", "GPUs", columns, tuple(rows), frozenset(columns[2:7]), note)


def _gpu_row(point: Point, gpu: GpuTelemetry) -> tuple[Entry, ...]:
    limit = "" if gpu.power_limit_w is None else f" of {gpu.power_limit_w:.0f}"
    return (
        Entry(point.label, code=True),
        Entry(named(gpu)),
        _figure(gpu, "utilisation", words.percent),
        _memory(gpu),
        _figure(gpu, "power_w", lambda v: f"{v:.0f}{limit} W"),
        _figure(gpu, "sm_clock_hz", lambda v: f"{v / 1e6:.0f} MHz"),
        _figure(gpu, "temperature_c", lambda v: f"{v:.0f} °C"),
        Entry(_reasons(gpu)),
        _pcie(gpu),
    )


def _figure(gpu: GpuTelemetry, field: str, said: Callable[[float], str]) -> Entry:
    """A figure, or why there is none."""
    value: float | None = getattr(gpu, field)
    if value is not None:
        return Entry(said(value), value)
    refusal = gpu.unknown.get(field)
    return Entry(f"{words.UNKNOWN} ({refusal})" if refusal else words.UNKNOWN)


def _memory(gpu: GpuTelemetry) -> Entry:
    if gpu.memory_bytes is None and gpu.shared_memory_bytes is not None:
        return Entry(f"{_gib(gpu.shared_memory_bytes)} shared with the host", gpu.shared_memory_bytes)
    return _figure(gpu, "memory_bytes", _gib)


def _gib(number: float) -> str:
    return f"{number / 2**30:.1f} GiB"


def _reasons(gpu: GpuTelemetry) -> str:
    shares = sorted(gpu.throttled.items(), key=lambda item: -item[1])
    return ", ".join(f"{reason} {words.percent(share)}" for reason, share in shares if reason != _IDLE)


def _pcie(gpu: GpuTelemetry) -> Entry:
    sent, received = gpu.pcie_tx_bytes_per_s, gpu.pcie_rx_bytes_per_s
    if sent is None or received is None:
        return _figure(gpu, "pcie_tx_bytes_per_s", str)
    return Entry(f"{sent / 1e6:.1f} out, {received / 1e6:.1f} in MB/s", sent + received)


def energy(report: ReportInput) -> Table:
    """Energy per token of each configuration; no rows without GPUs."""
    points = measured_points(report) if has_gpus(report) else []
    known = {p.key: joules_per_token(_windows(p, report)) for p in points}
    reference = next(iter(known.values()), None)
    rows = [_energy_row(p, known[p.key], reference, telemetry(p, report)) for p in points]
    columns = ("Configuration", "Energy per token", "Tokens per joule", "Against the baseline", "From")
    said = "Of the server's GPUs alone, over whole windows: ramp, drain and all output tokens are in it."
    note = _noted(said, report)
    return Table("energy", "Energy", columns, tuple(rows), frozenset(columns[1:4]), note)


def joules_per_token(windows: Sequence[Measurement]) -> float | None:
    """Over all windows together; None if one of them does not know."""
    energies = [m.energy_j for m in windows if m.joules_per_token is not None]
    tokens = sum(sum(m.tokens_by_prompt.values()) for m in windows)
    known = [energy_j for energy_j in energies if energy_j is not None]
    return sum(known) / tokens if known and len(known) == len(windows) and tokens else None


def _energy_row(
    point: Point, joules: float | None, reference: float | None, seen: Telemetry
) -> tuple[Entry, ...]:
    sources = dict.fromkeys(gpu.energy_source.value for gpu in seen.gpus)
    gain = f"{reference / joules:.2f}x the tokens per joule" if joules and reference else words.UNKNOWN
    return (
        Entry(point.label, code=True),
        Entry(f"{_digits(joules)} J" if joules else words.UNKNOWN, joules),
        Entry(_digits(1 / joules) if joules else words.UNKNOWN, 1 / joules if joules else None),
        Entry(gain),
        Entry(", ".join(sources)),
    )


def _digits(number: float) -> str:
    """Three digits that count, `1.50`."""
    return f"{number:#.3g}".rstrip(".")


def host(report: ReportInput) -> Table:
    """The host under each configuration."""
    rows = [_host_row(p, telemetry(p, report)) for p in measured_points(report)]
    columns = ("Configuration", "Server", "Load client", "Others", "Stolen", "Memory", "Pressure", "Clock")
    note = _noted("Mean cores over the windows of valid Blocks; memory is the server's highest.", report)
    return Table("host", "Host", columns, tuple(rows), frozenset(columns[1:]), note)


def _host_row(point: Point, seen: Telemetry) -> tuple[Entry, ...]:
    cores = (seen.server_cores, seen.client_cores, seen.foreign_cores, seen.stolen_cores)
    memory, clock = seen.server_memory_bytes, seen.frequency_hz
    return (
        Entry(point.label, code=True),
        *(Entry(words.UNKNOWN if c is None else f"{c:.2f}", c) for c in cores),
        Entry(words.UNKNOWN if memory is None else _gib(memory), memory),
        Entry(words.percent(seen.cpu_pressure), seen.cpu_pressure),
        Entry(words.UNKNOWN if clock is None else f"{clock / 1e9:.2f} GHz", clock),
    )
