"""Many lanes: each does the work, a lost one is replaced, an error or a stop ends all."""

import threading
from collections.abc import Callable, Sequence

import pytest

from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.records import BASELINE, Block, Phase, Point
from sweeps.blocks import BlockRunner, Lane, LaneLost
from sweeps.lanes import ManyLanes
from tests.records import block
from tests.waiting import wait_for


class Machine:
    """An OpenLane that can be lost."""

    def __init__(self, name: str) -> None:
        self.name, self.is_lost, self.closed = name, False, 0

    def measure(
        self, number: int, points: Sequence[Point], phase: Phase, baseline: Point, *, alone: bool
    ) -> Block:
        if self.is_lost:
            raise LaneLost("its node is gone")
        return block(number, phase, [])

    def close(self) -> None:
        self.closed += 1


class Machines:
    """A Source that has so many machines and no more."""

    def __init__(self, count: int) -> None:
        self.left = [Machine(f"node {i}") for i in range(count)]
        self.given: list[Machine] = []

    def open(self, wanted: Callable[[], bool]) -> Machine | None:
        while wanted():
            if self.left:
                self.given.append(self.left.pop(0))
                return self.given[-1]
            threading.Event().wait(0.01)
        return None


def lanes_on(
    machines: Machines, count: int, notes: list[str], go_on: Callable[[], bool] = lambda: True
) -> ManyLanes:
    def blocks_of(lane: Lane) -> BlockRunner:
        def run(
            points: Sequence[Point], phase: Phase, baseline: Point = BASELINE, *, alone: bool = False
        ) -> Block:
            return lane.measure(0, points, phase, baseline, alone=alone)

        return run

    return ManyLanes(machines, count, blocks_of, notes.append, go_on)


def test_all_lanes_work_at_once_and_are_kept_for_the_next_stage() -> None:
    machines, notes = Machines(3), list[str]()
    lanes, together = lanes_on(machines, 3, notes), threading.Barrier(3, timeout=10)
    lanes.each(lambda run_block: [together.wait()].clear())
    lanes.each(lambda run_block: [together.wait()].clear())
    assert len(machines.given) == 3
    lanes.close()
    assert [m.closed for m in machines.given] == [1, 1, 1]
    assert notes == []


def test_a_lost_lane_is_replaced() -> None:
    machines, notes = Machines(2), list[str]()
    machines.left[0].is_lost = True
    done = []

    def work(run_block: BlockRunner) -> None:
        run_block([], Phase.SEARCH)
        done.append(1)

    lanes_on(machines, 1, notes).each(work)
    assert done == [1]
    assert [m.closed for m in machines.given] == [1, 0]
    assert notes == ["node 0 is lost (its node is gone): what it measured is measured elsewhere"]


def test_an_error_of_one_lane_is_raised_when_all_have_ended() -> None:
    def work(run_block: BlockRunner) -> None:
        raise MeasurementInvalid(Reason.START_FAILED, "no baseline")

    with pytest.raises(MeasurementInvalid, match="no baseline"):
        lanes_on(Machines(1), 2, []).each(work)  # the other lane has no machine, and does not wait for one


def test_who_waits_for_a_machine_can_be_stopped() -> None:
    goes_on = [True]
    lanes = lanes_on(Machines(0), 2, [], lambda: goes_on[0])
    waiting = threading.Thread(target=lambda: lanes.each(lambda run_block: None))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    goes_on[0] = False
    wait_for(lambda: not waiting.is_alive(), 10)
