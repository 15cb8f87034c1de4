"""Cells whose load a server cannot admit, on the stand-in engine: left out of both arms, the others stay."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from analysis.findings import best_trial
from launchers.fake import FakeEngine
from launchers.fake_server import FakeEndpoint
from launchers.launcher import Endpoint
from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.records import BASELINE, Block, Cell, Phase, Point, Trial, TrialState
from results.sharing import Alone
from results.store import RunFolder
from sweeps.blocks import Blocks, blocks_here
from sweeps.gate import Gate
from sweeps.prepare import prepare
from sweeps.study import best_of, finalists
from sweeps.sweep import Sweep
from sweeps.trial import trial_of
from tests.records import request, trial

POINT = Point("fake-ngram", {"n": 4, "m": 8})
OTHER = Point("fake-ngram", {"n": 8, "m": 8})
ALONE, FULL = Cell("chat", "closed(1)"), Cell("chat", "closed(2)")
GRID = [{"closed": 1}, {"closed": 2}]


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """The windows of these tests are short."""
    with patch("sweeps.admission.PERIOD_S", 0.01):
        yield


def queueing(*points: Point) -> type[FakeEngine]:
    """An engine in which one request runs and one waits, with these Points."""

    class Queueing(FakeEngine):
        def admission(self, endpoint: Endpoint) -> tuple[int, int] | None:
            assert isinstance(endpoint, FakeEndpoint)
            return (1, 1) if endpoint.point in points else (2, 0)

    return Queueing


def measured(tmp_path: Path, *limited: Point, phase: Phase = Phase.SEARCH, **changes: object) -> Block:
    content = {
        "engine": "fake",
        "workload": {"max_tokens": 40, "prompts_per_class": 1, "classes": ["chat"]},
        "load": GRID,
        "patience": {
            "client_share": 1,
            "min_window_s": 0,
            "hopeless_ratio": 0,
            "reruns": 0,
            "foreign_cores": 100,
        },
        **changes,
    }
    engine = queueing(*limited)(lambda point, _: 150.0 if point.is_baseline else 450.0)
    plan = replace(prepare(Sweep.model_validate(content)), engine=engine)
    folder = RunFolder(tmp_path / "run")
    folder.create()
    return blocks_here(plan.setup(folder), [], Alone(0), lambda phase, point: None)([POINT], phase)


FULL_FIRST = [{"closed": 2}, {"closed": 1}]


def by_cell(
    tmp_path: Path, limited: Point, speeds: dict[str, tuple[float, float]], **changes: object
) -> Blocks:
    """Blocks in which a speed is scripted for (baseline, POINT) in every Cell, by the prompts that it has."""
    content = {
        "engine": "fake",
        "workload": {"max_tokens": 20, "prompts_per_class": 3, "classes": ["chat"]},
        "load": FULL_FIRST,
        "pairing": "together",
        "patience": {
            "client_share": 1,
            "min_window_s": 0,
            "hopeless_ratio": 0.6,
            "reruns": 0,
            "foreign_cores": 100,
        },
        **changes,
    }
    plan = prepare(Sweep.model_validate(content))
    texts = {p.content[-2]: w.cell.label for w in plan.windows[Phase.SEARCH] for p in w.prompts}
    engine = queueing(limited)(
        lambda point, cell: speeds.get(cell, (400.0, 400.0))[not point.is_baseline],
        class_of=lambda prompt: texts.get(prompt, ""),
    )
    folder = RunFolder(tmp_path / "run")
    folder.create()
    return blocks_here(replace(plan, engine=engine).setup(folder), [], Alone(0), lambda phase, point: None)


def judged(block: Block) -> Trial:
    return trial_of(block, 1, POINT, "start", objective="tokens_per_s", limits={})


@pytest.mark.parametrize("pairing", ["adjacent", "together"])
@pytest.mark.parametrize("who", [BASELINE, POINT])
def test_one_cell_is_left_out_of_both_arms_and_the_other_stays(
    tmp_path: Path, who: Point, pairing: str
) -> None:
    block = measured(tmp_path, who, pairing=pairing)
    assert block.invalid is None, block.invalid
    limited = {arm.point.key: [m.cell for m in arm.measurements if m.capacity_limited] for arm in block.arms}
    assert limited == {BASELINE.key: [FULL] * (who == BASELINE), POINT.key: [FULL] * (who == POINT)}
    found = judged(block)
    assert (found.state, found.failure) == (TrialState.MEASURED, None)
    assert [*found.by_cell] == [ALONE.label]
    assert found.log_speedup == found.by_cell[ALONE.label]
    assert found.log_speedup > math.log(1.5)  # scripted: 3
    assert found.limited == ((FULL.label,) if who == POINT else ())
    assert RunFolder(tmp_path / "run").blocks() == [block]


def test_a_candidate_that_admits_nothing_fails_with_the_reason(tmp_path: Path) -> None:
    found = judged(measured(tmp_path, POINT, load=[{"closed": 2}]))
    assert found.failure is not None and found.failure.reason is Reason.CAPACITY_LIMITED
    assert f"{FULL.label}: requests waited in 100.0% of" in found.failure.evidence


@pytest.mark.parametrize("pairing", ["adjacent", "together"])
def test_a_baseline_that_admits_nothing_ends_the_sweep(tmp_path: Path, pairing: str) -> None:
    with pytest.raises(MeasurementInvalid, match="the baseline cannot be measured") as error:
        measured(tmp_path, BASELINE, load=[{"closed": 2}], pairing=pairing)
    assert error.value.reason is Reason.CAPACITY_LIMITED


def test_arms_that_share_no_cell_fail_the_trial_not_the_block(tmp_path: Path) -> None:
    block = measured(tmp_path, POINT)
    baseline, arm = (block.arm(p) for p in (BASELINE, POINT))
    assert baseline is not None and arm is not None
    alone = replace(baseline.measurements[0], capacity_limited="requests waited")
    torn = replace(block, arms=(replace(baseline, measurements=(alone, *baseline.measurements[1:])), arm))
    found = judged(torn)
    assert found.failure is not None and found.failure.reason is Reason.CAPACITY_LIMITED
    assert "the baseline: requests waited" in found.failure.evidence


@pytest.mark.parametrize(("who", "hopeless"), [(POINT, False), (OTHER, True)])
def test_waiting_in_a_queue_makes_no_point_hopeless(tmp_path: Path, who: Point, hopeless: bool) -> None:
    """It is as slow where it was admitted: then it is hopeless."""
    run = by_cell(tmp_path, who, {FULL.label: (400.0, 80.0)})
    run([POINT], Phase.SEARCH)  # the baseline's times are known from here on
    arm = run([POINT], Phase.SEARCH).arm(POINT)
    assert arm is not None and arm.failure is None
    assert arm.stopped_early is hopeless


@pytest.mark.parametrize("who", [BASELINE, OTHER])
def test_a_baseline_that_waited_is_no_reference(tmp_path: Path, who: Point) -> None:
    """Against its slow requests of that Cell the Point would look fast, and never be hopeless."""
    run = by_cell(tmp_path, who, {FULL.label: (60.0, 400.0), ALONE.label: (400.0, 120.0)})
    run([POINT], Phase.SEARCH)
    arm = run([POINT], Phase.SEARCH).arm(POINT)
    assert arm is not None
    assert arm.stopped_early is (who == BASELINE)


def test_a_baseline_that_ended_with_the_others_is_not_judged_by_what_it_saw(tmp_path: Path) -> None:
    """It was full in the first Cell; the second was never measured, since the only Point had failed."""
    run = by_cell(tmp_path, BASELINE, {})
    with patch.object(FakeEngine, "reset_cache", lambda self, endpoint: fail_if_speculating(endpoint)):
        block = run([POINT], Phase.SEARCH)
    baseline, arm = block.arm(BASELINE), block.arm(POINT)
    assert baseline is not None and arm is not None
    assert (baseline.failure, baseline.complete) == (None, False)
    assert arm.failure is not None and arm.failure.reason is Reason.HANG


def fail_if_speculating(endpoint: Endpoint) -> bool:
    """Not in the warm-up, which has no Cell: the server has counted nothing but that by then."""
    assert isinstance(endpoint, FakeEndpoint)
    if endpoint.speculating and endpoint.counts["drafts"] > 20:
        raise MeasurementInvalid(Reason.HANG, "scripted")
    return True


def test_the_gate_forgets_a_cell() -> None:
    gate = Gate({(cell.label, str(i)): 0.01 for cell in (ALONE, FULL) for i in range(3)}, 0.6)
    slow = [request(str(i), sent_s=0.0, ended_s=9.0, output_tokens=10) for i in range(3)]
    assert [gate.watch(FULL)(r) for r in slow] == [True, True, False]
    gate.forget(FULL)
    assert not gate.is_shut
    assert gate.speed_ratio == 1.0
    quick = [request(str(i), sent_s=0.0, ended_s=0.05, output_tokens=10) for i in range(3)]
    assert all(gate.watch(ALONE)(r) for r in quick)
    assert gate.speed_ratio == pytest.approx(2.0)
    gate.forget(Cell("chat", "closed(8)"))  # never seen


def test_a_mean_over_fewer_cells_is_no_reason_to_be_first() -> None:
    """The Cell that is missing is as a rule the one with the least to gain."""
    whole = trial(1, POINT, 0.1, by_cell={ALONE.label: 0.2, FULL.label: 0.0})
    part = trial(2, OTHER, 0.3, by_cell={ALONE.label: 0.3}, limited=(FULL.label,))
    assert best_of([whole, part]) == best_trial([whole, part]) == whole
    assert finalists([part, whole], 2, 0.02) == [POINT, OTHER]
