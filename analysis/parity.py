"""What must be equal between arms, or as declared: lengths, kind of workload, prefix-cache hits."""

import math
from collections.abc import Callable, Mapping, Sequence
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
    def sign_depends(self) -> bool:
        """Whether the sign depends on which prompts are counted."""
        every, matched = self.log_speedup_all, self.log_speedup_matched
        return every is not None and matched is not None and every * matched < 0

    def __str__(self) -> str:
        """For evidence: both estimates, as factors."""
        shown = f"{_times(self.log_speedup_all)} over all {self.prompts} prompts"
        if self.log_speedup_matched is None:
            return f"{shown}, and none has the same length in both arms"
        equal = f"{_times(self.log_speedup_matched)} over the {len(self.matched_prompts)} of equal length"
        return f"{shown}, {equal}" + (": the sign depends on which are counted" * self.sign_depends)


def length_report(baseline: Sequence[Request], candidate: Sequence[Request]) -> LengthReport:
    """Compare the arms over the prompts both answered: all of them, and those of equal length."""
    arms = _shared(baseline, candidate)
    lengths_a, lengths_b = (tokens_by_prompt(arm) for arm in arms)
    matched = tuple(sorted(p for p in lengths_a if lengths_a[p] == lengths_b.get(p)))
    same = [[r for r in arm if r.prompt_id in matched] for arm in arms]
    return LengthReport(len(lengths_a), matched, _log_speedup(*arms), _log_speedup(*same))


def _times(log_ratio: float | None) -> str:
    return "unknown" if log_ratio is None else f"{math.exp(log_ratio):.2f}x"


def _log_speedup(a: Sequence[Request], b: Sequence[Request]) -> float | None:
    rates = [_tokens_per_s(arm) for arm in (a, b)]
    return math.log(rates[1] / rates[0]) if all(rates) else None


def _tokens_per_s(requests: Sequence[Request]) -> float:
    spent = sum(r.ended_s - r.sent_s for r in requests)
    return sum(r.output_tokens or 0 for r in requests) / spent if spent > 0 else 0.0


def is_thinking(request: Request) -> bool:
    """Whether the reply reasons: in its own channel, or in the content if the server does not split it."""
    inline = request.text.lstrip().removeprefix("<think>")
    opened = inline != request.text.lstrip() and inline.split("</think>")[0].strip() != ""
    return bool(request.reasoning_text.strip()) or opened


def workload_warnings(requests: Sequence[Request]) -> tuple[str, ...]:
    """What to tell about the kind of work measured; drafters do better on reasoning than on answers.

    In shares, so that Blocks of the same prompts say the same.
    """
    good = [r for r in requests if r.error is None]
    thinking, empty = (_share(good, of) for of in (is_thinking, _has_no_answer))
    found = []
    if 0 < thinking < 1:
        found.append(f"mixed workload: {thinking:.0%} of the replies reason, the others do not")
    if empty > 0:
        found.append(f"{empty:.0%} of the replies have no answer text; raise max_tokens if they reason")
    return tuple(found)


def _has_no_answer(request: Request) -> bool:
    return not request.text.strip()


def _share(requests: Sequence[Request], of: Callable[[Request], bool]) -> float:
    return sum(map(of, requests)) / len(requests) if requests else 0.0


def cache_gap(baseline: Sequence[Request], candidate: Sequence[Request]) -> Failure | None:
    """CONFOUNDED if the prefix-cache hit rates of two arms are more than a point apart.

    Only over the prompts both answered: an arm that was stopped early saw fewer.
    """
    rate_a, rate_b = (cache_hit_rate(arm) for arm in _shared(baseline, candidate))
    if rate_a is None or rate_b is None or abs(rate_b - rate_a) <= MAX_HIT_RATE_GAP:
        return None
    points = 100 * abs(rate_b - rate_a)
    shown = f"prefix-cache hit rate {rate_a:.1%} against {rate_b:.1%}: {points:.1f} points apart"
    return Failure(Reason.CONFOUNDED, shown)


def cache_hit_rate(requests: Sequence[Request]) -> float | None:
    """Prompt tokens found in the prefix cache (llama.cpp's `timings`), per prompt token; None if untold."""
    told = [r for r in requests if "cache_n" in r.engine_stats and r.prompt_tokens]
    tokens = sum(r.prompt_tokens or 0 for r in told)
    return sum(r.engine_stats["cache_n"] for r in told) / tokens if tokens else None


def _shared(a: Sequence[Request], b: Sequence[Request]) -> tuple[list[Request], list[Request]]:
    """The successful requests of two arms whose prompt both answered."""
    good_a, good_b = ([r for r in arm if r.error is None] for arm in (a, b))
    prompts = {r.prompt_id for r in good_a} & {r.prompt_id for r in good_b}
    return [r for r in good_a if r.prompt_id in prompts], [r for r in good_b if r.prompt_id in prompts]
