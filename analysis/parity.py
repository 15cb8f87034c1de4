"""What must be equal between arms, or as declared: lengths, kind of workload, prefix-cache hits."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.summary import tokens_by_prompt
from results.reasons import Reason
from results.records import Failure, Request

MAX_HIT_RATE_GAP = 0.01  # one point between the prefix-cache hit rates of two arms


def length_gap(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """Sum over prompts of |tokens in b - tokens in a|, per token in a; a missing prompt differs wholly.

    Differences do not cancel: one answer shorter and another longer is a gap.
    """
    if not a:
        return 0.0 if not b else 1.0
    differences = sum(abs(b.get(p, 0) - a.get(p, 0)) for p in a.keys() | b.keys())
    return differences / max(sum(a.values()), 1)


@dataclass(frozen=True, slots=True)
class LengthReport:
    """Two estimates of one speed-up (log ratio of tokens per second spent on requests).

    `log_speedup_all` is over the prompts that both arms answered; `log_speedup_matched` over those
    with equal lengths. None = there is no such prompt.
    """

    prompts: int
    matched_prompts: tuple[str, ...]
    log_speedup_all: float | None
    log_speedup_matched: float | None

    @property
    def mismatch_share(self) -> float:
        """Prompts whose lengths differ, of those both arms answered."""
        return 1 - len(self.matched_prompts) / self.prompts if self.prompts else 0.0

    @property
    def inconclusive(self) -> bool:
        """The sign depends on which prompts are counted, or only unequal ones could be counted."""
        if self.log_speedup_all is None or self.log_speedup_matched is None:
            return True
        return self.log_speedup_all * self.log_speedup_matched < 0


def length_report(baseline: Sequence[Request], candidate: Sequence[Request]) -> LengthReport:
    """Compare the arms over the prompts both answered: all of them, and those of equal length."""
    lengths_a, lengths_b = tokens_by_prompt(baseline), tokens_by_prompt(candidate)
    shared = lengths_a.keys() & lengths_b.keys()
    matched = tuple(sorted(p for p in shared if lengths_a[p] == lengths_b[p]))
    return LengthReport(
        len(shared),
        matched,
        _log_speedup(baseline, candidate, shared),
        _log_speedup(baseline, candidate, set(matched)),
    )


def _log_speedup(a: Sequence[Request], b: Sequence[Request], prompts: set[str]) -> float | None:
    rates = [_tokens_per_s([r for r in arm if r.prompt_id in prompts]) for arm in (a, b)]
    return math.log(rates[1] / rates[0]) if all(rates) else None


def _tokens_per_s(requests: Sequence[Request]) -> float:
    good = [r for r in requests if r.error is None]
    spent = sum(r.ended_s - r.sent_s for r in good)
    return sum(r.output_tokens or 0 for r in good) / spent if spent > 0 else 0.0


def is_thinking(request: Request) -> bool:
    """Whether the reply reasons: in its own channel, or in the content if the server does not split it."""
    inline = request.text.lstrip().removeprefix("<think>")
    opened = inline != request.text.lstrip() and inline.split("</think>")[0].strip() != ""
    return bool(request.reasoning_text.strip()) or opened


def workload_kind(requests: Sequence[Request]) -> str:
    """What was measured: "answers", "thinking" (every reply reasons), "mixed" or "nothing"."""
    thinking = {is_thinking(r) for r in requests if r.error is None}
    if not thinking:
        return "nothing"
    return "mixed" if len(thinking) == 2 else "thinking" if thinking.pop() else "answers"


def workload_warnings(requests: Sequence[Request]) -> tuple[str, ...]:
    """What to tell about the kind of work measured; drafters do better on reasoning than on answers."""
    good = [r for r in requests if r.error is None]
    empty = sum(not r.text.strip() for r in good)
    found = []
    if workload_kind(good) == "mixed":
        count = sum(map(is_thinking, good))
        found.append(f"mixed workload: {count} of {len(good)} replies reason, the others do not")
    if empty:
        found.append(f"{empty} of {len(good)} replies have no answer text; raise max_tokens if they reason")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """Tokens looked up in the prefix cache over one window, and those found."""

    queries: int
    hits: int


def cache_gap(baseline: CacheCounts, candidate: CacheCounts) -> Failure | None:
    """CONFOUNDED if the prefix-cache hit rates of two arms are more than a point apart."""
    rates = [c.hits / c.queries if c.queries else 0.0 for c in (baseline, candidate)]
    gap = abs(rates[1] - rates[0])
    if gap <= MAX_HIT_RATE_GAP:
        return None
    shown = f"prefix-cache hit rate {rates[0]:.1%} against {rates[1]:.1%}: {100 * gap:.1f} points apart"
    return Failure(Reason.CONFOUNDED, shown)
