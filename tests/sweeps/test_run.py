"""Whole sweeps on the stand-in engine, and what their folder says afterwards."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from analysis.verdict import AnswerKind
from results.errors import MeasurementInvalid, UsageError
from results.records import BASELINE, Phase, Point, Trial, TrialState, Verdict, VerdictKind
from results.store import RunFolder
from sweeps.outcome import EXIT_CODES, read_run
from sweeps.prepare import Plan, prepare
from sweeps.run import claim, run_sweep
from sweeps.sweep import Sweep

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
        "patience": {"client_share": 1, "min_window_s": 0, "hopeless_ratio": 0},
        **changes,
    }
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
    assert report.phases_s["the tool itself"] >= 0
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
    patience = {"client_share": 1, "min_window_s": 0, "hopeless_ratio": 0.99}
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
