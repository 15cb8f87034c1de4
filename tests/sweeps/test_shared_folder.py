"""One run, several machines: whose it is, who is at work, and what a dead driver left."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from results.errors import UsageError
from results.mirrored import MirroredRun
from results.open_run import open_run
from results.records import BASELINE, Phase, Point
from results.run_database import RunDatabase
from results.sharing import Sharing
from results.store import RunFolder
from sweeps.anchors import EARLIER
from sweeps.lanes import OneLane
from sweeps.opened import claim, opened
from sweeps.run import Run
from sweeps.session import SESSIONS_FILE, State, session, sessions_of, spent_s, standing
from tests.records import CELL, arm, baseline_arm, block, trial
from tests.sweeps.test_run import Recorder, plan

POINT = Point("fake-ngram", {"n": 2, "m": 8})
OTHER = Point("fake-ngram", {"n": 4, "m": 8})


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return f"sqlite:///{tmp_path}/runs.db?run=first&lease_s=1"


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From now on this process is on that machine."""

    def moved(machine: str) -> None:
        monkeypatch.setattr("results.environment.host_hash", lambda: machine)
        monkeypatch.setattr("sweeps.session.host_hash", lambda: machine)

    return moved


def test_machines_that_work_together_are_all_noted(where: str, on: Callable[[str], None]) -> None:
    for machine in ("one", "two", "one"):
        on(machine)
        folder = open_run(where)
        folder.create()
        claim(folder, plan(), together=True)
        folder.add_block(block(0, Phase.SEARCH, [baseline_arm()]))
    environment = folder.read_json("environment.json")
    assert sorted(environment["hosts"]) == ["one", "two"]
    assert environment["host"]["host"] == "one"


def test_what_must_be_the_same_on_all_of_them(where: str, on: Callable[[str], None]) -> None:
    on("one")
    folder = open_run(where)
    folder.create()
    claim(folder, plan(), together=True)
    folder.add_block(block(0, Phase.SEARCH, [baseline_arm()]))
    known: dict[str, Any] = {**folder.read_json("environment.json")}
    folder.write_json("environment.json", {**known, "host": {**known["host"], "engine": "older"}})
    claim(folder, plan(), together=True)  # here its own fingerprint counts
    on("two")
    with pytest.raises(UsageError, match=r"run=first holds the records .* what changed: engine\."):
        claim(folder, plan(), together=True)
    folder.write_json("environment.json", known)
    claim(folder, plan(), together=True)
    on("three")
    with pytest.raises(UsageError, match="what changed: host"):
        claim(folder, plan())  # what is measured alone does not say on which machine


def test_another_sweep_may_not_join_even_before_anything_is_recorded(where: str) -> None:
    one, other = open_run(where), open_run(where)
    with (
        opened(one, plan(seed=1), Recorder(), together=True),
        pytest.raises(UsageError, match="another sweep"),
        opened(other, plan(seed=2), Recorder(), together=True),
    ):
        pass


def test_each_driver_has_an_entry_of_its_own(where: str, on: Callable[[str], None]) -> None:
    one, other, reader = open_run(where), open_run(where), open_run(where)
    one.create()
    with one.joined(), session(one):
        on("two")
        with other.joined(), session(other):
            assert (standing(reader).state, standing(reader).why) == (State.RUNNING, "2 drivers")
            assert [s["ended_at"] for s in sessions_of(reader)] == [None, None]
        on("three")
        assert (standing(reader).state, standing(reader).why) == (State.RUNNING, "on another machine")
    assert standing(reader).state is State.INTERRUPTED
    assert len({s["driver"] for s in sessions_of(reader)}) == 2


def test_a_driver_without_a_sign_of_life_was_killed(where: str) -> None:
    folder = open_run(where)
    folder.create()
    start: dict[str, Any] = {"began_at": 5.0, "ended_at": None, "driver": "gone", "calibration": {}}
    folder.write_json(SESSIONS_FILE, {"sessions": [start]})
    assert (standing(folder).state, standing(folder).since_at) == (State.KILLED, 5.0)
    with folder.joined(), session(folder):
        assert [s["ended_at"] for s in sessions_of(folder)] == [5.0, None]


def test_time_of_drivers_at_work_together_counts_once() -> None:
    starts: list[dict[str, Any]] = [
        {"began_at": 0.0, "ended_at": 10.0},
        {"began_at": 5.0, "ended_at": 12.0},
        {"began_at": 6.0, "ended_at": 7.0},
        {"began_at": 20.0, "ended_at": None},
    ]
    assert spent_s(starts, 25.0) == 12.0 + 5.0


def a_run(folder: RunFolder, sharing: Sharing) -> Run:
    def nothing(*_: object, **__: object) -> Any:
        raise AssertionError("nothing is measured here")

    made, blocks = plan(), folder.blocks()
    lanes, trials = OneLane(nothing), folder.trials()
    return Run(made.space, made.sweep, folder, lanes, sharing, blocks, trials, Recorder(), [*blocks])


def test_only_what_a_dead_driver_measured_is_taken_up(where: str) -> None:
    """Its Block is recorded and its Trial is not; so it is with a driver that lives, which is about to."""
    living, gone, mine = open_run(where), open_run(where), open_run(where)
    assert isinstance(gone, MirroredRun) and isinstance(gone.store, RunDatabase)
    living.create()
    living.add_trial(trial(0, BASELINE, 0.0))
    dead = gone.store
    dead.database.do(lambda connection: dead._come(connection, alone=False))
    with living.joined() as theirs, mine.joined() as sharing:
        run = a_run(mine, sharing)
        assert theirs.claim(f"search: {POINT.key}") and dead.sharing(lambda *_: None).claim(
            f"search: {OTHER.key}"
        )
        for number, (folder, point) in enumerate([(living, POINT), (gone, OTHER)]):
            made = block(number, Phase.SEARCH, [baseline_arm(), arm(point, {CELL: 120.0})])
            folder.add_block(replace(made, compared_with=BASELINE))
        with sharing.exclusive():
            run._news()
            assert run.take_up() == []  # for all that is known, both live
        dead.database.do(lambda connection: dead._go(connection))
        with sharing.exclusive():
            (taken,) = run.take_up()
            assert run.take_up() == []
        assert (taken.point, taken.source, taken.blocks) == (OTHER, EARLIER, (1,))
        assert not theirs.claim(f"search: {OTHER.key}")  # nor does anybody else measure it
