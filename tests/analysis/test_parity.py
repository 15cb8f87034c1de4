import math

import pytest

from analysis.parity import (
    cache_gap,
    cache_hit_rate,
    is_thinking,
    length_gap,
    length_report,
    workload_warnings,
)
from results.reasons import Reason
from results.records import Request
from tests.analysis.build import request


def test_length_differences_do_not_cancel() -> None:
    assert length_gap({"a": 100, "b": 100}, {"a": 100, "b": 100}) == 0.0
    assert length_gap({"a": 100, "b": 100}, {"a": 90, "b": 110}) == pytest.approx(0.1)
    assert length_gap({"a": 100, "b": 100}, {"a": 100}) == pytest.approx(0.5)
    assert length_gap({"a": 100}, {"a": 100, "b": 100}) == pytest.approx(1.0)
    assert (length_gap({}, {}), length_gap({}, {"a": 1})) == (0.0, 1.0)


def test_signs_that_depend_on_the_prompts_counted_are_told() -> None:
    base = [request("short", 0, 1, tokens=100), request("same", 0, 2, tokens=100)]
    cand = [request("short", 0, 3, tokens=500), request("same", 0, 2.5, tokens=100)]
    found = length_report(base, cand)
    assert found.matched_prompts == ("same",)
    assert found.log_speedup_all == pytest.approx(math.log((600 / 5.5) / (200 / 3)))
    assert found.log_speedup_matched == pytest.approx(math.log(2 / 2.5))
    assert found.sign_depends
    assert str(found) == (
        "1.64x over all 2 prompts, 0.80x over the 1 of equal length: the sign depends on which are counted"
    )


def test_only_prompts_answered_by_both_are_counted() -> None:
    base = [request("a", 0, 1, tokens=10), request("b", 0, 1, tokens=None, error="connection refused")]
    cand = [request("a", 0, 0.5, tokens=10), request("b", 0, 9, tokens=10)]
    found = length_report(base, cand)
    assert found.prompts == 1
    assert found.log_speedup_all == found.log_speedup_matched == pytest.approx(math.log(2))
    assert str(found) == "2.00x over all 1 prompts, 2.00x over the 1 of equal length"


def test_without_a_matched_prompt_there_is_one_estimate() -> None:
    found = length_report([request("a", tokens=10)], [request("a", tokens=11)])
    assert str(found) == "1.10x over all 1 prompts, and none has the same length in both arms"
    assert not found.sign_depends
    assert str(length_report([], [])).startswith("unknown over all 0 prompts")


@pytest.mark.parametrize(
    ("text", "reasoning", "thinks"),
    [
        ("42", "", False),
        ("42", "Let me see.", True),
        ("<think>Let me see.</think>42", "", True),
        ("<think>Let me", "", True),
        ("<think>\n\n</think>\n42", "", False),
        ("Use the <think> tag.", "", False),
    ],
)
def test_reasoning_is_seen_in_either_channel(text: str, reasoning: str, thinks: bool) -> None:
    assert is_thinking(request(text=text, reasoning_text=reasoning)) == thinks


def test_warnings_say_what_was_seen() -> None:
    plain, reasons = request(), request(reasoning_text="hm")
    assert workload_warnings([]) == workload_warnings([plain, plain]) == workload_warnings([reasons]) == ()
    assert workload_warnings([plain, request(reasoning_text="hm", error="x")]) == ()
    (mixed,) = workload_warnings([plain, plain, plain, reasons])
    assert mixed == "mixed workload: 25% of the replies reason, the others do not"
    (empty,) = workload_warnings([request(text=" ", reasoning_text="hm")])
    assert empty.startswith("100% of the replies have no answer text")


def cached(*hits: float | None, tokens: int = 1000) -> list[Request]:
    """Requests of prompts 0, 1, ... of which so many tokens were found in the cache (None = untold)."""
    stats = [{} if n is None else {"cache_n": n} for n in hits]
    return [request(str(i), prompt_tokens=tokens, engine_stats=s) for i, s in enumerate(stats)]


def test_prefix_cache_hit_rates_may_differ_by_a_point() -> None:
    assert cache_hit_rate(cached(500, 600)) == pytest.approx(0.55)
    assert cache_gap(cached(500), cached(491)) is None
    found = cache_gap(cached(500), cached(480))
    assert found is not None and found.reason is Reason.CONFOUNDED
    assert found.evidence == "prefix-cache hit rate 50.0% against 48.0%: 2.0 points apart"


def test_an_engine_that_tells_no_hits_has_no_gap() -> None:
    assert cache_hit_rate(cached(None)) is None
    assert cache_hit_rate([request(prompt_tokens=None, engine_stats={"cache_n": 0.0})]) is None
    assert cache_gap(cached(None), cached(1000)) is None
    assert cache_gap([], []) is None


def test_hits_are_compared_on_the_prompts_both_answered() -> None:
    assert cache_gap(cached(0, 1000), cached(0)) is None
