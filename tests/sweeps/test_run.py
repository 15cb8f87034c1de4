"""Whole sweeps on the stand-in engine, and what their folder says afterwards."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from analysis.verdict import AnswerKind
from launchers.engines.engine import ReadBack, Served
from launchers.fake import FakeEngine
from launchers.fake_server import Fault
from launchers.launcher import Endpoint
from results.errors import MeasurementInvalid, UsageError
from results.reasons import Reason
from results.records import BASELINE, Phase, Point, Rewrite, Trial, TrialState, Verdict, VerdictKind
from results.store import RunFolder
from sweeps.opened import claim
from sweeps.outcome import EXIT_CODES, read_run
from sweeps.prepare import Plan, prepare
from sweeps.run import run_sweep
from sweeps.space import Rules
from sweeps.sweep import Sweep
from sweeps.trial import BASELINE_TRIAL

SPACE = {"fake-ngram": {"n": [2, 4], "m": [8]}}


class Recorder:
    """An Observer that remembers, and asks to stop after some Blocks."""

    def __init__(self, stop_after: int = 1000) -> None:
        self.begun: list[tuple[Phase, int, int]] = []
        self.trials: list[Trial] = []
        self.looks = 0
        self.notes: list[str] = []
        self._left = stop_after

    def begin(self, phase: Phase, done: int, total: int) -> None:
        self.begun.append((phase, done, total))

    def arm(self, phase: Phase, point: Point) -> None: ...

    def trial(self, trial: Trial, best: Trial | None) -> None:
        self.trials.append(trial)
        self._left -= 1

    def look(self, blocks: int, verdicts: Sequence[Verdict]) -> None:
        self.looks += 1
        self._left -= 1

    def note(self, text: str) -> None:
        self.notes.append(text)

    def stopped(self) -> bool:
        return self._left <= 0


def plan(**changes: object) -> Plan:
    content: dict[str, object] = {
        "engine": "fake",
        "space": SPACE,
        "workload": {"max_tokens": 60, "prompts_per_class": 2, "classes": ["code_edit"]},
        "confirm": {"looks": [3, 5], "finalists": 2},
        "patience": {"client_share": 1, "foreign_cores": 100, "min_window_s": 0, "hopeless_ratio": 0},
        **changes,
    }
    # However long a start takes on a loaded machine, the baseline is in every Block.
    content["budget"] = {"baseline_every": 1, **cast(dict[str, object], content.get("budget", {}))}
    return prepare(Sweep.model_validate(content))


def run(tmp_path: Path, stop_after: int = 1000, **changes: object) -> tuple[Recorder, RunFolder]:
    recorder, folder = Recorder(stop_after), RunFolder(tmp_path / "run")
    run_sweep(plan(**changes), folder, recorder, recorder.stopped)
    return recorder, folder


def test_a_sweep_finds_confirms_and_reports_the_winner(tmp_path: Path) -> None:
    recorder, folder = run(tmp_path)
    trials = folder.trials()
    assert [t.number for t in trials] == [0, 1, 2]
    assert trials[0].point == BASELINE
    assert recorder.begun[0] == (Phase.SEARCH, 0, 2)
    report, code = read_run(folder)
    assert code == 0
    assert report.finished
    assert report.winner is not None
    assert report.winner.kind is VerdictKind.BETTER
    assert report.winner.point == Point("fake-ngram", {"n": 4, "m": 8})
    assert "fake-server" in report.command
    began_at, ended_at = (
        folder.read_json("sessions.json")["sessions"][0][at] for at in ("began_at", "ended_at")
    )
    assert sum(report.phases_s.values()) == pytest.approx(report.elapsed_s) == ended_at - began_at
    assert report.phases_s["the tool itself"] > 0
    assert report.environment["served"] == {"model": "fake-model"}


def test_it_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    _, folder = run(tmp_path, stop_after=1)
    assert len(folder.trials()) == 2
    report, code = read_run(folder)
    assert code == EXIT_CODES[AnswerKind.UNDECIDED]
    assert not report.finished
    assert "Not confirmed yet" in report.headline
    before = folder.blocks()
    recorder, _ = run(tmp_path)
    assert recorder.begun[0] == (Phase.SEARCH, 1, 2)
    assert folder.blocks()[: len(before)] == before
    assert len({t.point.key for t in folder.trials()}) == 3
    launched = len(folder.blocks())
    run(tmp_path)
    assert len(folder.blocks()) == launched


def test_no_secret_is_in_the_folder_or_in_the_command(tmp_path: Path) -> None:
    """One is known by its name, the other by its look."""
    env = {"HF_TOKEN": "planted", "UPSTREAM": "http://me:planted@proxy:80"}
    _, folder = run(tmp_path, env=env, budget={"trials": 1})
    report, _ = read_run(folder)
    assert report.command.startswith('HF_TOKEN="$HF_TOKEN" UPSTREAM="$UPSTREAM" ')
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"planted" in path.read_bytes()]


def test_a_larger_budget_takes_up_a_finished_run(tmp_path: Path) -> None:
    run(tmp_path, budget={"trials": 1})
    _, folder = run(tmp_path, budget={"trials": 2})
    assert len(folder.trials()) == 3


def test_another_sweep_may_not_use_the_folder(tmp_path: Path) -> None:
    _, folder = run(tmp_path, budget={"trials": 1})
    before = folder.trials()
    with pytest.raises(UsageError, match="another sweep"):
        run(tmp_path, seed=2)
    assert folder.trials() == before


def test_a_run_does_not_go_on_under_another_engine(tmp_path: Path) -> None:
    _, folder = run(tmp_path, budget={"trials": 1})
    environment = dict(folder.read_json("environment.json"))
    folder.write_json("environment.json", {**environment, "served": {"model": "another"}})
    with pytest.raises(UsageError, match="what changed: model files"):
        run(tmp_path)


def test_every_point_hopeless_is_an_answer(tmp_path: Path) -> None:
    patience = {"client_share": 1, "foreign_cores": 100, "min_window_s": 0, "hopeless_ratio": 0.99}
    workload = {"max_tokens": 60, "prompts_per_class": 4}
    space = {"fake-ngram": {"n": [8], "m": [32]}}
    _, folder = run(tmp_path, space=space, patience=patience, workload=workload)
    assert folder.trials()[1].state is TrialState.HOPELESS
    report, code = read_run(folder)
    assert (code, report.winner) == (0, None)
    assert report.headline.startswith("No configuration beats the baseline.")
    assert '"none"' in report.command  # what to run then is the baseline


def test_limits_that_nobody_keeps_are_an_answer(tmp_path: Path) -> None:
    _, folder = run(tmp_path, limits={"ttft_p95_s": 1e-6})
    report, code = read_run(folder)
    assert (code, report.winner, report.finished) == (0, None, True)
    assert "No configuration keeps the limits" in report.headline


def test_a_window_that_is_too_short_says_what_to_raise(tmp_path: Path) -> None:
    with pytest.raises(MeasurementInvalid, match=r"raise workload\.prompts_per_class"):
        run(tmp_path, patience={"min_window_s": 100})


def test_an_unused_folder_may_be_claimed_by_another_sweep(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    claim(folder, plan(seed=1))
    claim(folder, plan(seed=2))
    assert "seed: 2" in folder.sweep_file.read_text()


def test_a_start_that_measured_nothing_leaves_the_folder_free(tmp_path: Path) -> None:
    """A mistake that shows at the first launch is corrected in the file, under the same name."""
    folder = RunFolder(tmp_path / "run")
    folder.create()
    claim(folder, plan(seed=1))
    folder.add_trial(BASELINE_TRIAL)
    folder.study_file.write_text("of the first sweep")
    claim(folder, plan(seed=2))
    assert "seed: 2" in folder.sweep_file.read_text()
    assert not folder.study_file.exists()


def test_hours_end_the_search_but_leave_time_to_confirm(tmp_path: Path) -> None:
    _, folder = run(tmp_path, budget={"trials": 50, "hours": 1e-9})
    assert [t.number for t in folder.trials()] == [0]
    _, code = read_run(folder)
    assert code == EXIT_CODES[AnswerKind.UNDECIDED]


def test_slower_points_only_means_no_configuration_wins(tmp_path: Path) -> None:
    slow = {"fake-ngram": {"n": [8], "m": [32]}}
    _, folder = run(tmp_path, space=slow)
    report, code = read_run(folder)
    assert code == 0
    assert report.winner is None
    assert report.headline.startswith("No configuration beats the baseline.")


def test_random_tokens_mark_the_verdict(tmp_path: Path) -> None:
    workload = {"max_tokens": 60, "prompts_per_class": 2, "random_tokens": True}
    _, folder = run(tmp_path, workload=workload)
    report, _ = read_run(folder)
    assert report.banner is not None
    assert "RANDOM TOKENS" in report.banner


def test_reading_what_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run folder"):
        read_run(RunFolder(tmp_path))


STRICT = Rules()


class Rewriting(FakeEngine):
    """A server that drafts 8 tokens at most, whatever it is asked for."""

    def read_back(self, endpoint: Endpoint, point: Point, served: Served) -> ReadBack:
        back = super().read_back(endpoint, point, served)
        if int(point.knobs.get("m", 0)) <= 8:
            return back
        rewrites = (Rewrite("m", point.knobs["m"], 8),)
        return replace(back, rewrites=rewrites, point=Point(point.method, {**point.knobs, "m": 8}))


class Lossy(FakeEngine):
    """Long drafts are fast here, and accepted although they are wrong."""

    def lossy(self, point: Point, served: Served) -> str:
        return "drafts of 16 are accepted unseen" if point.knobs.get("m") == 16 else ""


def run_with(
    engine: FakeEngine, tmp_path: Path, rules: Rules = STRICT, **changes: object
) -> tuple[Recorder, RunFolder]:
    recorder, folder, planned = Recorder(), RunFolder(tmp_path / "run"), plan(**changes)
    space = replace(planned.space, engine=engine, rules=rules)
    run_sweep(replace(planned, engine=engine, space=space), folder, recorder, recorder.stopped)
    return recorder, folder


def test_a_rewritten_point_is_filed_under_what_was_in_effect(tmp_path: Path) -> None:
    space = {"fake-ngram": {"n": [4], "m": [16, 32]}}
    recorder, folder = run_with(Rewriting(), tmp_path, space=space)
    rewritten = folder.trials()[1]
    assert rewritten.point == Point("fake-ngram", {"n": 4, "m": 8})
    assert rewritten.asked is not None
    assert rewritten.asked.knobs["m"] in (16, 32)
    assert rewritten.label.startswith("fake-ngram m=8 n=4 (asked for fake-ngram m=")
    assert len(recorder.trials) == 2  # both were asked for, neither twice
    assert folder.blocks()[0].candidates[0].rewrites == (Rewrite("m", rewritten.asked.knobs["m"], 8),)
    report, _ = read_run(folder)
    assert [v.point.label for v in report.verdicts] == [
        "fake-ngram m=8 n=4"
    ]  # one finalist, launched as such


def test_a_lossy_point_is_left_out_or_labelled_and_never_wins(tmp_path: Path) -> None:
    space = {"fake-ngram": {"n": [4], "m": [4, 16]}}

    def speed(point: Point, _: str) -> float:
        return 300.0 + 20.0 * int(point.knobs.get("m", 0))

    _, folder = run_with(Lossy(speed), tmp_path / "without", space=space)
    assert [t.point.label for t in folder.trials()[1:]] == ["fake-ngram m=4 n=4"]
    _, folder = run_with(Lossy(speed), tmp_path / "with", Rules(allow_lossy=True), space=space)
    assert {t.label for t in folder.trials()[1:]} == {"fake-ngram m=4 n=4", "fake-ngram m=16 n=4 LOSSY"}
    report, _ = read_run(folder)
    assert report.winner is not None
    assert report.winner.point.knobs["m"] == 4


def test_the_baseline_is_tuned_over_shared_settings_before_the_search(tmp_path: Path) -> None:
    def speed(point: Point, _: str) -> float:
        return (400.0 if point.is_baseline else 450.0) * (1.5 if point.knobs.get("--batch") == 8 else 1.0)

    space = {"fake-ngram": {"n": [4], "m": [8]}}
    recorder, folder = run_with(FakeEngine(speed), tmp_path, space=space, shared={"--batch": [4, 8]})
    tuned = Point("none", {"--batch": 8})
    assert [t.point.label for t in folder.trials()[1:3]] == ["none --batch=4", "none --batch=8"]
    assert folder.read_json("baseline.json") == {"method": "none", "knobs": {"--batch": 8}}
    assert {b.compared_with.label for b in folder.blocks()[2:]} == {tuned.label}
    report, code = read_run(folder)
    assert code == 0
    assert report.winner is not None
    assert report.winner.point == Point("fake-ngram", {"n": 4, "m": 8, "--batch": 8})
    assert report.winner.effect is not None
    assert 1.05 < math.exp(report.winner.effect.log_ratio) < 1.2  # 1.69 against a straw man
    before = folder.blocks()
    run_with(FakeEngine(speed), tmp_path, space=space, shared={"--batch": [4, 8]})
    assert folder.blocks() == before
    assert any("none --batch=8" in note for note in recorder.notes)


class ShortOfMemory(FakeEngine):
    """Drafts of 8 tokens and more do not fit."""

    def cause(self, log: str, exit_code: int | None, *, ready: bool) -> tuple[Reason, str]:
        return Reason.START_OOM, "CUDA out of memory"


def test_points_that_memory_rules_out_are_counted_and_told(tmp_path: Path) -> None:
    def fault(point: Point) -> Fault | None:
        return Fault.REFUSES_TO_START if int(point.knobs.get("m", 0)) >= 8 else None

    space = {"fake-ngram": {"n": [4], "m": [4, 8, 16, 32]}}
    recorder, folder = run_with(ShortOfMemory(fault=fault), tmp_path, space=space)
    assert [t.point.knobs["m"] for t in folder.trials()[1:] if t.failure] == [8]
    told = "2 Points not launched: one that needs no more ran out of memory"
    assert recorder.notes == [told]
    report, _ = read_run(folder)
    assert list(report.notes) == [told]
    run_with(ShortOfMemory(fault=fault), tmp_path, space=space)
    assert list(read_run(folder)[0].notes) == [told]  # once, also after another start
