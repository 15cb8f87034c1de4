import math

import pytest

from analysis.parity import (
    CacheCounts,
    cache_gap,
    is_thinking,
    length_gap,
    length_report,
    workload_kind,
    workload_warnings,
)
from results.reasons import Reason
from tests.analysis.build import request


def test_length_differences_do_not_cancel() -> None:
    assert length_gap({"a": 100, "b": 100}, {"a": 100, "b": 100}) == 0.0
    assert length_gap({"a": 100, "b": 100}, {"a": 90, "b": 110}) == pytest.approx(0.1)
    assert length_gap({"a": 100, "b": 100}, {"a": 100}) == pytest.approx(0.5)
    assert length_gap({"a": 100}, {"a": 100, "b": 100}) == pytest.approx(1.0)
    assert (length_gap({}, {}), length_gap({}, {"a": 1})) == (0.0, 1.0)


def test_signs_that_depend_on_the_prompts_counted_are_inconclusive() -> None:
    base = [request("short", 0, 1, tokens=100), request("same", 0, 2, tokens=100)]
    cand = [request("short", 0, 3, tokens=500), request("same", 0, 2.5, tokens=100)]
    found = length_report(base, cand)
    assert found.matched_prompts == ("same",)
    assert found.mismatch_share == 0.5
    assert found.log_speedup_all == pytest.approx(math.log((600 / 5.5) / (200 / 3)))
    assert found.log_speedup_matched == pytest.approx(math.log(2 / 2.5))
    assert found.inconclusive


def test_only_prompts_answered_by_both_are_counted() -> None:
    base = [request("a", 0, 1, tokens=10), request("b", 0, 1, tokens=None, error="connection refused")]
    cand = [request("a", 0, 0.5, tokens=10), request("b", 0, 9, tokens=10)]
    found = length_report(base, cand)
    assert found.prompts == 1
    assert found.log_speedup_all == found.log_speedup_matched == pytest.approx(math.log(2))
    assert not found.inconclusive


def test_no_matched_prompt_is_inconclusive() -> None:
    found = length_report([request("a", tokens=10)], [request("a", tokens=11)])
    assert (found.mismatch_share, found.log_speedup_matched, found.inconclusive) == (1.0, None, True)
    assert length_report([], []).mismatch_share == 0.0


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


def test_kind_of_workload() -> None:
    plain, reasons = request(), request(reasoning_text="hm")
    assert workload_kind([plain, plain]) == "answers"
    assert workload_kind([reasons]) == "thinking"
    assert workload_kind([plain, reasons]) == "mixed"
    assert workload_kind([request(error="x")]) == "nothing"


def test_warnings_say_what_was_seen() -> None:
    assert workload_warnings([request(), request()]) == ()
    assert workload_warnings([request(reasoning_text="hm")]) == ()
    (found,) = workload_warnings([request(text="", reasoning_text="hm")])
    assert found.startswith("1 of 1 replies have no answer text")


def test_prefix_cache_hit_rates_may_differ_by_a_point() -> None:
    assert cache_gap(CacheCounts(1000, 500), CacheCounts(1000, 495)) is None
    assert cache_gap(CacheCounts(0, 0), CacheCounts(0, 0)) is None
    found = cache_gap(CacheCounts(1000, 500), CacheCounts(1000, 480))
    assert found is not None and found.reason is Reason.CONFOUNDED
