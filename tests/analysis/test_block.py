import math
from dataclasses import replace
from typing import Any

import pytest

from analysis.acceptance import SlotCounts
from analysis.block import (
    OBJECTIVES,
    Rules,
    arm_failure,
    client_share,
    figure,
    judge,
    limited_cells,
    log_speedup,
    mean_log_speedup,
)
from analysis.limits import limit_ratios
from results.reasons import Reason
from results.records import (
    BASELINE,
    Acceptance,
    AcceptanceState,
    Cell,
    Failure,
    GpuTelemetry,
    Quantiles,
    SpecCounters,
    Telemetry,
)
from tests.analysis.build import CHAT, CODE, FAST, arm, measurement, request

RULES = Rules(min_window_s=1.0)
GOOD = [request("a", text="a fine answer"), request("b", text="another answer")]
LOOP = "and again and again " * 20


def reason(failure: Failure | None) -> Reason | None:
    return failure.reason if failure else None


def test_a_clean_block_is_usable() -> None:
    arms = [arm(FAST, measurement()), arm(BASELINE, measurement())]
    assert judge(arms, {BASELINE.key: GOOD, FAST.key: GOOD}, RULES) is None
    assert arm_failure(arms[0], GOOD, RULES, baseline=arms[1], reference=GOOD) is None


def test_a_block_needs_its_baseline() -> None:
    assert reason(judge([arm(FAST, measurement())], {}, RULES)) is Reason.CONFOUNDED


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ({"foreign_cores": 0.09, "stolen_cores": 0.04, "memory_pressure": 0.04}, None),
        ({"foreign_cores": 0.11}, Reason.HOST_PRESSURE),
        ({"foreign_cores": 0.11, "server_cores": 1.9, "cores": 2}, Reason.HOST_PRESSURE),
        ({"foreign_cores": 0.11, "server_cores": 1.9, "cores": 8}, None),
        ({"foreign_cores": 2.1, "server_cores": 1.9, "cores": 8}, Reason.HOST_PRESSURE),
        ({"stolen_cores": 0.06}, Reason.HOST_PRESSURE),
        ({"memory_pressure": 0.06}, Reason.HOST_PRESSURE),
        ({"client_cores": 0.03, "cores": 1}, Reason.CLIENT_OVERHEAD),
        ({"client_cores": 0.03, "cores": 2}, None),
    ],
)
@pytest.mark.parametrize("disturbed", [BASELINE, FAST])
def test_what_disturbs_any_arm_spoils_the_block(
    readings: dict[str, Any], expected: Reason | None, disturbed: Any
) -> None:
    noisy = measurement(telemetry=Telemetry(2.0, **readings))
    arms = [arm(p, noisy if p is disturbed else measurement()) for p in (BASELINE, FAST)]
    assert reason(judge(arms, {}, RULES)) is expected
    assert arm_failure(arms[1], GOOD, RULES) is None  # never the candidate's fault


def test_client_share_without_a_reading() -> None:
    assert client_share(Telemetry(1.0)) is None
    assert client_share(Telemetry(1.0, client_cores=0.3)) == 0.3
    assert client_share(Telemetry(1.0, client_cores=0.1, cores=4)) == pytest.approx(0.025)
    assert client_share(Telemetry(1.0, client_cores=0.6, cores=4)) == 0.6


def test_a_failed_candidate_does_not_spoil_the_block_for_the_others_but_a_baseline_does() -> None:
    broken = [*GOOD, request("c", error="HTTP 500", tokens=None)]
    arms = [arm(BASELINE, measurement()), arm(FAST, measurement(failed=1, first_error="HTTP 500"))]
    assert judge(arms, {BASELINE.key: GOOD, FAST.key: broken}, RULES) is None
    assert reason(arm_failure(arms[1], broken, RULES)) is Reason.REQUESTS_FAILED
    assert reason(judge(arms, {BASELINE.key: broken}, RULES)) is Reason.REQUESTS_FAILED


@pytest.mark.parametrize("error", ["Connection refused", "[Errno 111] Connect call failed ('127.0.0.1', 1)"])
def test_a_refused_connection_means_a_dead_server_whichever_error_came_first(error: str) -> None:
    requests = [request("a", error="stream cut"), request("b", error=error)]
    found = arm_failure(arm(FAST, measurement(failed=2, first_error="stream cut")), requests, RULES)
    assert reason(found) is Reason.SERVER_DIED
    assert found is not None and error in found.evidence


def test_failures_count_from_the_summary_where_there_are_no_raw_records() -> None:
    run = arm(FAST, measurement(failed=1, first_error="HTTP 500"))
    assert arm_failure(run, (), RULES) == Failure(Reason.REQUESTS_FAILED, "1 of 2 requests failed: HTTP 500")


def test_the_run_s_own_failure_comes_first() -> None:
    hang = Failure(Reason.HANG, "no token for 60 s")
    assert arm_failure(arm(FAST, failure=hang), [request(error="connection refused")], RULES) is hang


def test_tokens_without_text_or_text_without_usage_are_unparsed() -> None:
    silent = [request("a", text="", tokens=20), request("b", text="", tokens=20)]
    found = arm_failure(arm(FAST, measurement()), silent, RULES)
    assert reason(found) is Reason.STREAM_UNPARSED
    assert found is not None and "40 tokens" in found.evidence
    no_usage = arm(FAST, measurement(output_tokens=None, tokens_per_s=None))
    assert reason(arm_failure(no_usage, GOOD, RULES)) is Reason.STREAM_UNPARSED
    thinking = [request("a", text="", reasoning_text="hm")]
    assert arm_failure(arm(FAST, measurement()), thinking, RULES) is None


def test_not_speculating_needs_every_cell_to_say_so() -> None:
    off = measurement(acceptance=Acceptance(AcceptanceState.NOT_SPECULATING, note="none was drafted"))
    assert reason(arm_failure(arm(FAST, off, off), GOOD, RULES)) is Reason.NOT_SPECULATING
    assert arm_failure(arm(FAST, off, measurement()), GOOD, RULES) is None
    assert arm_failure(arm(BASELINE, off), GOOD, RULES) is None


def test_a_drafting_baseline_is_confounded() -> None:
    drafting = Acceptance(AcceptanceState.UNKNOWN, counters=SpecCounters(5, 15, 3))
    assert (
        reason(arm_failure(arm(BASELINE, measurement(acceptance=drafting)), GOOD, RULES)) is Reason.CONFOUNDED
    )


def test_a_slot_that_accepts_nothing_breaks_the_arm() -> None:
    found = arm_failure(
        arm(FAST, measurement()), GOOD, RULES, slots=[SlotCounts(0, 561, 750), SlotCounts(1, 0, 630)]
    )
    assert reason(found) is Reason.BROKEN_DRAFTER
    assert found is not None
    assert found.evidence == "accepted draft tokens on slot 1: 0 of 630; on the others 561 of 750"


def test_a_slot_that_got_one_long_draft_is_no_evidence() -> None:
    eight_a_draft = Acceptance(AcceptanceState.MEASURED, counters=SpecCounters(200, 1600, 800))
    run = arm(FAST, measurement(acceptance=eight_a_draft))
    assert arm_failure(run, GOOD, RULES, slots=[SlotCounts(0, 800, 1592), SlotCounts(1, 0, 8)]) is None


def test_one_empty_reply_where_the_baseline_answers_fails_the_arm() -> None:
    one_empty = [GOOD[0], replace(GOOD[1], text="")]
    run = arm(FAST, measurement())
    assert reason(arm_failure(run, one_empty, RULES, reference=GOOD)) is Reason.INVALID_OUTPUT
    assert arm_failure(run, one_empty, RULES, reference=one_empty) is None


def test_loops_beyond_the_baseline_s_own_fail_the_arm() -> None:
    healthy = [request(str(i), text=f"answer number {i}, and it is fine") for i in range(20)]
    looping = [replace(r, text=LOOP) for r in healthy]
    run = arm(FAST, measurement())
    assert arm_failure(run, looping[:2] + healthy[2:], RULES, reference=healthy) is None
    found = arm_failure(run, looping[:3] + healthy[3:], RULES, reference=healthy)
    assert reason(found) is Reason.INVALID_OUTPUT
    # a small model loops here and there in both arms
    assert arm_failure(run, looping[:3] + healthy[3:], RULES, reference=healthy[:17] + looping[17:]) is None


def test_reasoning_although_declared_off() -> None:
    requests = [request("a"), request("b", reasoning_text="hm")]
    run = arm(FAST, measurement())
    found = arm_failure(run, requests, replace(RULES, thinking=False))
    assert reason(found) is Reason.CONFOUNDED
    assert found is not None and "1 of 2" in found.evidence
    for declared in (True, None):
        assert arm_failure(run, requests, replace(RULES, thinking=declared)) is None


def test_concurrency_below_what_was_asked_for() -> None:
    cell = Cell("chat", "closed(4)")
    assert arm_failure(arm(FAST, measurement(cell, concurrency=3.8)), GOOD, RULES) is None
    found = arm_failure(arm(FAST, measurement(cell, concurrency=3.79)), GOOD, RULES)
    assert reason(found) is Reason.CONCURRENCY_NOT_REACHED
    assert (
        arm_failure(arm(FAST, measurement(Cell("chat", "poisson(1)"), concurrency=0.1)), GOOD, RULES) is None
    )


def test_a_baseline_window_below_the_minimum_is_too_short() -> None:
    short = measurement(wall_s=0.9)
    baseline = arm(BASELINE, short)
    assert reason(judge([baseline, arm(FAST, short)], {}, RULES)) is Reason.TOO_SHORT
    assert reason(arm_failure(arm(FAST, short), GOOD, RULES)) is None  # faster, so shorter


def test_lengths_that_differ_by_more_than_two_percent_are_confounded() -> None:
    baseline = arm(BASELINE, measurement(tokens_by_prompt={"a": 100, "b": 100}))
    for tokens, expected in [(96, None), (95, Reason.CONFOUNDED), (105, Reason.CONFOUNDED)]:
        run = arm(FAST, measurement(tokens_by_prompt={"a": 100, "b": tokens}))
        assert reason(arm_failure(run, GOOD, RULES, baseline=baseline)) is expected


def test_an_arm_stopped_early_is_compared_on_the_prompts_it_got() -> None:
    baseline = arm(BASELINE, measurement(tokens_by_prompt={"a": 100, "b": 100}))
    part = measurement(tokens_by_prompt={"a": 100})
    assert arm_failure(arm(FAST, part, stopped_at_ratio=0.4), GOOD, RULES, baseline=baseline) is None
    assert reason(arm_failure(arm(FAST, part), GOOD, RULES, baseline=baseline)) is Reason.CONFOUNDED


def test_only_speculative_settings_may_differ() -> None:
    baseline = arm(BASELINE, measurement(), effective={"method": "none", "slots": 4})
    run = arm(FAST, measurement(), effective={"method": "eagle3", "num_steps": 3, "slots": 4})
    rules = replace(RULES, speculative_keys=frozenset({"method"}))
    assert arm_failure(run, GOOD, rules, baseline=baseline) is None
    capped = replace(run, effective={**run.effective, "slots": 2})
    found = arm_failure(capped, GOOD, rules, baseline=baseline)
    assert reason(found) is Reason.CONFOUNDED
    assert found is not None and "slots 4 -> 2" in found.evidence
    assert arm_failure(capped, GOOD, RULES, baseline=baseline) is None  # not compared
    side = replace(capped, point=replace(FAST, name="B"))
    assert arm_failure(side, GOOD, rules, baseline=baseline) is None  # a comparison is of other settings


def test_speedup_is_positive_when_better_whatever_the_objective() -> None:
    slow, quick = Quantiles(2.0, 2.0, 2.0), Quantiles(1.0, 1.5, 2.0)
    baseline = arm(BASELINE, measurement(tokens_per_s=100, ttft_s=slow))
    candidate = arm(FAST, measurement(tokens_per_s=200, ttft_s=quick))
    assert log_speedup(baseline, candidate) == {CHAT.label: pytest.approx(math.log(2))}
    assert log_speedup(baseline, candidate, "ttft_p50_s") == {CHAT.label: pytest.approx(math.log(2))}
    assert log_speedup(baseline, candidate, "ttft_p99_s") == {CHAT.label: pytest.approx(0.0)}
    assert log_speedup(candidate, baseline, "ttft_p50_s") == {CHAT.label: pytest.approx(-math.log(2))}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_names_a_figure(objective: str) -> None:
    names = ("ttft_s", "tpot_s", "chunk_gap_s", "end_to_end_s")
    each: dict[str, Any] = {name: Quantiles(1.0, 2.0, 3.0) for name in names}
    expected = {"p50": 1.0, "p95": 2.0, "p99": 3.0}.get(objective.removesuffix("_s")[-3:], 100.0)
    energy = GpuTelemetry("GPU-a", "A", energy_j=2.0)  # for 200 tokens
    found = measurement(telemetry=Telemetry(2.0, gpus=(energy,)), goodput_per_s=100.0, **each)
    assert figure(found, objective) == expected


def test_the_mean_over_cells_is_the_geometric_mean_of_ratios() -> None:
    baseline = arm(BASELINE, measurement(CHAT, 100), measurement(CODE, 10))
    candidate = arm(FAST, measurement(CODE, 40), measurement(CHAT, 100))
    assert mean_log_speedup(baseline, candidate) == pytest.approx(math.log(2))


@pytest.mark.parametrize("bad", [None, 0.0, math.nan, math.inf])
def test_a_cell_without_a_number_gives_no_mean(bad: float | None) -> None:
    baseline = arm(BASELINE, measurement(CHAT, 100), measurement(CODE, 10))
    candidate = arm(FAST, measurement(CHAT, 200), measurement(CODE, bad))
    assert set(log_speedup(baseline, candidate)) == {CHAT.label}
    assert mean_log_speedup(baseline, candidate) is None
    assert mean_log_speedup(candidate, baseline) is None
    assert mean_log_speedup(arm(BASELINE), arm(FAST)) is None


def test_a_cell_that_was_not_admitted_fails_no_arm_and_breaks_no_limit() -> None:
    """Requests waited there: concurrency, lengths and latencies are those of a queue."""
    busy = Cell("chat", "closed(8)")
    late = Quantiles(9.0, 9.0, 9.0)
    queue = measurement(
        busy, concurrency=1.0, tokens_by_prompt={"a": 5}, ttft_s=late, capacity_limited="requests waited"
    )
    alone = measurement(CHAT, ttft_s=Quantiles(0.1, 0.1, 0.1))
    run, baseline = arm(FAST, alone, queue), arm(BASELINE, alone, measurement(busy, concurrency=8.0))
    assert arm_failure(run, [], Rules(), baseline=baseline) is None
    limits = limit_ratios(run, {"ttft_p50_s": 1.0})
    assert limits["ttft_p50_s"] == pytest.approx(math.log(0.1))
    assert [*log_speedup(baseline, run)] == [*log_speedup(run, baseline)] == [CHAT.label]
    assert limited_cells(baseline, run) == {busy.label: f"{FAST.label}: requests waited"}
