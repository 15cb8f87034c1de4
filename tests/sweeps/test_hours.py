"""A budget of hours ends a run within one Block, whatever happens: on a clock that Blocks alone move."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from results.reasons import Reason
from results.records import BASELINE, Block, Failure, Phase, Point
from results.store import RunFolder
from sweeps.block import LocalLane
from sweeps.run import CONFIRM_SHARE, Clock, run_sweep
from sweeps.session import ENDED_FILE, State, standing
from sweeps.sweep import Sweep
from tests.records import CELL, arm, block
from tests.sweeps.test_run import Recorder, plan

BLOCK_S = 600.0
MANY = {"fake-ngram": {"n": [1, 2, 3, 4, 5, 6, 7, 8], "m": [1, 2, 4, 8, 16, 32]}}
LONG = {"looks": [40, 50], "finalists": 2}


@dataclass
class FakeTime:
    """Stands in for the module `time`: only `advance` moves it."""

    now_s: float = 1_000_000.0

    def time(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    for module in ("sweeps.run", "sweeps.session"):
        monkeypatch.setattr(f"{module}.time", fake)
    scripted(monkeypatch, fake)
    return fake


def scripted(
    monkeypatch: pytest.MonkeyPatch, clock: FakeTime, spoiled: Callable[[int], bool] = lambda number: False
) -> None:
    """Every Block takes BLOCK_S for two arms; no Point is ever decided to be faster or slower."""

    def measure(
        self: LocalLane, number: int, points: Sequence[Point], phase: Phase, baseline: Point, *, alone: bool
    ) -> Block:
        began_at = clock.now_s
        clock.now_s += BLOCK_S * (1 + len(points)) / 2
        arms = [arm(baseline, {CELL: 100.0}), *(arm(p, {CELL: 101.0 + number % 2}) for p in points)]
        invalid = Failure(Reason.HOST_PRESSURE, "others") if spoiled(number) else None
        made = block(number, phase, arms, invalid)
        return type(made)(
            **{f: getattr(made, f) for f in made.__slots__}
            | {"started_at": began_at, "ended_at": clock.now_s, "compared_with": baseline}
        )

    monkeypatch.setattr(LocalLane, "measure", measure)


def run(tmp_path: Path, hours: float, stop_after: int = 1000, **changes: object) -> RunFolder:
    recorder, folder = Recorder(stop_after), RunFolder(tmp_path / "run")
    budget = {"trials": 200, "hours": hours, "baseline_trials": 3}
    planned = plan(**{"space": MANY, "confirm": LONG, "budget": budget, **changes})
    run_sweep(planned, folder, recorder, recorder.stopped)
    return folder


def longest_s(folder: RunFolder) -> float:
    return max(b.ended_at - b.started_at for b in folder.blocks())


def assert_within_one_block(folder: RunFolder, spent_s: float, hours: float) -> None:
    assert hours * 3600 - longest_s(folder) - 1 <= spent_s <= hours * 3600
    assert folder.read_json(ENDED_FILE)["out_of_time"] is True
    found = standing(folder)
    assert (found.state, found.why) == (State.FINISHED, "no further Block fits into its hours")


@pytest.mark.parametrize("hours", [2, 5.3, 10])
def test_a_run_ends_within_one_block_of_its_hours(tmp_path: Path, clock: FakeTime, hours: float) -> None:
    began_s = clock.now_s
    folder = run(tmp_path, hours)
    assert_within_one_block(folder, clock.now_s - began_s, hours)
    assert {b.phase for b in folder.blocks()} == {Phase.SEARCH, Phase.CONFIRM}


def test_tuning_the_baseline_counts(tmp_path: Path, clock: FakeTime) -> None:
    began_s = clock.now_s
    folder = run(tmp_path, 2, shared={"--batch": [1, 2, 4, 8]})
    assert any(t.point.is_baseline and t.blocks for t in folder.trials())
    assert_within_one_block(folder, clock.now_s - began_s, 2)


def test_starts_that_go_on_share_one_budget(tmp_path: Path, clock: FakeTime) -> None:
    spent_s = 0.0
    for stop_after in (3, 2, 1000):
        began_s = clock.now_s
        folder = run(tmp_path, 4, stop_after)
        spent_s += clock.now_s - began_s
        clock.now_s += 86_400  # a day without a run costs nothing
    assert_within_one_block(folder, spent_s, 4)
    blocks = folder.blocks()
    run(tmp_path, 4)
    assert folder.blocks() == blocks


def test_a_start_that_was_killed_counts_until_it_was_last_seen(tmp_path: Path, clock: FakeTime) -> None:
    folder, began_s = run(tmp_path, 4, stop_after=4), clock.now_s
    sessions = dict(folder.read_json("sessions.json"))
    spent_s = sessions["sessions"][0]["ended_at"] - sessions["sessions"][0]["began_at"]
    sessions["sessions"][0]["ended_at"] = None
    folder.write_json("sessions.json", sessions)
    clock.now_s = began_s = began_s + 5000
    run(tmp_path, 4)
    assert_within_one_block(folder, spent_s + clock.now_s - began_s, 4)


def test_blocks_that_are_run_again_count(
    tmp_path: Path, clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, clock, spoiled=lambda number: number % 3 != 0)
    began_s = clock.now_s
    patience = {"client_share": 1, "foreign_cores": 100, "min_window_s": 0, "reruns": 8}
    folder = run(tmp_path, 3, patience=patience)
    assert_within_one_block(folder, clock.now_s - began_s, 3)


def test_a_block_that_cannot_be_run_again_in_time_is_asked_again_later(
    tmp_path: Path, clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is given up for it: with more hours the same Point is measured."""
    scripted(monkeypatch, clock, spoiled=lambda number: number >= 2)
    folder = run(
        tmp_path, 1.2, patience={"client_share": 1, "foreign_cores": 100, "min_window_s": 0, "reruns": 100}
    )
    assert [t.failure.reason for t in folder.trials() if t.failure] == [Reason.HOST_PRESSURE]
    lost = folder.trials()[-1].point
    scripted(monkeypatch, clock)
    run(tmp_path, 4, patience={"client_share": 1, "foreign_cores": 100, "min_window_s": 0, "reruns": 100})
    assert any(t.point == lost and t.failure is None for t in folder.trials())


def test_without_hours_nothing_is_refused(tmp_path: Path, clock: FakeTime) -> None:
    unlimited = Clock(Sweep(), [block(0, Phase.SEARCH, [arm(BASELINE, {CELL: 1.0})])], 1e9)
    assert unlimited.may_search() and unlimited.may_confirm() and not unlimited.refused


def test_the_search_leaves_its_share_to_the_confirmation(tmp_path: Path, clock: FakeTime) -> None:
    folder = run(tmp_path, 10)
    searched = [b for b in folder.blocks() if b.phase is Phase.SEARCH]
    whole_s = sum(b.ended_at - b.started_at for b in searched)
    limit_s = 10 * 3600 * (1 - CONFIRM_SHARE)
    assert limit_s - BLOCK_S - 1 <= whole_s <= limit_s
