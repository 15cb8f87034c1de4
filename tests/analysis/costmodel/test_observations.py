"""What the model takes from the Blocks of a run, and what it leaves."""

from dataclasses import replace

import pytest

from analysis.costmodel.observations import observe
from results.reasons import Reason
from results.records import (
    Acceptance,
    AcceptanceState,
    ArmRun,
    Block,
    DraftShape,
    Failure,
    Phase,
    Point,
    Quantiles,
    SpecCounters,
)
from tests.records import CELL, arm, baseline_arm, block

POINT = Point("lookup", {"n": 4})
COUNTS = SpecCounters(10, 40, 20, (10, 6, 4, 0))


def candidate(speed: float = 150.0) -> ArmRun:
    run = arm(POINT, {CELL: speed})
    (window,) = run.measurements
    counted = Acceptance(AcceptanceState.UNKNOWN, counters=COUNTS)  # too few for a rate, enough for a cost
    window = replace(window, acceptance=counted, tokens_by_prompt={"p1": 70})
    return replace(run, measurements=(window,), shape=DraftShape(4, 4, 0))


def searched(run: ArmRun) -> Block:
    return block(1, Phase.SEARCH, [baseline_arm(), run])


def test_a_window_becomes_an_observation() -> None:
    (theirs,) = baseline_arm().measurements
    theirs = replace(theirs, end_to_end_s=Quantiles(0.05, 0.06, 0.07))  # the first token comes at 0.01
    baseline = replace(baseline_arm(), measurements=(theirs,))
    (seen,) = observe([block(1, Phase.SEARCH, [baseline, candidate()])], "tokens_per_s")
    assert seen.point == POINT
    assert seen.prompt_share == pytest.approx(0.2)
    assert seen.steps == 50  # 70 tokens, 20 of them accepted
    assert seen.length == pytest.approx(1.4)
    assert seen.step_cost == pytest.approx(1.4 * (100 / 150 - 0.2) / 0.8)


def test_a_window_that_was_all_prompt_tells_no_cost() -> None:
    assert observe([searched(candidate())], "tokens_per_s") == []


def test_time_per_output_token_has_no_prompt_in_it() -> None:
    (seen,) = observe([searched(candidate())], "tpot_p50_s")
    assert seen.prompt_share == 0
    assert seen.step_cost == pytest.approx(1.4)


def test_blocks_of_one_point_are_one_observation() -> None:
    both = [searched(candidate(150.0)), replace(searched(candidate(150.0)), number=2)]
    (seen,) = observe(both, "tpot_p50_s")
    assert seen.counts.drafts == 20
    assert seen.steps == 100


@pytest.mark.parametrize(
    "spoiled",
    [
        replace(searched(candidate()), phase=Phase.CONFIRM),
        replace(searched(candidate()), invalid=Failure(Reason.HOST_PRESSURE, "")),
        searched(replace(candidate(), shape=None)),
        searched(replace(candidate(), stopped_at_ratio=0.4)),
        searched(replace(candidate(), failure=Failure(Reason.HANG, ""))),
        searched(arm(POINT, {CELL: 150.0})),
    ],
)
def test_what_tells_no_cost_is_left_out(spoiled: Block) -> None:
    assert observe([spoiled], "tokens_per_s") == []


def test_other_objectives_are_no_time_per_token() -> None:
    assert observe([searched(candidate())], "ttft_p50_s") == []
    assert observe([searched(candidate())], "tokens_per_joule") == []


def test_a_block_without_a_baseline_is_compared_with_the_nearest_launch_of_it() -> None:
    launches = [block(1, Phase.SEARCH, [baseline_arm()]), block(2, Phase.SEARCH, [candidate()])]
    (seen,) = observe(launches, "tpot_p50_s")
    assert seen.log_speedup == observe([searched(candidate())], "tpot_p50_s")[0].log_speedup
    assert observe(launches[1:], "tpot_p50_s") == []
