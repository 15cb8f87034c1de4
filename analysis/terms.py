"""What the words of a report mean."""

from analysis.block import ENERGY, HIGHER_IS_BETTER
from analysis.goodput import GOODPUT
from analysis.words import equally, latency_name

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
    "Expected": (
        "What a confirmation can be expected to show: the search estimate moved towards the mean of all, the "
        "more the larger the noise of one Block is beside the spread between the trials (empirical Bayes)."
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
    "Tokens/s": (
        "Output tokens per second of a Cell: what arrives in its steady window, by the server's own count, "
        "divided by the length of that window. Ramp and drain are left out."
    ),
    "In flight": "Requests open at the same time, by their timestamps; the mean while the load is steady.",
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
    "Drafts": "Verification steps that something was drafted for. Below 100 of them no rate is stated.",
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
    "Figures of a GPU": (
        "Busy: share of the time in which some kernel ran, however small it was. Power: of the board. SM "
        "clock: of its processors. Held by: what kept that clock down, in the driver's words, with the share "
        "of the samples. PCIe: what went out and came in."
    ),
    "Figures of the host": (
        "Server, load client, others: CPU cores that each of them kept busy. Stolen: cores that the "
        "hypervisor took. Pressure: share of the time in which some task waited for a CPU. Memory: the "
        "server's highest."
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
    {
        "Baseline",
        "Search estimate",
        "Expected",
        "Confirmed",
        "Stopped early",
        "Failed",
        "Asked for",
        "Effect of a knob",
    }
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
        ratio = f"{latency_name(objective)} of {theirs} divided by that of {ours}"
        scale = "1.25x takes 20 % less time, 0.80x takes 25 % more"
    cells = "Over several Cells: the geometric mean."
    same = equally(objective).replace("as ", "equally ", 1)
    return f"{ratio}, in the same Blocks: 1.00x is {same}, {scale}. {cells}"
