"""Cells whose load a server cannot admit, on the stand-in engine: left out of both arms, the others stay."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from launchers.fake import FakeEngine
from launchers.fake_server import FakeEndpoint
from launchers.launcher import Endpoint
from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.records import BASELINE, Block, Cell, Phase, Point, Trial, TrialState
from results.store import RunFolder
from sweeps.block import Blocks
from sweeps.gate import Gate
from sweeps.prepare import prepare
from sweeps.study import best_of, finalists
from sweeps.sweep import Sweep
from sweeps.trial import trial_of
from tests.records import request, trial

POINT = Point("fake-ngram", {"n": 4, "m": 8})
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
        "patience": {"client_share": 1, "min_window_s": 0, "hopeless_ratio": 0, "reruns": 0},
        **changes,
    }
    engine = queueing(*limited)(lambda point, _: 150.0 if point.is_baseline else 450.0)
    plan = replace(prepare(Sweep.model_validate(content)), engine=engine)
    folder = RunFolder(tmp_path / "run")
    folder.create()
    return Blocks(plan.setup(folder), [], lambda phase, point: None)([POINT], phase)


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


def test_waiting_in_a_queue_makes_no_point_hopeless(tmp_path: Path) -> None:
    """Requests of a Cell that was not admitted are forgotten, by the gate and as a reference."""
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
    other = Point("fake-ngram", {"n": 8, "m": 8})
    whole = trial(1, POINT, 0.1, by_cell={ALONE.label: 0.2, FULL.label: 0.0})
    part = trial(2, other, 0.3, by_cell={ALONE.label: 0.3}, limited=(FULL.label,))
    assert best_of([whole, part]) == whole
    assert finalists([part, whole], 2, 0.02) == [POINT, other]
