"""How figures are said to people: speed-ups as factors, times with units, reasons and terms in words."""

import math
import re

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


def count(number: int, noun: str) -> str:
    """`1 trial`, `3 trials`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


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


def _speedup_definition(objective: str, ours: str, theirs: str) -> str:
    if objective == ENERGY:
        ratio = f"Output tokens per joule of GPU energy of {ours} divided by those of {theirs}"
        scale = "1.25x takes 20 % less energy per token, 0.80x takes 25 % more"
    elif objective == GOODPUT:
        ratio = f"Requests per second within their limits of {ours} divided by those of {theirs}"
        scale = "1.20x is 20 % more, 0.80x is 20 % less; no request at all counts as half of one"
    elif objective in HIGHER_IS_BETTER:
        mean = ", the mean over requests," if objective != "tokens_per_s" else ""
        ratio = f"Output tokens per second{mean} of {ours} divided by those of {theirs}"
        scale = "1.20x is 20 % more, 0.80x is 20 % less"
    else:
        ratio = f"{_latency(objective)[0]} of {theirs} divided by that of {ours}"
        scale = "1.25x takes 20 % less time, 0.80x takes 25 % more"
    cells = "Over several Cells: the geometric mean."
    same = equally(objective).replace("as ", "equally ", 1)
    return f"{ratio}, in the same Blocks: 1.00x is {same}, {scale}. {cells}"


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
    Reason.LIMIT_EXCEEDED: "Loosen the limit, or accept that nothing keeps it.",
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

_DEFINITIONS = {
    "Baseline": (
        "The same server with speculation off and nothing else changed. Settings that both may have, if the "
        "sweep names any, are tuned for it first."
    ),
    "Block": (
        "One launch of the baseline and of the configuration, one right after the other on the same "
        "hardware, with the same prompts, in random order. Blocks are the unit of evidence; requests inside "
        "one launch are not independent and are never counted as such."
    ),
    "Cell": (
        "One class of prompts at one pace, such as chat @ closed(4): four chats in flight at all times. A "
        "speed-up holds for the Cells it was measured in and for no others."
    ),
    "Interval": (
        "The range that the true speed-up lies in, by Student's t. Confirmed: from its own Blocks, and wide "
        "enough to pay for every planned look at the data. Search estimate: one Block each, so at the 95 % "
        "level from the noise that other Blocks show; the luck of the best of many is not in it."
    ),
    "Search estimate": (
        "The speed-up seen while searching. The best of many is partly the luckiest of many (the winner's "
        "curse), so this number is optimistic for whatever ranks first."
    ),
    "Confirmed": (
        "Measured again with fresh servers on prompts that the search never saw. The only number to quote."
    ),
    "Stopped early": (
        "The trial was ended after a few prompts because it was far too slow; its speed-up is over those."
    ),
    "Failed": "There is no number, and the reason says why. A failed trial is never counted as a slow one.",
    "TTFT": (
        "Time to first token: from when the request was due to its first text. p50, p95, p99: half, 95 % "
        "and 99 % of requests are at or below; the median over Blocks is shown."
    ),
    "TPOT": "Time per output token within one request: (last text - first text) / (tokens - 1).",
    "Chunk gap": (
        "The pause between two pieces of text as they arrive, which is what a reader feels. Speculation "
        "sends several tokens per piece, so gaps can grow while TPOT shrinks."
    ),
    "Acceptance length": (
        "Tokens emitted per verification step, with the one that the model itself adds: from 1 (nothing "
        "accepted) to the number of drafted tokens + 1. A diagnosis, never the objective."
    ),
    "Acceptance per position": "Share of drafts that were accepted at least up to this position.",
    "Accepted / proposed": (
        "Draft tokens accepted per draft token proposed. Engines print other rates under the same name: some "
        "count the model's own token, and under a tree the branches that lose count as proposed."
    ),
    "Asked for": "The server changed the setting by itself; the trial is filed under what was in effect.",
    "LOSSY": (
        "A setting under which the output is not distributed as the model's own, such as an acceptance "
        "threshold below 1: fast, and another model in effect. Never a finalist."
    ),
    "Limits": (
        "Upper bounds of the sweep on latency, memory or energy. The worst Cell decides, over several Blocks "
        "the median one. A configuration that breaks one is never the winner, however fast it is."
    ),
    "Goodput": (
        "Requests per second of the steady window that kept the limits of a single request; a failed one "
        "never does. A request counts where it ended, its times from when it was due."
    ),
    "Energy per token": (
        "Energy of the server's GPUs over the whole window, by their own counter where they have one, "
        "divided by all output tokens of that window. CPU, memory and fans of the host are not in it."
    ),
    "Identical outputs": (
        "Share of prompts with the same text as the baseline's at temperature 0. The control compares the "
        "baseline with itself: what it loses is the noise of batching, not the fault of speculation."
    ),
    "Effect of a knob": (
        "Mean search estimate at its best value against its worst, among trials of that method and values "
        "tried at least twice. Other knobs varied too, so read it as a hint."
    ),
}


_OF_SEARCHES = frozenset(
    {"Baseline", "Search estimate", "Confirmed", "Stopped early", "Failed", "Asked for", "Effect of a knob"}
)
_OF_COMPARISONS = {
    "A and B": (
        "The two configurations, in the order they were named. B is measured against A; they may differ in "
        "anything but the load. Nothing was searched, so nothing is the best of many."
    ),
    "Block": (
        "One measurement of A and of B, adjacent in time, with the same prompts, in random order. Blocks are "
        "the unit of evidence; requests inside one are not independent and are never counted as such."
    ),
    "Interval": (
        "The range that the true speed-up lies in, by Student's t over Blocks, and wide enough to pay for "
        "every planned look at the data."
    ),
    "Identical outputs": (
        "Share of prompts to which B gives the same text as A at temperature 0. The control compares A with "
        "itself: what it loses is the noise of batching."
    ),
}


def definitions(
    objective: str = "tokens_per_s", same_margin: float = 0.02, *, comparison: bool = False
) -> dict[str, str]:
    """Every term of a report of this objective, in the order to print them."""
    arms = ("B", "A") if comparison else ("a configuration", "the baseline")
    others = {k: v for k, v in _DEFINITIONS.items() if k not in _OF_SEARCHES} | _OF_COMPARISONS
    return {
        "Speed-up": _speedup_definition(objective, *arms),
        "BETTER, WORSE, SAME, UNDECIDED": (
            f"BETTER: the whole interval lies above 1.00x. WORSE: below. SAME: it lies within "
            f"{100 * same_margin:g} % of 1.00x. UNDECIDED: none of these when the budget of Blocks was used "
            "up. INVALID: no valid measurement."
        ),
        **(others if comparison else _DEFINITIONS),
    }
