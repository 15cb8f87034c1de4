"""The search never pays twice, learns where failures are, and goes on from the records alone."""

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from results.reasons import Reason
from results.records import BASELINE, Failure, Point, Trial, TrialState
from sweeps.proposal import SURFACE
from sweeps.space import Space, build_space
from sweeps.study import SAMPLER, START, Search, best_of, finalists
from sweeps.sweep import KnobSpec
from tests.knobs_engine import SERVED, knobs_engine
from tests.records import trial


def whole_space() -> Space:
    return build_space(knobs_engine(), SERVED, {})


def search(
    tmp_path: Path, trials: int = 50, past: list[Trial] | None = None, space: Space | None = None
) -> Search:
    return Search(
        space or whole_space(), trials=trials, seed=1, journal=tmp_path / "study.log", past=past or []
    )


def run(searching: Search, value: float | None = None) -> list[tuple[Point, str]]:
    """Answer every question; a Point is better the more steps it has."""
    asked = []
    while (question := searching.ask()) is not None:
        point, source = question
        asked.append(question)
        score = 0.1 * float(point.knobs.get("steps", 0)) if value is None else value
        searching.tell(trial(len(asked), point, score, source=source))
    return asked


def stored(tmp_path: Path) -> list[optuna.trial.FrozenTrial]:
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "study.log")))
    return optuna.load_study(study_name=None, storage=storage).trials


def test_every_point_once_then_the_space_is_used_up(tmp_path: Path) -> None:
    asked = run(search(tmp_path))
    assert sorted(p.key for p, _ in asked) == sorted(whole_space().points)


def test_starting_points_come_first_and_neighbours_of_the_best_last(tmp_path: Path) -> None:
    asked = run(search(tmp_path, trials=10))
    sources = [source for _, source in asked]
    assert len(asked) == 10
    assert sources[:2] == [START, START]
    assert SAMPLER in sources
    assert SURFACE in sources
    best = Point("tree", {"steps": 5, "topk": 1})
    around = {p.key for p in whole_space().neighbours(best)}
    assert around <= {p.key for p, _ in asked}, "nothing beside the best is left out"


def test_the_same_seed_asks_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert run(search(tmp_path / "a", 8)) == run(search(tmp_path / "b", 8))


def test_nothing_is_left_running_and_nan_is_never_told(tmp_path: Path) -> None:
    first = search(tmp_path)
    first.ask()  # killed here: this question stays open in the journal
    run(search(tmp_path, trials=6))
    states = {t.state for t in stored(tmp_path)}
    assert optuna.trial.TrialState.RUNNING not in states
    assert all(t.value is None or math.isfinite(t.value) for t in stored(tmp_path))


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_or_missing_journal_is_rebuilt_from_trials(tmp_path: Path, damage: bytes | None) -> None:
    past = [trial(0, BASELINE, 0.0)]
    searching = search(tmp_path, trials=4)
    for point, _ in run(searching):
        past.append(trial(len(past), point, 0.1))
    journal = tmp_path / "study.log"
    journal.unlink() if damage is None else journal.write_bytes(damage)
    again = search(tmp_path, trials=6, past=past)
    asked = [p.key for p, _ in run(again)]
    assert len(asked) == 2
    assert not set(asked) & {t.point.key for t in past}
    assert len(stored(tmp_path)) >= 6


def test_failures_are_told_as_broken_constraints(tmp_path: Path) -> None:
    searching = search(tmp_path)
    asked = searching.ask()
    assert asked is not None
    searching.tell(trial(1, asked[0], None, failure=Failure(Reason.START_OOM, "no memory")))
    last = stored(tmp_path)[-1]
    assert last.state is optuna.trial.TrialState.PRUNED
    assert last.constraints["failed"] > 0


def test_failures_of_the_machine_teach_the_sampler_nothing(tmp_path: Path) -> None:
    searching = search(tmp_path)
    asked = searching.ask()
    assert asked is not None
    searching.tell(trial(1, asked[0], None, failure=Failure(Reason.HOST_PRESSURE, "a build ran")))
    assert stored(tmp_path)[-1].state is optuna.trial.TrialState.FAIL


def test_limits_are_graded_constraints(tmp_path: Path) -> None:
    searching = search(tmp_path)
    asked = searching.ask()
    assert asked is not None
    searching.tell(trial(1, asked[0], 0.5, limits={"ttft_p95_s": 0.2}))
    assert stored(tmp_path)[-1].constraints["ttft_p95_s"] == 0.2
    assert searching.best is None


def test_the_space_may_differ_from_what_was_measured(tmp_path: Path) -> None:
    gone = trial(1, Point("tree", {"steps": 16, "topk": 1}), 0.9)
    searching = search(tmp_path, trials=3, past=[gone])
    assert len(run(searching)) == 2


def test_it_does_not_come_back_to_where_servers_crash(tmp_path: Path) -> None:
    """A quarter of the Points crash, all wide trees with many draft tokens: one of them shows it."""
    wanted: dict[str, dict[str, KnobSpec]] = {
        "tree": {"steps": [1, 2, 3], "topk": [2, 3, 4, 5], "draft": [4, 5, 6, 7, 8, 9]}
    }
    space = build_space(knobs_engine(), SERVED, wanted)
    crash = Failure(Reason.CRASH_UNDER_LOAD, "selected index k out of range")

    def crashes(point: Point) -> bool:
        return int(point.knobs["topk"]) >= 4 and int(point.knobs["draft"]) >= 7

    launched = 0
    for seed in range(8):
        searching = Search(space, trials=24, seed=seed, journal=tmp_path / f"{seed}.log")
        while (question := searching.ask()) is not None:
            point, source = question
            launched += crashes(point)
            if crashes(point):
                searching.tell(trial(0, point, None, source=source, failure=crash))
            else:
                searching.tell(trial(0, point, 0.01 * int(point.knobs["draft"]), source=source))
    assert sum(map(crashes, space.points.values())) == len(space.points) / 4
    assert launched <= 8 * 4  # without looking at what is near: 44


def test_a_point_beside_a_crash_is_tried_if_its_other_neighbours_work(tmp_path: Path) -> None:
    searching = search(tmp_path, space=build_space(knobs_engine(), SERVED, {"lookup": {"kind": "plain"}}))
    asked = run(searching)
    assert len(asked) == 3  # n = 2, 4, 8: all of them, since nothing failed
    failed = trial(1, Point("lookup", {"n": 2, "kind": "plain"}), None, failure=Failure(Reason.HANG, ""))
    again = search(
        tmp_path, past=[failed], space=build_space(knobs_engine(), SERVED, {"lookup": {"kind": "plain"}})
    )
    assert len(run(again)) == 2  # doomed or not, what is left of the budget is for what is left


def test_ranking() -> None:
    points = [Point("lookup", {"n": n}) for n in range(5)]
    values = [-0.5, 0.2, 0.3, None, -0.01]
    trials = [
        trial(0, BASELINE, 0.0),
        *(trial(i + 1, p, v) for i, (p, v) in enumerate(zip(points, values, strict=True))),
    ]
    best = best_of(trials)
    assert best is not None
    assert best.point == points[2]
    assert finalists(trials, 3, 0.02) == [points[2], points[1], points[4]]
    assert finalists(trials, 1, 0.02) == [points[2]]
    slow = [trial(1, points[0], -0.5), trial(2, points[1], -0.3)]
    assert finalists(slow, 3, 0.02) == [points[1]]
    assert finalists([trial(0, BASELINE, 0.0)], 3, 0.02) == []


def measured(number: int, name: str, by_cell: Mapping[str, float]) -> Trial:
    value = fmean(by_cell.values())
    return Trial(number, Point(name), "start", TrialState.MEASURED, value, by_cell, (number,))


def test_where_none_is_hopeful_those_that_gain_in_a_cell_are_finalists_too() -> None:
    closest = measured(1, "closest", {"a": -0.05, "b": -0.05})
    specialist = measured(2, "specialist", {"a": 0.4, "b": -0.9})
    slow = measured(3, "slow", {"a": -0.2, "b": 0.01})  # its gain is within the margin
    trials = [slow, specialist, closest]
    assert finalists(trials, 3, 0.02) == [closest.point, specialist.point]
    assert finalists(trials, 1, 0.02) == [closest.point]


def test_the_best_of_a_cell_is_a_finalist_too() -> None:
    all_round = measured(1, "all-round", {"a": 0.2, "b": 0.2})
    second = measured(2, "second", {"a": 0.19, "b": 0.19})
    third = measured(3, "third", {"a": 0.18, "b": 0.18})
    specialist = measured(4, "specialist", {"a": 0.5, "b": -0.6})
    trials = [third, specialist, second, all_round]
    assert finalists(trials, 3, 0.02) == [all_round.point, specialist.point, second.point]
    assert finalists(trials, 1, 0.02) == [all_round.point]
    slightly = measured(5, "slightly", {"a": 0.21, "b": 0.1})  # within the margin of the best there
    assert finalists([slightly, second, all_round], 2, 0.02) == [all_round.point, second.point]
