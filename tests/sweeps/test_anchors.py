"""The Baseline launched once in a few trials: as true as beside every Point, for fewer launches."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, stdev

import pytest

from results.errors import UsageError
from results.reasons import Reason
from results.records import BASELINE, Block, Failure, GpuTelemetry, Point, Telemetry, Trial, TrialState
from sweeps.anchors import EARLIER, Measured, SearchBlocks, unrecorded
from sweeps.sweep import Sweep, parse_sweep
from sweeps.trial import trial_of
from tests.sweeps.machine import GAIN, Machine

POINTS = [Point("fake", {"n": n}) for n in range(12)]


def sweep(every: int | str = "auto") -> Sweep:
    return Sweep.model_validate({"engine": "fake", "budget": {"baseline_every": every}})


def search(
    machine: Machine,
    every: int | str = "auto",
    past: Sequence[Block] = (),
    go_on: Callable[[], bool] = lambda: True,
) -> tuple[SearchBlocks, list[str]]:
    notes: list[str] = []
    return SearchBlocks(machine, sweep(every), BASELINE, past, go_on=go_on, note=notes.append), notes


def measure_all(blocks: SearchBlocks, points: Sequence[Point] = POINTS) -> list[Measured]:
    found = [m for point in points for m in blocks.measure(point, "sampler")]
    return [*found, *blocks.close()]


def trial(measured: Measured) -> Trial:
    return trial_of(
        measured.block,
        1,
        measured.point,
        measured.source,
        objective="tokens_per_s",
        limits={},
        anchors=measured.anchors,
    )


def estimates(machine: Machine, every: int | str = "auto") -> list[float]:
    logs = [trial(m).log_speedup for m in measure_all(search(machine, every)[0])]
    return [log for log in logs if log is not None]


@pytest.mark.parametrize(("every", "launches"), [(1, 24), (2, 19), (4, 16), (6, 15), ("auto", 16)])
def test_the_baseline_is_launched_once_in_so_many_trials(every: int | str, launches: int) -> None:
    """n trials take n + n/k + 1 launches in place of 2n; `auto` begins with a Block of both."""
    machine = Machine()
    assert estimates(machine, every) == pytest.approx([GAIN] * 12)
    assert machine.launches == launches


def test_launches_fall_to_what_the_rule_says() -> None:
    machine, trials = Machine(), 400
    points = [Point("fake", {"n": n}) for n in range(trials)]
    measure_all(search(machine, 4)[0], points)
    assert machine.launches / (2 * trials) == pytest.approx((1 + 1 / 4) / 2, abs=0.002)


def test_steady_drift_cancels_between_two_anchors() -> None:
    """5 % an hour, which is 2 % over four trials: none of it is left."""
    machine = Machine(lambda hours: -0.05 * hours)
    assert estimates(machine, 4) == pytest.approx([GAIN] * 12, abs=1e-12)
    blocks, found = search(Machine(lambda hours: -0.05 * hours), 12)[0], []
    for point in POINTS[:11]:
        found += blocks.measure(point, "sampler")
    blocks._go_on = lambda: False  # stopped: no closing anchor
    last = trial([*found, *blocks.close()][-1])
    assert last.anchors == (0,)
    assert last.log_speedup == pytest.approx(GAIN - 0.05 * 11 * 0.1)


def wandering(seed: int) -> Callable[[float], float]:
    """A random walk: 1 % from one launch (six minutes) to the next, the same at the same time."""
    draw, path = random.Random(seed), [0.0]

    def level(hours: float) -> float:
        while len(path) <= round(hours * 10):
            path.append(path[-1] + draw.gauss(0, 0.01))
        return path[round(hours * 10)]

    return level


def test_a_wandering_machine_is_no_bias_and_less_error_than_the_last_anchor_alone() -> None:
    both, before_alone = [], []
    for seed in range(150):
        draw = random.Random(seed)
        machine = Machine(wandering(seed), lambda draw=draw: draw.gauss(0, 0.01))  # type: ignore[misc]
        for m in measure_all(search(machine, 4)[0]):
            both.append(_error(trial(m)))
            before_alone.append(_error(trial(replace(m, anchors=m.anchors[:1]))))
    assert abs(fmean(both)) < 3 * stdev(both) / math.sqrt(len(both) / 4)  # four share an anchor
    assert stdev(both) < 0.9 * stdev(before_alone)


def _error(measured: Trial) -> float:
    assert measured.log_speedup is not None
    return measured.log_speedup - GAIN


def test_a_cheap_start_has_the_baseline_in_every_block() -> None:
    machine = Machine(start_s=10.0)
    blocks, notes = search(machine)
    measure_all(blocks)
    assert all(len(b.arms) == 2 for b in machine.blocks)
    assert notes == []


def test_what_a_start_costs_is_measured_and_said() -> None:
    machine = Machine()
    blocks, notes = search(machine)
    measure_all(blocks, POINTS[:5])
    assert [len(b.arms) for b in machine.blocks] == [2, 1, 1, 1, 1, 1]
    assert notes == [
        "the baseline is launched once in 4 trials from here on: a start takes 300 s, a measurement 60 s"
    ]


def test_a_drifting_baseline_is_launched_more_often() -> None:
    """It changes by 2.5 % over five launches, which is more than the 2 % that count as the same."""
    machine = Machine(lambda hours: -0.05 * hours)
    blocks, notes = search(machine)
    measure_all(blocks)
    alone = "".join("B" if b.arms[0].point == BASELINE else "." for b in machine.blocks)
    assert alone == "B....B..B....B.B"
    assert "it changed by more than confirm.same_margin" in notes[1]


def test_an_invalid_anchor_is_launched_again_and_counts_for_nothing() -> None:
    machine = Machine(lambda hours: -0.05 * hours)
    machine.spoiled = {0, 6}
    found = [trial(m) for m in measure_all(search(machine, 4)[0], POINTS[:4])]
    assert {t.anchors for t in found} == {(1, 7)}
    assert [t.log_speedup for t in found] == pytest.approx([GAIN] * 4)


def test_failures_need_nothing_to_be_compared_with() -> None:
    """So the search knows them at once, and does not ask for their like meanwhile."""
    machine = Machine()
    machine.failing = {POINTS[1].key}
    machine.spoiled = {3}
    blocks, _ = search(machine, 4)
    found = [blocks.measure(point, "sampler") for point in POINTS[:3]]
    assert [[m.point for m in step] for step in found] == [[], [POINTS[1]], [POINTS[2]]]
    assert trial(found[1][0]).failure == Failure(Reason.HANG, "silent")
    assert trial(found[2][0]).failure == Failure(Reason.HOST_PRESSURE, "others")
    assert [m.point for m in blocks.close()] == [POINTS[0]]


def test_an_earlier_starts_anchor_is_not_taken_for_one_of_today() -> None:
    yesterday = Machine()
    measure_all(search(yesterday, 4)[0], POINTS[:2])
    today = Machine(lambda hours: 0.3)
    blocks, _ = search(today, 4, past=yesterday.blocks)
    assert [trial(m).log_speedup for m in measure_all(blocks, POINTS[2:4])] == pytest.approx([GAIN] * 2)
    assert today.blocks[0].arms[0].point == BASELINE


def test_stopped_in_a_group_nothing_more_is_launched() -> None:
    machine = Machine()
    blocks, _ = search(machine, 4, go_on=lambda: len(machine.blocks) < 3)
    for point in POINTS[:2]:
        blocks.measure(point, "sampler")
    found = [trial(m) for m in blocks.close()]
    assert [t.anchors for t in found] == [(0,), (0,)]
    assert machine.launches == 3


def test_after_a_kill_at_any_instant_every_measured_point_has_its_trial() -> None:
    machine = Machine(lambda hours: -0.05 * hours)
    everything = [trial(m) for m in measure_all(search(machine, 4)[0])]
    by_point = {t.point.key: t for t in everything}
    for kept in range(len(machine.blocks) + 1):
        blocks = machine.blocks[:kept]
        recorded = [t for t in everything if t.anchors[-1] < kept][:-1]  # the last line was not written
        found = {m.point.key: trial(m) for m in unrecorded(blocks, recorded)}
        candidates = {b.arms[0].point.key for b in blocks if b.arms[0].point != BASELINE}
        assert candidates == found.keys() | {t.point.key for t in recorded}
        assert all(t.source == EARLIER for t in found.values())
        for key, again in found.items():
            whole = by_point[key].anchors == again.anchors
            assert whole or again.anchors == by_point[key].anchors[:1]
            assert not whole or again.log_speedup == by_point[key].log_speedup


def limited(made: Block, power_limit_w: float) -> Block:
    """The Block as on a GPU with this power limit."""
    telemetry = Telemetry(2.0, gpus=(GpuTelemetry("GPU-a", "A", power_limit_w=power_limit_w),))
    (run,) = made.arms
    windows = tuple(replace(m, telemetry=telemetry) for m in run.measurements)
    return replace(made, arms=(replace(run, measurements=windows),))


def test_an_anchor_under_another_power_limit_is_none() -> None:
    machine = Machine()
    measure_all(search(machine, 4)[0], POINTS[:2])
    before, first, second, after = machine.blocks
    uncapped = [limited(made, 450.0) for made in (before, first, second)]
    for power_limit_w, last in ((450.0, 3), (300.0, 0)):
        found = unrecorded([*uncapped, limited(after, power_limit_w)], [])
        assert [m.anchors[-1].block for m in found] == [last, last]


def test_what_an_earlier_start_left_unrecorded_may_be_a_whole_block() -> None:
    machine = Machine()
    measure_all(search(machine, 1)[0], POINTS[:2])
    (left,) = unrecorded(machine.blocks, [trial(Measured(machine.blocks[0], POINTS[0], "start"))])
    assert (left.point, left.anchors) == (POINTS[1], ())
    assert trial(left).log_speedup == pytest.approx(GAIN)


def test_servers_that_take_turns_always_have_the_baseline_among_them() -> None:
    together = {"engine": "fake", "pairing": "together"}
    machine = Machine()
    blocks = SearchBlocks(
        machine, Sweep.model_validate(together), BASELINE, [], go_on=lambda: True, note=lambda _: None
    )
    assert all(trial(m).state is TrialState.MEASURED for m in measure_all(blocks))
    assert all(len(b.arms) == 2 for b in machine.blocks)
    with pytest.raises(UsageError, match="with `pairing: together` the baseline is in every Block"):
        parse_sweep("pairing: together\nbudget: {baseline_every: 3}")
