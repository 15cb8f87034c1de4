"""Blocks on the stand-in engine: real HTTP, scripted speeds and faults."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from launchers.engines.engine import Recount, SlotDrafts
from launchers.engines.llamacpp.engine import LlamaCpp
from launchers.fake import FakeEngine
from launchers.fake_server import Fault
from launchers.launcher import Endpoint
from launchers.telemetry import HostWindow
from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.records import (
    BASELINE,
    AcceptanceState,
    Block,
    Cell,
    Phase,
    Point,
    SpecCounters,
    Telemetry,
    TrialState,
)
from results.sharing import Alone
from results.store import RunFolder
from sweeps.arm import Arm, Turn
from sweeps.blocks import Blocks, blocks_here
from sweeps.load import Job, LoadResult, Target, drive
from sweeps.pace import Pace
from sweeps.prepare import prepare
from sweeps.sweep import Sweep
from sweeps.trial import trial_of
from tests.records import request

POINT = Point("fake-ngram", {"n": 4, "m": 8})
OTHER = Point("fake-ngram", {"n": 1, "m": 4})
PATIENT = {
    "client_share": 1,
    "foreign_cores": 100,
    "min_window_s": 0,
    "hopeless_ratio": 0.6,
    "stall_timeout_s": 1,
    "reruns": 0,
}
SMALL = {"max_tokens": 40, "prompts_per_class": 3, "classes": ["code_edit", "chat"]}


def blocks(
    tmp_path: Path,
    fault: Fault | None = None,
    speed: Callable[[Point, str], float] = lambda point, _: 300.0 if point.is_baseline else 900.0,
    at: Point = POINT,
    engine: type[FakeEngine] = FakeEngine,
    **changes: object,
) -> Blocks:
    content = {"engine": "fake", "workload": SMALL, "patience": PATIENT, **changes}
    scripted = engine(speed, fault=lambda point: fault if point == at else None)
    plan = replace(prepare(Sweep.model_validate(content)), engine=scripted)
    folder = RunFolder(tmp_path / "run")
    folder.create()
    return blocks_here(plan.setup(folder), [], Alone(0), lambda phase, point: None)


def slow_at_other(point: Point, _: str) -> float:
    return 100.0 if point == OTHER else 600.0


def reason_of(block: Block, point: Point = POINT) -> Reason | None:
    arm = block.arm(point)
    assert arm is not None
    return arm.failure.reason if arm.failure else None


@pytest.mark.parametrize("pairing", ["adjacent", "together"])
def test_both_arms_are_measured_in_every_cell(tmp_path: Path, pairing: str) -> None:
    run = blocks(tmp_path, pairing=pairing)
    block = run([POINT], Phase.SEARCH)
    assert block.invalid is None
    for arm in block.arms:
        assert [m.cell.workload_class for m in arm.measurements] == ["code_edit", "chat"]
        assert all(m.output_tokens == 3 * 40 and m.failed == 0 for m in arm.measurements)
    trial = trial_of(block, 1, POINT, "start", objective="tokens_per_s", limits={})
    assert trial.state is TrialState.MEASURED
    assert trial.log_speedup is not None
    assert trial.log_speedup > math.log(1.5)  # scripted: 3


@pytest.mark.parametrize("pairing", ["adjacent", "together"])
def test_a_block_may_hold_several_finalists(tmp_path: Path, pairing: str) -> None:
    block = blocks(tmp_path, pairing=pairing)([POINT, OTHER], Phase.CONFIRM)
    assert {arm.point.key for arm in block.arms} == {BASELINE.key, POINT.key, OTHER.key}
    assert block.outputs[POINT.key].identical_share == 1.0


def test_requests_logs_and_the_control_are_kept(tmp_path: Path) -> None:
    run = blocks(tmp_path)
    first, second = run([POINT], Phase.SEARCH), run([OTHER], Phase.SEARCH)
    folder = RunFolder(tmp_path / "run")
    assert folder.blocks() == [first, second]
    assert first.control is None
    assert second.control is not None
    assert second.control.identical_share == 1.0
    for arm in first.arms:
        assert len(folder.read_requests(arm.requests)) == 6
        assert (folder.logs / arm.log).exists()


@pytest.mark.parametrize("pairing", ["adjacent", "together"])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.REFUSES_TO_START, Reason.CONFIG_REJECTED),
        (Fault.DIES_UNDER_LOAD, Reason.SERVER_DIED),
        (Fault.HANGS, Reason.HANG),
        (Fault.IGNORES_SETTING, Reason.IGNORED_SETTING),
        (Fault.DOES_NOT_SPECULATE, Reason.NOT_SPECULATING),
        (Fault.GARBAGE, Reason.INVALID_OUTPUT),
        (Fault.ERROR_EVENT, Reason.REQUESTS_FAILED),
    ],
)
def test_a_fault_of_one_arm_is_named_and_never_a_number(
    tmp_path: Path, fault: Fault, reason: Reason, pairing: str
) -> None:
    block = blocks(tmp_path, fault, pairing=pairing)([POINT], Phase.CONFIRM)
    assert reason_of(block) is reason
    assert block.invalid is None
    trial = trial_of(block, 1, POINT, "start", objective="tokens_per_s", limits={})
    assert (trial.state, trial.log_speedup) == (TrialState.FAILED, None)


class OneSlotAcceptsNothing(FakeEngine):
    """The mean over the slots hides it; only the log tells."""

    def drafts_by_slot(self, endpoint: Endpoint) -> Sequence[SlotDrafts]:
        assert self.is_ready(endpoint)
        return (SlotDrafts(0, 561, 750), SlotDrafts(1, 0, 630), SlotDrafts(2, 0, 3))


@pytest.mark.parametrize("pairing", ["adjacent", "together"])
def test_one_slot_that_accepts_nothing_breaks_the_drafter(tmp_path: Path, pairing: str) -> None:
    block = blocks(tmp_path, engine=OneSlotAcceptsNothing, pairing=pairing)([POINT], Phase.CONFIRM)
    assert (reason_of(block), block.invalid) == (Reason.BROKEN_DRAFTER, None)
    (arm,) = (arm for arm in block.arms if arm.failure)
    assert arm.failure is not None
    assert "slot 1: 0 of 630; on the others 561 of 753" in arm.failure.evidence


def test_replies_that_only_reason_are_warned_about(tmp_path: Path) -> None:
    assert blocks(tmp_path / "sound")([POINT], Phase.CONFIRM).warnings == ()
    block = blocks(tmp_path / "thinks", Fault.ONLY_REASONS)([POINT], Phase.CONFIRM)
    assert reason_of(block) is None
    assert [warning.partition(":")[0] for warning in block.warnings] == [
        "mixed workload",
        "50% of the replies have no answer text; raise max_tokens if they reason",
    ]
    assert RunFolder(tmp_path / "thinks" / "run").blocks() == [block]


class CountsFullRoundsOnly(FakeEngine):
    """Partly accepted drafts are in the drafter's own counter alone."""

    def recount(self, endpoint: Endpoint) -> Recount | None:
        return Recount(server=SpecCounters(0, 115, 115), drafter=SpecCounters(81, 214, 115))


def test_a_drafter_that_contradicts_the_server_leaves_a_range(tmp_path: Path) -> None:
    block = blocks(tmp_path, engine=CountsFullRoundsOnly)([POINT], Phase.CONFIRM)
    arm = block.arm(POINT)
    assert arm is not None and arm.failure is None
    for acceptance in (m.acceptance for m in arm.measurements):
        assert (acceptance.state, acceptance.rate) == (AcceptanceState.COUNTERS_DISAGREE, None)
        assert acceptance.rate_range == pytest.approx((0.5374, 1.0), abs=5e-5)


CELL = Cell("chat", "closed(1)")


@pytest.mark.parametrize(
    ("told", "stopped_at_ratio", "state"),
    [
        ({"draft_n": 1010.0, "draft_n_accepted": 510.0}, None, AcceptanceState.MEASURED),
        ({"draft_n": 500.0, "draft_n_accepted": 500.0}, None, AcceptanceState.COUNTERS_DISAGREE),
        # requests that were cut are in the counters alone
        ({"draft_n": 500.0, "draft_n_accepted": 500.0}, 0.4, AcceptanceState.MEASURED),
        ({}, None, AcceptanceState.MEASURED),
    ],
)
def test_counters_are_compared_with_what_the_replies_say(
    told: dict[str, float], stopped_at_ratio: float | None, state: AcceptanceState
) -> None:
    arm = Arm(POINT, "arm", 40, LlamaCpp().counted_in_reply, stopped_at_ratio=stopped_at_ratio)
    requests = (request(output_tokens=700, engine_stats=told), request(output_tokens=200))
    arm.turns[CELL] = [Turn(requests, 2.0, SpecCounters(200, 1000, 500), Telemetry(2.0))]
    assert arm.record().measurements[0].acceptance.state is state


def test_replies_are_the_source_where_the_server_has_no_counters() -> None:
    def counted(stats: Mapping[str, float]) -> SpecCounters | None:
        return SpecCounters(int(stats["verify"]), 300, 150) if "verify" in stats else None

    arm = Arm(POINT, "arm", 40, counted)
    requests = [request(str(i), output_tokens=250, engine_stats={"verify": 100.0}) for i in range(2)]
    arm.turns[CELL] = [Turn((*requests, request("c", output_tokens=10)), 2.0, None, Telemetry(2.0))]
    acceptance = arm.record().measurements[0].acceptance
    assert acceptance.state is AcceptanceState.MEASURED
    assert acceptance.source == "the replies"
    assert acceptance.counters == SpecCounters(200, 600, 300)


@pytest.mark.parametrize("pairing", ["adjacent", "together"])
def test_a_baseline_that_fails_ends_the_sweep_with_the_reason(tmp_path: Path, pairing: str) -> None:
    patience = {**PATIENT, "reruns": 1}
    run = blocks(tmp_path, Fault.ERROR_EVENT, at=BASELINE, pairing=pairing, patience=patience)
    with pytest.raises(MeasurementInvalid, match="the baseline cannot be measured"):
        run([POINT], Phase.SEARCH)
    assert len(RunFolder(tmp_path / "run").blocks()) == 2  # the rerun is recorded as well


@pytest.mark.parametrize("pairing", ["adjacent", "together"])
def test_a_hopeless_point_is_stopped_early(tmp_path: Path, pairing: str) -> None:
    run = blocks(tmp_path, speed=slow_at_other, pairing=pairing)
    run([POINT], Phase.SEARCH)
    block = run([OTHER], Phase.SEARCH)
    arm = block.arm(OTHER)
    assert arm is not None
    assert arm.stopped_at_ratio is not None
    assert arm.stopped_at_ratio < 0.6
    assert sum(m.requests for m in arm.measurements) < 6
    trial = trial_of(block, 1, OTHER, "start", objective="tokens_per_s", limits={})
    assert trial.state is TrialState.HOPELESS
    assert trial.log_speedup == pytest.approx(math.log(arm.stopped_at_ratio))


def test_a_finalist_is_never_stopped_early(tmp_path: Path) -> None:
    run = blocks(tmp_path, speed=slow_at_other)
    run([POINT], Phase.CONFIRM)
    arm = run([OTHER], Phase.CONFIRM).arm(OTHER)
    assert arm is not None
    assert not arm.stopped_early


def test_an_unusable_block_is_run_again_and_given_up_at_last(tmp_path: Path) -> None:
    run = blocks(tmp_path, patience={**PATIENT, "foreign_cores": 1e-9, "reruns": 1})
    pressed = Telemetry(1.0, foreign_cores=0.5)
    with patch.object(HostWindow, "telemetry", pressed):
        assert reason_of_block(run([POINT], Phase.SEARCH)) is Reason.HOST_PRESSURE
        run([OTHER], Phase.SEARCH)
        with pytest.raises(MeasurementInvalid, match="3 Blocks in a row stayed unusable"):
            run([POINT], Phase.SEARCH)
    assert len(RunFolder(tmp_path / "run").blocks()) == 6


def reason_of_block(block: Block) -> Reason | None:
    return block.invalid.reason if block.invalid else None


def test_a_short_window_is_judged_on_the_baseline_alone(tmp_path: Path) -> None:
    run = blocks(tmp_path, patience={**PATIENT, "min_window_s": 0.2})  # 0.4 s of the baseline, 0.13 s
    assert reason_of(run([POINT], Phase.SEARCH)) is None


def test_concurrent_load_reaches_its_concurrency(tmp_path: Path) -> None:
    workload = {**SMALL, "prompts_per_class": 9, "classes": ["chat"]}
    load = [{"closed": 3}]
    run = blocks(tmp_path, speed=lambda *_: 100.0, workload=workload, load=load, pairing="together")
    block = run([POINT], Phase.CONFIRM)
    assert block.invalid is None, block.invalid
    for arm in block.arms:
        assert arm.measurements[0].concurrency > 2.5


class CountsTokens(FakeEngine):
    """Its count of tokens grows by this much more than our own replies have."""

    others = 0

    def generated_tokens(self, endpoint: Endpoint) -> int | None:
        self.asked = getattr(self, "asked", 0) + 1
        return (self.asked // 2) * (3 * 40 + self.others)


class ServesOthers(CountsTokens):
    others = 30


@pytest.mark.parametrize(("engine", "reason"), [(CountsTokens, None), (ServesOthers, Reason.OTHER_LOAD)])
def test_tokens_that_are_not_ours_are_noticed(
    engine: type[FakeEngine], reason: Reason | None, tmp_path: Path
) -> None:
    block = blocks(tmp_path, engine=engine)([POINT], Phase.CONFIRM)
    assert reason_of_block(block) is reason
    if block.invalid is not None:
        assert "30 tokens were generated for others beside our 120" in block.invalid.evidence


def test_the_warm_up_meets_the_shapes_of_prompts_and_of_batches(tmp_path: Path) -> None:
    sent: list[tuple[str, int]] = []

    def noting(target: Target, jobs: Sequence[Job], pace: Pace, **other: Any) -> LoadResult:
        sent.append((str(pace), len(jobs)))
        return drive(target, jobs, pace, **other)

    load = [{"closed": 1}, {"closed": 4}]
    run = blocks(tmp_path, load=load, workload={**SMALL, "prompts_per_class": 2})
    with patch("sweeps.arm.drive", noting):
        run([POINT], Phase.CONFIRM)
    one_arm = sent[: len(sent) // 2]
    assert one_arm[:2] == [("closed(1)", 2), ("closed(4)", 4)]  # a prompt of each class; one for each stream
    assert ("closed(4)", 8) in one_arm[2:]
