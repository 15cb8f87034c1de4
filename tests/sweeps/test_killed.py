"""A sweep killed after any record goes on, launches nothing twice, and comes to the same answer."""

import math
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from results.records import Block, Phase, Point, Trial
from results.store import RunFolder
from sweeps.anchors import EARLIER
from sweeps.calibrate import Calibration
from sweeps.outcome import read_run
from sweeps.run import run_sweep
from tests.sweeps.machine import Machine
from tests.sweeps.test_run import Recorder, plan

SETTINGS: dict[str, object] = {
    "space": {"fake-ngram": {"n": [2, 4], "m": [4, 8]}},
    "shared": {"--batch": [8, 16]},
    "confirm": {"looks": [3], "finalists": 2},
}
TRIALS = 5
STRONG = Point("none", {"--batch": 8})


class Killed(BaseException):
    """As a kill: nothing after it is done."""


def gain(point: Point) -> float:
    """`--batch 8` helps a server without speculation as well; every Point has a gain of its own."""
    shared = 0.4 if point.knobs.get("--batch") == 8 else 0.0
    return shared + sum(0.01 * float(v) for v in point.speculative.values())


@pytest.fixture(autouse=True)
def machine() -> Iterator[None]:
    """No servers, and a start that is dear; the machine slows by 1 % an hour."""

    def blocks(
        lane: object, folder: RunFolder, patience: object, done: list[Block], *_: object, **__: object
    ) -> Machine:
        def written(made: Block) -> None:
            folder.add_block(made)
            done.append(made)

        return Machine(lambda hours: -0.01 * hours, gain=gain, past=done, written=written)

    quick = Calibration(1e6, 1e-6, 0.0)
    with (
        patch("sweeps.run.Blocks", blocks),
        patch("sweeps.session.calibrate", lambda: quick),
        patch("os.fsync"),
    ):
        yield


def sweep(path: Path, every: int | str, tuned: int = 0) -> tuple[Recorder, RunFolder]:
    recorder, folder = Recorder(), RunFolder(path)
    budget = {"trials": TRIALS, "baseline_trials": tuned, "baseline_every": every}
    run_sweep(plan(**SETTINGS, budget=budget), folder, recorder, recorder.stopped)
    return recorder, folder


def killed(path: Path, records: int, every: int | str, tuned: int) -> RunFolder:
    """A sweep that is killed once so many Blocks and Trials are written."""
    left, add_block, add_trial = [records], RunFolder.add_block, RunFolder.add_trial

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    def block(self: RunFolder, made: Block) -> None:
        add_block(self, made)
        count()

    def trial(self: RunFolder, made: Trial) -> None:
        add_trial(self, made)
        count()

    recorded = patch.multiple(RunFolder, add_block=block, add_trial=trial)
    with recorded, pytest.raises(Killed):
        sweep(path, every, tuned)
    return RunFolder(path)


@pytest.mark.parametrize(("every", "tuned"), [(1, 0), ("auto", 2)])
def test_after_a_kill_at_any_record(tmp_path: Path, every: int | str, tuned: int) -> None:
    _, whole = sweep(tmp_path / "whole", every, tuned)
    records = len(whole.blocks()) + len(whole.trials())
    assert_whole(whole, tuned)
    for kept in range(1, records):
        folder = killed(tmp_path / str(kept), kept, every, tuned)
        before = folder.blocks()
        sweep(folder.path, every, tuned)
        assert folder.blocks()[: len(before)] == before
        assert_whole(folder, tuned)
        late = [t for t in folder.trials() if t.source == EARLIER]
        assert len(late) <= (1 if every == 1 else 4)


def assert_whole(folder: RunFolder, tuned: int) -> None:
    trials, blocks = folder.trials(), folder.blocks()
    assert [t.number for t in trials] == list(range(len(trials)))
    assert sum(not t.point.is_baseline for t in trials) == TRIALS
    launched = [a.point.key for b in blocks if b.phase is Phase.SEARCH for a in b.candidates]
    assert sorted(launched) == sorted(t.point.key for t in trials[1:])  # each once
    for trial in trials[1:]:
        compared_with = next(b.compared_with for b in blocks if b.number == trial.blocks[0])
        assert trial.log_speedup == pytest.approx(gain(trial.point) - gain(compared_with), abs=0.01)
    confirmed = [b for b in blocks if b.phase is Phase.CONFIRM]
    assert all(b.baseline is not None for b in confirmed)  # an anchor is never enough there
    assert {b.compared_with.key for b in confirmed} == {STRONG.key}
    report, _ = read_run(folder)
    assert report.finished
    assert all(v.effect is not None and v.effect.blocks == 3 for v in report.verdicts)


def test_the_confirmation_never_uses_an_anchor(tmp_path: Path) -> None:
    _, folder = sweep(tmp_path, "auto")
    searched, confirmed = ([b for b in folder.blocks() if b.phase is phase] for phase in Phase)
    assert sum(len(b.arms) == 1 for b in searched) > len(searched) / 2
    assert all(b.baseline is not None and b.candidates for b in confirmed)
    report, _ = read_run(folder)
    assert report.winner is not None and report.winner.effect is not None
    assert 0.05 < report.winner.effect.log_ratio < math.log(1.2)
