"""`tuner capacity` on the stand-in engine: fresh servers, a folder of its own, goes on where it ended."""

from pathlib import Path

import pytest

from results.errors import UsageError
from results.records import BASELINE, Phase
from results.store import RunFolder
from sweeps.capacity import capacity_points, run_capacity
from sweeps.loads import Question, question
from sweeps.outcome import read_run
from sweeps.sweep import Sweep
from tests.sweeps.test_run import Recorder, plan, run

PATIENT = {"ttft_p95_s": 10.0}
IMPATIENT = {"ttft_p95_s": 1e-9}


def test_the_baseline_and_the_winner_are_asked_in_blocks_of_their_own(tmp_path: Path) -> None:
    _, folder = run(tmp_path)
    before, points = folder.blocks(), capacity_points(read_run(folder)[0])
    assert points[0] == BASELINE and len(points) == 2
    recorder = Recorder()
    asked = Question("closed", 1, 3, PATIENT)
    found = run_capacity(plan(), folder, points, asked, recorder, recorder.stopped)
    assert [(f.point, f.kept, f.broken, f.settled) for f in found] == [(p, 3, None, True) for p in points]
    assert folder.blocks() == before
    own = RunFolder(folder.path / "capacity-closed")
    assert {b.phase for b in own.blocks()} == {Phase.CONFIRM}  # held-out prompts
    assert [b.compared_with for b in own.blocks()] == [points[0]] * 4 + [points[1]] * 4  # 1, 2, 3, 3
    assert read_run(folder)[0].highest_loads == found


def test_it_goes_on_and_other_limits_judge_the_same_blocks(tmp_path: Path) -> None:
    _, folder = run(tmp_path)
    half = Recorder()
    asked = Question("closed", 1, 2, PATIENT)
    run_capacity(plan(), folder, [BASELINE], asked, half, lambda: len(half.notes) >= 1)
    own = RunFolder(folder.path / "capacity-closed")
    assert len(own.blocks()) == 1
    recorder = Recorder()
    run_capacity(plan(), folder, [BASELINE], asked, recorder, recorder.stopped)
    assert len(own.blocks()) == 3  # 1, 2, and 2 again
    stricter = Question("closed", 1, 2, IMPATIENT)
    found = run_capacity(plan(), folder, [BASELINE], stricter, recorder, recorder.stopped)
    assert len(own.blocks()) == 3
    assert found[0].kept is None and found[0].broken == 1
    assert "ttft_p95_s is" in found[0].why


def test_the_load_goes_no_further_than_the_prompts(tmp_path: Path) -> None:
    _, folder = run(tmp_path)
    recorder = Recorder()
    asked = Question("closed", 11, 64, PATIENT)
    found = run_capacity(plan(), folder, [BASELINE], asked, recorder, recorder.stopped)
    assert found[0].kept == 12  # 24 prompts, two for each stream
    assert any("enough for loads up to 12, not for 64" in note for note in recorder.notes)
    with pytest.raises(UsageError, match="with 24 prompts of a class"):
        run_capacity(plan(), folder, [BASELINE], Question("closed", 30, 64, PATIENT), recorder, lambda: False)


def test_a_run_that_is_not_finished_has_no_winner_to_ask(tmp_path: Path) -> None:
    _, folder = run(tmp_path, stop_after=1)
    with pytest.raises(UsageError, match="not finished"):
        capacity_points(read_run(folder)[0])


@pytest.mark.parametrize(
    ("kind", "low", "high", "given", "message"),
    [
        ("open", 1, 2, ["ttft_p95_s=1"], "choose closed"),
        ("closed", 0, 2, ["ttft_p95_s=1"], "whole numbers above 0"),
        ("closed", 1, 2.5, ["ttft_p95_s=1"], "whole numbers above 0"),
        ("poisson", 3, 2, ["ttft_p95_s=1"], "low first"),
        ("closed", 1, 2, [], "within which limits"),
        ("closed", 1, 2, ["ttft_p95=1"], "did you mean 'ttft_p95_s'"),
        ("closed", 1, 2, ["ttft_p95_s"], "expected NAME=VALUE"),
        ("closed", 1, 2, ["ttft_p95_s=nan"], "no upper limit"),
    ],
)
def test_bad_questions_are_explained(
    kind: str, low: float, high: float, given: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        question(kind, low, high, given, Sweep())


def test_weights_of_context_lengths_are_read_back(tmp_path: Path) -> None:
    weights = {"contexts": {0: 2.0}, "classes": {"code_edit": 0.5}}
    _, folder = run(tmp_path, weights=weights)
    recorder, planned = Recorder(), plan(weights=weights)
    asked = question("closed", 1, 1, ["ttft_p95_s=10"], planned.sweep)
    found = run_capacity(planned, folder, [BASELINE], asked, recorder, recorder.stopped)
    assert read_run(folder)[0].highest_loads == found
    assert found[0].kept == 1
