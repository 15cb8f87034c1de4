"""Public failure reports restated: what the analysis must say about each."""

import math
import re

import pytest

from analysis.acceptance import SlotCounts, failed_slots, from_counters, reconcile
from analysis.block import Rules, arm_failure, judge, log_speedup
from analysis.output import is_degenerate
from analysis.parity import length_report, workload_warnings
from analysis.settings import changed
from analysis.summary import achieved_concurrency, capacity_limited, max_in_flight, summarise
from analysis.verdict import AnswerKind, answer, conclude
from results.reasons import Reason
from results.records import (
    BASELINE,
    AcceptanceState,
    Cell,
    Failure,
    Request,
    SpecCounters,
    Telemetry,
    VerdictKind,
)
from tests.analysis.build import CHAT, FAST, UNKNOWN, arm, block, measurement, request


def test_05_a_draft_model_that_never_drafts_is_not_speculating() -> None:
    timings = {"predicted_n": 300, "draft_n": 0, "draft_n_accepted": 0}
    counters = SpecCounters(0, timings["draft_n"], timings["draft_n_accepted"])
    acceptance = from_counters(counters, timings["predicted_n"], method_is_none=False)
    assert acceptance.state is AcceptanceState.NOT_SPECULATING
    assert (acceptance.rate, acceptance.length) == (None, None)
    found = arm_failure(arm(FAST, measurement(acceptance=acceptance)), [request()], Rules())
    assert found is not None and found.reason is Reason.NOT_SPECULATING


def test_11_defaults_that_changed_between_builds_are_named() -> None:
    line = r"n_max=(\d+), n_min=(\d+), p_min=([\d.]+)"
    logs = (
        "common_speculative_impl_draft_simple: - n_max=16, n_min=0, p_min=0.75",
        "common_speculative_impl_draft_simple: - n_max=3, n_min=0, p_min=0.00",
    )
    a, b = (
        {"n_max": int(m[1]), "n_min": int(m[2]), "p_min": float(m[3])}
        for log in logs
        if (m := re.search(line, log))
    )
    assert changed(a, b) == {"n_max": (16, 3), "p_min": (0.75, 0.0)}
    assert changed(a, a) == {}


def test_12_a_rate_of_one_by_construction_is_contradicted_by_another_source() -> None:
    server = from_counters(SpecCounters(81, 115, 115), 148, method_is_none=False, source="the counters")
    found = reconcile(server, SpecCounters(81, 214, 115), "the drafter")
    assert found.state is AcceptanceState.COUNTERS_DISAGREE
    assert found.rate is None
    assert found.rate_range is not None
    assert found.rate_range == pytest.approx((0.5374, 1.0), abs=5e-5)
    assert found.note == "the counters say 100.0%, the drafter 53.7%"


def test_12_a_single_source_that_says_almost_one_is_suspect() -> None:
    found = from_counters(SpecCounters(115, 345, 345), 460, method_is_none=False)
    assert "suspect" in found.note


PER_SLOT = """
slot print_timing: id  0 | task 1 | draft acceptance = 0.74800 (  561 accepted /   750 generated)
slot print_timing: id  1 | task 2 | draft acceptance = 0.00000 (    0 accepted /   630 generated)
slot print_timing: id  2 | task 3 | draft acceptance = 0.00000 (    0 accepted /     3 generated)
"""


def slot_counts() -> list[SlotCounts]:
    found = re.findall(r"id +(\d+) .*\( *(\d+) accepted / +(\d+) generated", PER_SLOT)
    return [SlotCounts(*map(int, counts)) for counts in found]


def test_20_one_collapsed_slot_fails_the_arm_that_the_mean_would_pass() -> None:
    slots = slot_counts()
    pooled = sum(s.accepted for s in slots) / sum(s.generated for s in slots)
    assert pooled == pytest.approx(561 / 1383)
    assert failed_slots(slots) == (1,)
    found = arm_failure(arm(FAST, measurement()), [request()], Rules(), slots=slots)
    assert found is not None and found.reason is Reason.BROKEN_DRAFTER


def test_20_an_empty_reply_under_load_fails_the_arm_without_any_counter() -> None:
    reference = [request(str(i), text="text") for i in range(3)]
    replies = [
        request("0", text="text", finish_reason="length"),
        request("1", text="", finish_reason="length"),
        request("2", text="ok"),
    ]
    found = arm_failure(arm(FAST, measurement()), replies, Rules(), reference=reference)
    assert found is not None and found.reason is Reason.INVALID_OUTPUT


GARBLED = " the!!!!" + "!!!!" * 6
ANSWER = "the capital of France is Paris, a city on the river Seine."


def test_24_the_fastest_trial_of_the_study_is_garbage_and_never_ranked() -> None:
    assert is_degenerate(GARBLED, ANSWER)
    run = arm(FAST, measurement(tokens_per_s=410.0))
    requests = [request("a", text=GARBLED, tokens=32, finish_reason="length")]
    found = arm_failure(run, requests, Rules(), reference=[request("a", text=ANSWER)])
    assert found is not None and found.reason is Reason.INVALID_OUTPUT

    quick = block(0, (FAST, {CHAT: math.log(410 / 130)}))
    rejected = arm(FAST, *run.measurements, failure=found)
    blocks = [block(n, (FAST, {CHAT: math.log(410 / 130)}), arms=(quick.arms[0], rejected)) for n in range(4)]
    verdicts = conclude(blocks, [FAST])
    assert verdicts[0].kind is VerdictKind.INVALID
    assert answer(verdicts).kind is AnswerKind.INVALID


def thinking_replies() -> list[Request]:
    return [
        request("0", text="", reasoning_text="long", tokens=300, finish_reason="length"),
        request("1", text="", reasoning_text="long", tokens=300, finish_reason="length"),
        request("2", text="42", tokens=12, finish_reason="stop"),
        request("3", text="text", tokens=300, finish_reason="length"),
    ]


def test_28_thinking_that_eats_the_cap_is_counted_and_warned_about() -> None:
    replies = thinking_replies()
    found = summarise(CHAT, replies, 4.0, UNKNOWN, Telemetry(4.0), max_tokens=300)
    assert found.empty_share == 0.5
    assert found.truncated_share == 0.75
    mixed, empty = workload_warnings(replies)
    assert mixed == "mixed workload: 50% of the replies reason, the others do not"
    assert empty.startswith("50% of the replies have no answer text")


def test_28_reasoning_although_off_was_asked_for_fails_the_run() -> None:
    run = arm(FAST, measurement())
    assert arm_failure(run, thinking_replies(), Rules(thinking=False)) is not None
    assert arm_failure(run, thinking_replies(), Rules(thinking=True)) is None


def decoded(prompt: str, tokens: int, decode_ms: float) -> Request:
    return request(prompt, 0.0, decode_ms / 1000, tokens=tokens)


def of_lengths(base: list[Request], spec: list[Request]) -> Failure | None:
    """What becomes of a candidate that gave these replies."""
    tokens = [{r.prompt_id: r.output_tokens for r in requests} for requests in (base, spec)]
    baseline, run = (
        arm(p, measurement(tokens_by_prompt=t)) for p, t in zip((BASELINE, FAST), tokens, strict=True)
    )
    return arm_failure(run, spec, Rules(), baseline=baseline, reference=base)


def test_31_unequal_lengths_give_two_estimates() -> None:
    base = [decoded("code_bash", 300, 2440), decoded("code_rust", 203, 1640), decoded("reason", 300, 2450)]
    spec = [decoded("code_bash", 187, 1300), decoded("code_rust", 300, 2380), decoded("reason", 300, 1700)]
    found = length_report(base, spec)
    assert (found.prompts, found.matched_prompts) == (3, ("reason",))
    assert found.log_speedup_all == pytest.approx(math.log((787 / 5.38) / (803 / 6.53)))
    assert found.log_speedup_matched == pytest.approx(math.log(2450 / 1700))
    failure = of_lengths(base, spec)
    assert failure is not None and failure.reason is Reason.CONFOUNDED
    assert failure.evidence.endswith("26.2% (1.19x over all 3 prompts, 1.44x over the 1 of equal length)")


def test_31_signs_that_depend_on_the_prompts_are_told() -> None:
    # slower where lengths are equal, faster only because its long answers are cheaper per token
    base = [decoded("short", 100, 1500), decoded("equal", 300, 2000)]
    spec = [decoded("short", 400, 2200), decoded("equal", 300, 2060)]
    found = length_report(base, spec)
    assert found.log_speedup_all is not None and found.log_speedup_all > 0
    assert found.log_speedup_matched is not None and found.log_speedup_matched < 0
    failure = of_lengths(base, spec)
    assert failure is not None and "the sign depends on which are counted" in failure.evidence


def test_32_a_baseline_that_died_half_way_is_no_denominator() -> None:
    refused = "connection refused"
    baseline = [
        request("code_1"),
        request("math_1"),
        request("chat_1", tokens=None, error=refused),
        request("summ_1", tokens=None, error=refused),
    ]
    spec = [request(p) for p in ("code_1", "math_1", "chat_1", "summ_1")]
    cells = [
        summarise(CHAT, requests, 4.0, UNKNOWN, Telemetry(4.0), max_tokens=None)
        for requests in (baseline, spec)
    ]
    arms = [arm(p, cell) for p, cell in zip((BASELINE, FAST), cells, strict=True)]
    found = judge(arms, {BASELINE.key: baseline, FAST.key: spec}, Rules())
    assert found == Failure(Reason.SERVER_DIED, "2 of 4 requests failed: connection refused")
    spoiled = block(0, arms=tuple(arms), invalid=found)
    (verdict,) = conclude([spoiled] * 4, [FAST])
    assert (verdict.kind, verdict.effect) == (VerdictKind.UNDECIDED, None)


def test_33_four_requests_one_after_the_other_are_not_concurrency_four() -> None:
    requests = [request(str(i), 2.0 * i, 2.0 * i + 2) for i in range(4)]
    assert max_in_flight(requests) == 1
    assert achieved_concurrency(requests) == pytest.approx(1.0)
    cell = Cell("chat", "closed(4)")
    found = summarise(cell, requests, 8.0, UNKNOWN, Telemetry(8.0), max_tokens=None)
    failure = arm_failure(arm(FAST, found), requests, Rules())
    assert failure is not None and failure.reason is Reason.CONCURRENCY_NOT_REACHED


def test_33_a_full_server_makes_the_cell_a_queueing_measurement() -> None:
    waiting = [3.0] * 909 + [0.0] * 91
    running = [107.1] * 1000
    found = capacity_limited(running, waiting, 128)
    assert found is not None and found.reason is Reason.CAPACITY_LIMITED
    assert "90.9%" in found.evidence and "107.1" in found.evidence


def test_47_prefix_cache_hits_that_differ_between_arms_confound_the_comparison() -> None:
    base, spec = (
        [request(str(i), prompt_tokens=1000, engine_stats={"cache_n": hits}) for i in range(100)]
        for hits in (975.0, 880.0)
    )
    found = arm_failure(arm(FAST, measurement()), spec, Rules(), reference=base)
    assert found is not None and found.reason is Reason.CONFOUNDED
    assert found.evidence == "prefix-cache hit rate 97.5% against 88.0%: 9.5 points apart"


def test_a_speedup_needs_a_number_on_both_sides() -> None:
    dead = arm(BASELINE, measurement(tokens_per_s=None, output_tokens=None))
    assert log_speedup(dead, arm(FAST, measurement())) == {}
