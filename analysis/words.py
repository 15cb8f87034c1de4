"""How figures are said to people: speed-ups as factors, times with units, reasons and terms in words."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from analysis.block import ENERGY, HIGHER_IS_BETTER
from analysis.goodput import GOODPUT
from results.reasons import Reason
from results.records import Effect, TrialState, VerdictKind

UNKNOWN = "unknown"
NARROW = 0.02  # an interval narrower than this needs a third decimal to be seen
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """Text of a log without terminal colours and control characters."""
    return _CONTROL.sub("", _TERMINAL_CODES.sub("", text))


def one_line(text: str) -> str:
    """Text of a log as one line."""
    return " ".join(clean(text).split())


def factor(log_ratio: float | None) -> float | None:
    """exp of a log ratio; None where there is none or it is no usable number."""
    if log_ratio is None or not math.isfinite(log_ratio) or abs(log_ratio) > 100:
        return None
    return math.exp(log_ratio)


def times(log_ratio: float | None, decimals: int = 2) -> str:
    """`1.23x`."""
    ratio = factor(log_ratio)
    return UNKNOWN if ratio is None else f"{ratio:.{decimals}f}x"


def times_with_interval(effect: Effect | None) -> str:
    """`1.23x (1.18x to 1.29x)`."""
    if effect is None:
        return UNKNOWN
    decimals = 3 if effect.high - effect.low < NARROW else 2
    low, middle, high = (times(v, decimals) for v in (effect.low, effect.log_ratio, effect.high))
    return f"{middle} ({low} to {high})"


def percent(share: float | None) -> str:
    """`87 %`; never rounded up to 100 % nor down to 0 %."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    rounded = f"{100 * share:.0f}"
    exact = f"{100 * share:.1f}" if rounded in ("0", "100") and share not in (0, 1) else rounded
    return f"{exact}\N{NO-BREAK SPACE}%"


def short_time(seconds: float | None) -> str:
    """A latency: `12.3 ms`, `1.24 s`."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def long_time(seconds: float) -> str:
    """A duration: `42 s`, `7 min`, `3 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def time_span(low_s: float, high_s: float) -> str:
    """`7 to 19 min`, `40 s to 3 min`; `7 min` if both read the same."""
    low, high = long_time(low_s), long_time(high_s)
    if low == high:
        return high
    number, _, unit = low.partition(" ")
    return f"{number if high.partition(' ')[2] == unit else low} to {high}"


def moment(unix_s: object) -> str:
    """`2026-11-30 09:12 UTC`."""
    if not isinstance(unix_s, int | float) or not 0 <= unix_s < 1e11:
        return UNKNOWN
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M} UTC"


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 trial`, `3 trials`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def listed(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


_LATENCIES = {
    "ttft": ("TTFT", "to the first token"),
    "tpot": ("TPOT", "per token"),
    "chunk_gap": ("chunk gap", "from one piece of text to the next"),
    "end_to_end": ("end-to-end time", "to the last token"),
}


def _latency(objective: str) -> tuple[str, str]:
    """Name and use of a latency: `TTFT p95`, `to the first token`."""
    metric, quantile, _ = objective.rsplit("_", 2)
    name, use = _LATENCIES[metric]
    return f"{name} {quantile}", use


def latency_name(latency: str) -> str:
    """`TTFT p95`, of `ttft_p95_s`."""
    return _latency(latency)[0]


def use_of(objective: str) -> str:
    """What a latency is the time of, e.g. `per token`; "" for a throughput."""
    return "" if objective in HIGHER_IS_BETTER else _latency(objective)[1]


def than_baseline(objective: str, server: str = "the same server without speculation") -> str:
    """What completes `1.21x` into a statement about this objective."""
    if objective == ENERGY:
        return f"the tokens per joule of {server}"
    if objective == GOODPUT:
        return f"the goodput of {server}"
    if objective in HIGHER_IS_BETTER:
        per_request = " per request" if objective != "tokens_per_s" else ""
        return f"the speed{per_request} of {server}"
    name, use = _latency(objective)
    return f"as fast {use} as {server} ({name})"


def signs(objective: str) -> tuple[str, str]:
    """What is above and what below the baseline."""
    other = {ENERGY: ("more frugal", "less frugal"), GOODPUT: ("better in goodput", "worse in goodput")}
    return other.get(objective, ("faster", "slower"))


def equally(objective: str) -> str:
    """What is at the baseline, e.g. `as fast`."""
    return {ENERGY: "as frugal", GOODPUT: "as good in goodput"}.get(objective, "as fast")


def signed_percent(log_ratio: float) -> str:
    """`+12.3 %`, of a log ratio."""
    return f"{100 * math.expm1(log_ratio):+.1f} %"


REASONS = {
    Reason.CONFIG_REJECTED: "The engine refused this combination of settings",
    Reason.UNSUPPORTED_FLAG: "This engine version has no such flag",
    Reason.START_OOM: "Not enough memory to start",
    Reason.START_TIMEOUT: "Not ready in the time allowed",
    Reason.START_FAILED: "The server ended before it was ready",
    Reason.NCCL_REJECTED: "NCCL refused its environment",
    Reason.CRASH_UNDER_LOAD: "The server crashed while serving",
    Reason.SERVER_DIED: "The server went away while serving",
    Reason.HANG: "No token on any stream for too long",
    Reason.WRONG_SERVER: "Another server answered",
    Reason.IGNORED_SETTING: "A requested setting did not take effect",
    Reason.NOT_SPECULATING: "Nothing was drafted although speculation was asked for",
    Reason.BROKEN_DRAFTER: "Almost no draft was accepted: the drafter is broken",
    Reason.INVALID_OUTPUT: "Garbage, loops or empty answers that the baseline does not give",
    Reason.STREAM_UNPARSED: "Tokens were counted but their text or their usage never came",
    Reason.SAMPLING_UNSUPPORTED: "A sampling field is refused or ignored when speculating",
    Reason.REQUESTS_FAILED: "At least one request ended in an error",
    Reason.CAPACITY_LIMITED: "The server could not admit the load",
    Reason.CONCURRENCY_NOT_REACHED: "Fewer requests were in flight than asked for",
    Reason.TOO_SHORT: "The measured window was too short",
    Reason.CONFOUNDED: "The two servers differed in more than speculation",
    Reason.HOST_PRESSURE: "Another load was on the machine",
    Reason.OTHER_LOAD: "Somebody else's requests were in the server",
    Reason.CLIENT_OVERHEAD: "The load client itself was the bottleneck",
    Reason.THROTTLED: "A GPU was slowed down by heat or by its power supply",
    Reason.FOREIGN_PROCESS: "Someone else's process was on a GPU of the server",
    Reason.GPU_LOST: "A GPU fell away",
    Reason.GPU_ERROR: "The driver reported an error of a GPU",
    Reason.ENERGY_UNKNOWN: "The energy of the GPUs is not known",
    Reason.TRACE_UNUSABLE: "The profiler wrote no trace, or one that says nothing",
    Reason.CLUSTER_LOST: "The head of the cluster did not answer any more",
    Reason.LIMIT_EXCEEDED: "Measured, but outside a limit of the sweep",
}

REMEDIES = {
    Reason.CONFIG_REJECTED: "Take what the quoted line names out of the fixed arguments or the space.",
    Reason.UNSUPPORTED_FLAG: "Update the server, or leave this setting out of the space.",
    Reason.START_OOM: "Give it a smaller context, fewer parallel requests or a smaller drafter.",
    Reason.START_TIMEOUT: "Allow more time to start; the log says what the server was doing.",
    Reason.START_FAILED: "Read the quoted line, then the log of that launch.",
    Reason.NCCL_REJECTED: "Take the NCCL setting that the quoted line names out of the space.",
    Reason.CRASH_UNDER_LOAD: "It is a defect of the engine: try another build, and report the quoted line.",
    Reason.SERVER_DIED: "Read the log of that launch; a kill without a word is most often lack of memory.",
    Reason.HANG: "The engine spins; if a first token really takes that long, raise the stall timeout.",
    Reason.WRONG_SERVER: "Stop the other server, or end what an earlier run left behind.",
    Reason.IGNORED_SETTING: "The engine rewrote it: take it out of the space or the fixed arguments.",
    Reason.NOT_SPECULATING: "Check that the drafter fits the model, and that n-grams can match.",
    Reason.BROKEN_DRAFTER: "Check that the drafter belongs to the model; else the engine is at fault.",
    Reason.INVALID_OUTPUT: "Never deploy it: loops look like perfect acceptance.",
    Reason.STREAM_UNPARSED: "The server must stream in OpenAI's format and report usage.",
    Reason.SAMPLING_UNSUPPORTED: "Both arms must sample alike: leave the field out of workload.sampling, or"
    " tune without this method.",
    Reason.REQUESTS_FAILED: "Read the quoted error; a server that refuses long prompts says so.",
    Reason.CAPACITY_LIMITED: "Ask for fewer requests at a time, or give the server more room for them.",
    Reason.CONCURRENCY_NOT_REACHED: "Use more prompts per class, or give the server more slots.",
    Reason.TOO_SHORT: "Use more prompts per class, or longer answers.",
    Reason.CONFOUNDED: "Force the output lengths, and fix in both servers what the evidence names.",
    Reason.HOST_PRESSURE: "Stop the other load and run the same command again.",
    Reason.OTHER_LOAD: "Keep other clients away from this server while it is measured.",
    Reason.CLIENT_OVERHEAD: "Ask for fewer requests at a time, or drive the load from a larger machine.",
    Reason.THROTTLED: "Cool the card or lower its power limit for both arms, and run the same command again.",
    Reason.FOREIGN_PROCESS: "End that process or give the server other GPUs; then run the command again.",
    Reason.GPU_LOST: "Reset the GPU or start the machine anew; dmesg tells the XID.",
    Reason.GPU_ERROR: "Look it up in NVIDIA's list of XIDs; a card with memory errors is to be replaced.",
    Reason.ENERGY_UNKNOWN: "Choose another objective, or GPUs whose driver tells power.",
    Reason.TRACE_UNUSABLE: "Read the quoted line, then the server's log; the verdict does not need a trace.",
    Reason.CLUSTER_LOST: "Start the cluster again, then the same command: what was recorded is kept.",
    Reason.LIMIT_EXCEEDED: "Loosen the limit, or accept that nothing keeps it.",
}

CALIBRATION = {
    "chunks_per_cpu_s": "Pieces of text that it reads in one CPU second",
    "overhead_s_per_chunk": "CPU seconds that each piece of text costs",
    "timing_error_p99_s": "Error of its clock on a piece of text, p99, seconds",
}

VERDICTS = {
    VerdictKind.BETTER: "faster than the baseline",
    VerdictKind.WORSE: "slower than the baseline",
    VerdictKind.SAME: "as fast as the baseline",
    VerdictKind.UNDECIDED: "not decided within the budget",
    VerdictKind.INVALID: "could not be measured validly",
}

STATES = {
    TrialState.MEASURED: "measured",
    TrialState.HOPELESS: "stopped early",
    TrialState.FAILED: "failed",
}
