"""Two real processes drive one run in PostgreSQL, which is stopped on the way, as one of them is."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest
import yaml

from results.open_run import open_run
from results.records import Phase
from results.store import RunFolder
from sweeps.outcome import read_run
from sweeps.session import State, sessions_of, standing
from sweeps.status import status_of
from tests import postgres
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
SWEEP: dict[str, object] = {
    "name": "shared",
    "model": "fake-model",
    "engine": "fake",
    "space": {"fake-ngram": {"n": [1, 2, 3, 4, 5, 6, 7, 8], "m": [1, 2, 4, 8, 16, 32]}},
    "workload": {"max_tokens": 10, "prompts_per_class": 2, "classes": ["code_edit"]},
    "confirm": {"looks": [3], "finalists": 2},
    "patience": {"client_share": 1, "foreign_cores": 100, "min_window_s": 0, "hopeless_ratio": 0},
    "budget": {"trials": 40, "baseline_every": 1},
}


SAME_ANSWER = ([0, 0], [4, 4])  # on a busy machine three Blocks may leave it undecided, for both


@pytest.fixture
def server() -> Iterator[postgres.Server]:
    postgres.needed_programs()
    with postgres.running() as server:
        yield server


class Drivers:
    """Each has a home of its own, as on another machine."""

    def __init__(self, folder: Path, run: str, sweep: dict[str, object]) -> None:
        self._folder, self._run = folder, run
        self._file = folder / "sweep.yaml"
        self._file.write_text(yaml.safe_dump(sweep))
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> "subprocess.Popen[bytes]":
        number = len(self._started)
        home = self._folder / f"home{number}"
        home.mkdir()
        with self.log(number).open("wb") as log:
            driver = subprocess.Popen(
                [sys.executable, "tuner.py", "sweep", str(self._file), "--run", self._run],
                cwd=ROOT,
                env={**os.environ, "XDG_CACHE_HOME": str(home)},
                stdout=log,
                stderr=log,
            )
        self._started.append(driver)
        return driver

    def log(self, number: int) -> Path:
        return self._folder / f"driver{number}.log"

    def end(self) -> None:
        for driver in self._started:
            driver.kill()
            driver.wait()


@contextmanager
def drivers(folder: Path, run: str, sweep: dict[str, object]) -> Iterator[Drivers]:
    made = Drivers(folder, run, sweep)
    try:
        yield made
    finally:
        made.end()


def seen(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """As a reader on another machine sees the run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "reader"))
    return open_run(run)


def trials_told(log: Path) -> int:
    return log.read_text().count("  trial ")


def assert_whole(run: RunFolder, trials: int) -> None:
    """No Point twice, and every record there with its raw files."""
    told, blocks = run.trials(), run.blocks()
    assert [t.number for t in told] == [*range(trials + 1)]
    assert len({t.point.key for t in told}) == trials + 1
    assert len({b.number for b in blocks}) == len(blocks)
    recorded = {number for trial in told for number in trial.blocks}
    assert recorded <= {b.number for b in blocks}
    for made in blocks:
        assert made.node  # figures of different machines are never pooled
        names = [path.stem for path in (run.path / "requests").glob(f"block{made.number:04d}-*")]
        assert len(names) == len(made.arms)
        assert all(run.read_requests(name) for name in names)
        assert all((run.logs / f"{name}.log").exists() for name in names)


def test_two_drivers_while_the_database_is_started_again(
    server: postgres.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = f"{postgres.address(server.where)}?run=shared"
    with drivers(tmp_path, run, SWEEP) as both:
        started = [both.start(), both.start()]
        logs = [both.log(0), both.log(1)]
        wait_for(lambda: all(trials_told(log) >= 3 for log in logs), cap_s=120)
        server.stop()
        server.start()
        codes = [driver.wait(200) for driver in started]
        assert codes in SAME_ANSWER, [log.read_text() for log in logs]
    read = seen(run, tmp_path, monkeypatch)
    assert_whole(read, 40)
    launched = Counter(a.point.key for b in read.blocks() if b.phase is Phase.SEARCH for a in b.candidates)
    assert set(launched.values()) == {1}
    told = [log.read_text() for log in logs]
    assert all("does not answer" in text for text in told)
    assert all(trials_told(log) >= 8 for log in logs)  # neither was idle
    report, code = read_run(read)
    assert (code, report.finished) == (codes[0], True)
    confirmed = [b for b in read.blocks() if b.phase is Phase.CONFIRM]
    assert len(confirmed) == 3  # together, not each for itself
    assert "confirmed" in told[0].lower() and report.headline in told[0] and report.headline in told[1]
    assert (standing(read).state, len(sessions_of(read))) == (State.FINISHED, 2)
    assert_no_password(run, [tmp_path], read)
    assert_study_is_whole(run, read)


def assert_no_password(run: str, folders: list[Path], read: RunFolder) -> None:
    secrets = [postgres.PASSWORD, run.partition(":")[2].partition("@")[0].rpartition(":")[2]]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 100
    for secret in map(str.encode, secrets):
        assert not [path for path in files if secret in path.read_bytes()]
    assert postgres.PASSWORD not in repr(read)


def assert_study_is_whole(run: str, read: RunFolder) -> None:
    """Each Trial is told by one driver, and nothing is left open."""
    assert read.study_place is not None
    study = optuna.load_study(study_name="shared: search", storage=read.study_place.address)
    states = Counter(trial.state.name for trial in study.trials)
    assert not states["RUNNING"] and not states["WAITING"]
    told = {trial.user_attrs["trial"] for trial in study.trials if "trial" in trial.user_attrs}
    assert told == {trial.number for trial in read.trials()[1:]}


def test_a_killed_drivers_point_is_taken_over_and_another_machine_goes_on(
    server: postgres.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = f"{postgres.address(server.where)}?run=taken&lease_s=3"
    few = {**SWEEP, "budget": {"trials": 6, "baseline_every": 1}, "env": {"FAKE_START_S": "0.5"}}
    with drivers(tmp_path, run, few) as both:
        killed = both.start()
        wait_for(lambda: trials_told(both.log(0)) >= 1, cap_s=60)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        read = seen(run, tmp_path, monkeypatch)
        assert standing(read).state is State.RUNNING  # for all that is known, until its lease is over
        other = both.start()
        assert other.wait(120) in (0, 4), both.log(1).read_text()
    read.pull()
    assert_whole(read, 6)
    first, last = sessions_of(read)
    assert first["ended_at"] <= last["ended_at"]
    assert status_of(read).standing.state is State.FINISHED


def test_drivers_whose_trials_wait_for_an_anchor_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each keeps back what it measured until the Baseline is launched again, and the other waits for that."""
    run = f"sqlite:///{tmp_path}/runs.db?run=anchors&lease_s=20"
    settings = {"shared": {"--batch": [8, 16]}, "space": {"fake-ngram": {"n": [2, 4], "m": [4, 8]}}}
    budget = {"trials": 7, "baseline_trials": 2, "baseline_every": 20}
    with drivers(tmp_path, run, {**SWEEP, **settings, "budget": budget}) as both:
        started = [both.start(), both.start()]
        logs = [both.log(0), both.log(1)]
        assert [driver.wait(120) for driver in started] in SAME_ANSWER, [log.read_text() for log in logs]
    read = seen(run, tmp_path, monkeypatch)
    told = read.trials()
    assert [t.number for t in told] == [*range(len(told))]
    assert len({t.point.key for t in told}) == len(told)
    assert sum(not t.point.is_baseline for t in told) == 7
    assert read.read_json("baseline.json")["knobs"] in ({"--batch": 8}, {"--batch": 16}, {})
    assert len({b.compared_with.key for b in read.blocks() if b.phase is Phase.CONFIRM}) == 1
