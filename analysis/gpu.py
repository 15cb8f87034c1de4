"""The GPUs of a window judged: what spoils it, what to know about it, and what a hang looks like."""

from collections.abc import Collection, Iterable, Sequence

from results.reasons import Reason
from results.records import ArmRun, Failure, GpuProcess, GpuTelemetry, Telemetry

# Slowed down to protect the card or its supply: by heat, by the board's own measure, by the power brake.
THROTTLING = ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown")
POWER_CAP = "sw_power_cap"  # the ordinary way to keep the power limit
MAX_THROTTLED_SHARE = 0.05  # of the samples of one window
NOTABLE_CAP_SHARE = 0.05  # from here on the power limit is worth a word
ONE_SIDED_CAP_SHARE = 0.25  # more than this between the arms: the limit weighs on one of them
MAX_CLOCK_GAP = 0.03  # between the arms' mean SM clocks
STOCK_TOLERANCE = 0.01  # of the default power limit

SPIN_UTILISATION = 0.95  # some kernel runs all the time ...
SPIN_POWER_SHARE = 0.40  # ... and does next to nothing: real work takes most of the limit

# XID errors of the hardware or the driver (NVIDIA's catalogue of XIDs). The others, such as 13, 31, 43 and
# 45, say that a program went wrong: that is the failure of its arm, and no rerun cures it.
HARDWARE_XIDS = {
    48: "double-bit memory error",
    62: "internal micro-controller halt",
    63: "memory row remapped",
    64: "row remapping failed",
    74: "NVLink error",
    79: "fallen off the bus",
    92: "high rate of single-bit memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "GSP timeout",
    120: "GSP error",
    140: "unrecovered memory error",
    **dict.fromkeys(range(144, 151), "NVLink error"),  # of NVLink 5, by its parts
}


def gpu_fault(telemetry: Telemetry, where: str, own_pids: Collection[int]) -> Failure | None:
    """What of the GPUs spoiled this window, so that the Block is rerun; None = nothing seen.

    `own_pids`: processes of any arm of the Block, which are on the GPUs together if all arms are up.
    """
    for judge in (_lost, _hardware_error, _throttled):
        for gpu in telemetry.gpus:
            if failure := judge(gpu, where):
                return failure
    found = (_foreign(gpu, where, own_pids) for gpu in telemetry.gpus)
    return next((failure for failure in found if failure is not None), None)


def _lost(gpu: GpuTelemetry, where: str) -> Failure | None:
    if not gpu.lost and 79 not in gpu.xids:
        return None
    return Failure(Reason.GPU_LOST, f"{where}: {named(gpu)} fell away after {gpu.samples} samples")


def _hardware_error(gpu: GpuTelemetry, where: str) -> Failure | None:
    errors = [f"XID {xid} ({HARDWARE_XIDS[xid]})" for xid in gpu.xids if xid in HARDWARE_XIDS]
    if gpu.ecc_errors:
        errors.append(f"{gpu.ecc_errors} new uncorrected memory errors (ECC)")
    return Failure(Reason.GPU_ERROR, f"{where}: {named(gpu)}: {', '.join(errors)}") if errors else None


def _throttled(gpu: GpuTelemetry, where: str) -> Failure | None:
    found = {r: gpu.throttled[r] for r in THROTTLING if gpu.throttled.get(r, 0.0) > MAX_THROTTLED_SHARE}
    if not found:
        return None
    reasons = ", ".join(f"{reason} in {share:.0%}" for reason, share in found.items())
    heat = "" if gpu.temperature_c is None else f", up to {gpu.temperature_c:.0f} °C"
    return Failure(Reason.THROTTLED, f"{where}: {named(gpu)}: {reasons} of {gpu.samples} samples{heat}")


def _foreign(gpu: GpuTelemetry, where: str, own_pids: Collection[int]) -> Failure | None:
    foreign = [p for p in gpu.processes if p.ours is False and p.pid not in own_pids and p.memory_bytes != 0]
    if not foreign:
        return None
    listed = ", ".join(map(_process, foreign))
    return Failure(Reason.FOREIGN_PROCESS, f"{where}: on {named(gpu)}: {listed}")


def _process(process: GpuProcess) -> str:
    name = f" ({process.name})" if process.name else ""
    size = "unknown memory" if process.memory_bytes is None else f"{process.memory_bytes / 2**20:.0f} MiB"
    return f"process {process.pid}{name} with {size}"


def own_pids(runs: Iterable[ArmRun]) -> frozenset[int]:
    """The processes on the GPUs that are of a server of these arms."""
    gpus = (gpu for run in runs for m in run.measurements for gpu in m.telemetry.gpus)
    return frozenset(p.pid for gpu in gpus for p in gpu.processes if p.ours)


def different_limits(runs: Sequence[ArmRun]) -> Failure | None:
    """A power limit that was changed between the arms of a Block: they did not have the same hardware."""
    first: dict[str, tuple[float, str]] = {}
    for run in runs:
        for gpu in (gpu for m in run.measurements for gpu in m.telemetry.gpus):
            if gpu.power_limit_w is None:
                continue
            limit_w, label = first.setdefault(gpu.uuid, (gpu.power_limit_w, run.point.label))
            if limit_w != gpu.power_limit_w:
                evidence = f"{limit_w:.0f} W for {label}, {gpu.power_limit_w:.0f} W for {run.point.label}"
                return Failure(Reason.CONFOUNDED, f"power limit of {named(gpu)}: {evidence}")
    return None


def gpu_warnings(baseline: Telemetry, candidate: Telemetry) -> tuple[str, ...]:
    """What to know about the GPUs before believing a comparison of two arms: one sentence of each kind."""
    theirs = {gpu.uuid: gpu for gpu in baseline.gpus}
    pairs = [(theirs[gpu.uuid], gpu) for gpu in candidate.gpus if gpu.uuid in theirs]
    notes = (
        baseline.gpu_mismatch,
        candidate.gpu_mismatch,
        _other_gpus(baseline.gpus, candidate.gpus),
        _not_stock(candidate.gpus),
        _power_cap(pairs),
        _clocks(pairs),
        _program_errors(candidate.gpus),
    )
    return tuple(dict.fromkeys(note for note in notes if note))


def _other_gpus(baseline: Sequence[GpuTelemetry], candidate: Sequence[GpuTelemetry]) -> str:
    theirs, ours = ([gpu.uuid for gpu in gpus] for gpus in (baseline, candidate))
    if not theirs or not ours or set(theirs) == set(ours):
        return ""
    return f"the baseline ran on other GPUs: {', '.join(theirs)}; this one on {', '.join(ours)}"


def _not_stock(gpus: Sequence[GpuTelemetry]) -> str:
    found = [
        f"{limit:.0f} W on {named(gpu)} (default {default:.0f} W)"
        for gpu in gpus
        if (limit := gpu.power_limit_w) and (default := gpu.default_power_limit_w)  # 0 W: not told
        if abs(limit - default) > STOCK_TOLERANCE * default
    ]
    return f"power limit not the default: {', '.join(found)}" if found else ""


def _program_errors(gpus: Sequence[GpuTelemetry]) -> str:
    found = {gpu.uuid: [str(x) for x in gpu.xids if x not in HARDWARE_XIDS] for gpu in gpus}
    told = [f"XID {', '.join(found[gpu.uuid])} on {named(gpu)}" for gpu in gpus if found[gpu.uuid]]
    return f"errors of a program on the GPUs: {', '.join(told)}" if told else ""


def _power_cap(pairs: Sequence[tuple[GpuTelemetry, GpuTelemetry]]) -> str:
    """A card at its power limit is how many cards run: no fault, also where one arm alone reaches it.

    That arm asks for more power, and would do so again: a rerun changes nothing, and the answer is right
    for this limit. But it may not be the answer under another one. Said of the GPU where it differs most.
    """
    shares = [
        (before.throttled.get(POWER_CAP, 0.0), gpu.throttled.get(POWER_CAP, 0.0), named(gpu))
        for before, gpu in pairs
    ]
    capped = [share for share in shares if max(share[:2]) >= NOTABLE_CAP_SHARE]
    if not capped:
        return ""
    theirs, ours, name = max(capped, key=lambda share: (abs(share[0] - share[1]), max(share[:2])))
    seen = (
        f"at the power limit: {len(capped)} of {len(pairs)} GPUs; {name} in {theirs:.0%} of the baseline's"
        f" samples, in {ours:.0%} here"
    )
    if abs(theirs - ours) <= ONE_SIDED_CAP_SHARE:
        return seen
    return f"{seen}: the limit weighs on one of them, so the result holds for this power limit only"


def _clocks(pairs: Sequence[tuple[GpuTelemetry, GpuTelemetry]]) -> str:
    """Of the GPU whose clock differs most."""
    known = [
        (before.sm_clock_hz, gpu.sm_clock_hz, named(gpu))
        for before, gpu in pairs
        if before.sm_clock_hz and gpu.sm_clock_hz
    ]
    theirs, ours, name = max(known, key=lambda clock: abs(clock[1] / clock[0] - 1), default=(1.0, 1.0, ""))
    if abs(ours / theirs - 1) <= MAX_CLOCK_GAP:
        return ""
    return (
        f"mean SM clock of {name}: {theirs / 1e6:.0f} MHz for the baseline, {ours / 1e6:.0f} MHz here"
        f" ({ours / theirs - 1:+.0%})"
    )


def spin(gpus: Sequence[GpuTelemetry]) -> str:
    """What GPUs say about a server that gives no token: busy at little power; "" = they do not say so.

    `gpus` are those of the time without a token.
    """
    busy = [
        (gpu.utilisation, gpu.power_w / gpu.power_limit_w)
        for gpu in gpus
        if (gpu.utilisation or 0.0) >= SPIN_UTILISATION and gpu.power_w and gpu.power_limit_w
    ]
    power_share = max((share for _, share in busy), default=1.0)
    if power_share > SPIN_POWER_SHARE:
        return ""
    which = "GPUs" if len(busy) == len(gpus) else f"{len(busy)} of {len(gpus)} GPUs"
    utilisation = min(used or 0.0 for used, _ in busy)
    return (
        f"{which} at {utilisation:.0%} with {power_share:.0%} of their power limit and no token:"
        " a spin, e.g. a collective that waits for a rank that never comes"
    )


def energy_gap(telemetry: Telemetry) -> str:
    """Why the energy of a window is not known; "" = it is."""
    if not telemetry.gpus:
        return "no GPU was seen at work for the server"
    if telemetry.gpu_mismatch:
        return telemetry.gpu_mismatch
    silent = [gpu for gpu in telemetry.gpus if gpu.energy_j is None]
    told = ", ".join(f"{named(gpu)} ({gpu.unknown.get('energy_j', 'unknown')})" for gpu in silent)
    return f"energy not told by {told}" if silent else ""


def named(gpu: GpuTelemetry) -> str:
    """For people: the model and the beginning of the UUID, which no other GPU of a machine shares."""
    return f"{gpu.name} {gpu.uuid[:12]}"
