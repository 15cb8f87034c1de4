"""A new version against the pinned one, whole, on the stand-in engine; and what is refused before a start."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import report as reports
from analysis.nightly.two_versions import State
from launchers.fake import FakeEngine
from launchers.fake_server import Fault
from launchers.leftovers import reap
from results.errors import MeasurementInvalid, UsageError
from results.records import IMAGE, Point, VerdictKind
from results.store import RunFolder
from sweeps.nightly.candidate import EXIT_CODES, Candidate, candidate, run_candidate
from sweeps.nightly.version import image_change, version
from sweeps.outcome import CHECK_FILE, read_run
from sweeps.prepare import prepare
from sweeps.run import run_sweep
from sweeps.session import State as RunState
from sweeps.status import status_of
from sweeps.status_text import status_json, status_lines
from tests.sweeps.nightly.versions import TEXT, WINNER, engine, on, pin
from tests.sweeps.test_run import Recorder


def asked(new: FakeEngine, old: FakeEngine | None = None, text: str = TEXT) -> Candidate:
    found = candidate(pin(text), ["env.BUILD=new"])
    return replace(found, old=on(found.old, old or engine()), new=on(found.new, new))


def run(found: Candidate, tmp_path: Path, stop_after: int = 1000) -> tuple[Recorder, RunFolder, State]:
    recorder, folder = Recorder(stop_after), RunFolder(tmp_path / "run")
    judged = run_candidate(found, folder, recorder, recorder.stopped)
    return recorder, folder, judged.state


@pytest.mark.parametrize(
    ("new", "state", "code", "said"),
    [
        (engine(winner=0.5), State.LOSS, 3, "speculation got worse, not the engine"),
        (engine(baseline=0.5, winner=0.5), State.LOSS, 3, "the engine got worse, not speculation"),
        (engine(), State.SOUND, 0, "no loss that counts"),
        (engine(baseline=2, winner=2), State.SOUND, 0, "NEW is faster with speculation by "),
    ],
)
def test_every_answer_with_its_sentence_and_exit_code(
    new: FakeEngine, state: State, code: int, said: str, tmp_path: Path
) -> None:
    recorder, folder, found = run(asked(new), tmp_path)
    assert (found, EXIT_CODES[found]) == (state, code)
    report, exit_code = read_run(folder)
    assert (exit_code, report.finished) == (code, True)
    assert said in report.headline
    assert folder.read_json(CHECK_FILE)["contrasts"]["winner"]["verdict"] in [*VerdictKind]
    assert recorder.begun[0][1:] == (0, 4)


def test_a_block_has_all_four_arms_in_random_order(tmp_path: Path) -> None:
    _, folder, _ = run(asked(engine()), tmp_path)
    blocks = folder.blocks()
    arms = {(a.point.name, a.point.method) for b in blocks for a in b.arms}
    assert arms == {(v, m) for v in ("OLD", "NEW") for m in ("none", "fake-ngram")}
    assert all(len(b.arms) == 4 and b.invalid is None for b in blocks)
    assert len({tuple(a.point.key for a in b.arms) for b in blocks}) > 1
    variables = {a.point.name: a.variables.given for a in blocks[0].arms if a.variables is not None}
    assert "BUILD" not in variables["OLD"]
    assert variables["NEW"]["BUILD"] == "new"


def test_it_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    found = asked(engine(winner=0.5))
    _, folder, state = run(found, tmp_path, stop_after=1)
    before = folder.blocks()
    assert (len(before), state) == (1, State.UNDECIDED)
    report, code = read_run(folder)
    assert (code, report.finished) == (4, False)
    recorder, _, state = run(found, tmp_path)
    assert recorder.begun[0][1] == 1
    assert folder.blocks()[:1] == before
    assert state is State.LOSS
    launched = len(folder.blocks())
    run(found, tmp_path)
    assert len(folder.blocks()) == launched


def test_the_folder_is_one_like_others(tmp_path: Path) -> None:
    _, folder, _ = run(asked(engine(winner=0.5)), tmp_path)
    status = status_of(folder)
    assert status.standing.state is RunState.FINISHED
    assert status.answer.startswith("NEW is slower with speculation")
    assert status_lines(status) and status_json(status)
    assert reap(folder.path, end=True) == []
    report, _ = read_run(folder)
    for drawn in (reports.html(report), reports.markdown(report)):
        assert "NEW is slower with speculation" in drawn


def test_a_folder_belongs_to_one_question(tmp_path: Path) -> None:
    _, folder, _ = run(asked(engine()), tmp_path, stop_after=1)
    other = candidate(pin(), ["env.BUILD=another"])
    with pytest.raises(UsageError, match="the configurations compared"):
        run(replace(other, old=on(other.old, engine()), new=on(other.new, engine())), tmp_path)
    with pytest.raises(UsageError, match="another sweep"):
        run_sweep(prepare(pin().sweep), folder, Recorder(), lambda: True)
    swept, recorder = RunFolder(tmp_path / "swept"), Recorder()
    run_sweep(prepare(pin().sweep), swept, recorder, lambda: bool(recorder.trials))
    with pytest.raises(UsageError, match="the records of another command"):
        run_candidate(asked(engine()), swept, recorder, recorder.stopped)


def only(winner: bool, fault: Fault) -> Callable[[Point], Fault | None]:
    return lambda point: fault if point.is_baseline is not winner else None


@pytest.mark.parametrize(
    ("fault", "winner", "reason", "code"),
    [
        (Fault.DOES_NOT_SPECULATE, True, "NOT_SPECULATING", 3),
        (Fault.GARBAGE, True, "INVALID_OUTPUT", 3),
        (Fault.DIES_UNDER_LOAD, True, "SERVER_DIED", 3),
        (Fault.DIES_UNDER_LOAD, False, "SERVER_DIED", 3),
        (Fault.REFUSES_TO_START, True, "CONFIG_REJECTED", 5),
        (Fault.IGNORES_SETTING, True, "IGNORED_SETTING", 5),
    ],
)
def test_a_new_version_that_fails(fault: Fault, winner: bool, reason: str, code: int, tmp_path: Path) -> None:
    _, folder, state = run(asked(engine(fault=only(winner, fault))), tmp_path)
    report, exit_code = read_run(folder)
    assert exit_code == EXIT_CODES[state] == code
    arm = "NEW: fake-ngram m=8 n=4" if winner else "NEW: none"
    assert report.headline.startswith(f"{arm} cannot be used: {reason}, ")
    assert len(folder.blocks()) == 2  # once may be an accident


def test_an_old_version_that_fails_is_no_regression(tmp_path: Path) -> None:
    broken = engine(fault=only(True, Fault.DOES_NOT_SPECULATE))
    _, folder, _ = run(asked(engine(), broken), tmp_path)
    report, code = read_run(folder)
    assert code == 5
    assert report.headline.startswith("OLD: fake-ngram m=8 n=4 cannot be used: NOT_SPECULATING")
    dead = engine(fault=only(False, Fault.REFUSES_TO_START))
    with pytest.raises(MeasurementInvalid, match="OLD cannot be measured"):
        run(asked(engine(), dead), tmp_path / "dead")


def test_all_arms_may_take_turns(tmp_path: Path) -> None:
    _, folder, state = run(asked(engine(winner=0.5), text=TEXT + "pairing: together\n"), tmp_path)
    assert state is State.LOSS
    assert all(len(b.arms) == 4 for b in folder.blocks())


# What is refused before anything is started


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("workload.max_tokens=5", r"workload.max_tokens: it is no part of a version"),
        ("serber=/x", "did you mean 'server'"),
        ("args.threads=1", r"NEW: the fake engine has no flag --threads"),
        ("container.image=x", r"container: is for `launcher: docker`"),
        ("server", "expected key=value"),
        ("env={}", "nothing differs"),
    ],
)
def test_a_change_that_makes_no_version(change: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        candidate(pin(), [change])


def test_a_knob_that_the_new_version_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(FakeEngine):
        def check(self, point: Point, served: object) -> None:
            if served.env:  # type: ignore[attr-defined]
                raise UsageError("fake 2 has no --spec-m")

    monkeypatch.setattr("sweeps.prepare.engine_named", lambda *args, **kwargs: Newer())
    with pytest.raises(UsageError, match=r"^NEW: .*fake 2 has no --spec-m"):
        candidate(pin(), ["env.BUILD=new"])


def test_an_image_is_for_containers() -> None:
    with pytest.raises(UsageError, match="needs `launcher: docker`"):
        image_change(pin(), "engine:2")


def test_an_image_that_the_points_name_is_the_old_versions_own(monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT.replace("engine: fake", "launcher: docker\ncontainer: {image: 'engine:0'}")
    inside = replace(
        pin(text + "shared: {image: ['engine:1']}\n"),
        winner=replace(WINNER, knobs={**WINNER.knobs, IMAGE: "engine:1"}),
    )
    planned = []
    monkeypatch.setattr("sweeps.nightly.pin.Pin.plan", lambda self, told: planned.append(self))
    version(inside, "OLD")
    version(inside, "NEW", [image_change(inside, "engine:2")])
    old, new = planned
    assert old.winner.image == "engine:1" and old.sweep.shared
    assert new.winner == WINNER and not new.sweep.shared
    assert new.sweep.container is not None and new.sweep.container.image == "engine:2"
