"""No straw man: what the finalists owe to settings that a server without speculation could have too."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from analysis import findings, tables
from analysis.verdict import AnswerKind
from launchers.fake import FakeEngine
from results.records import BASELINE, Phase, Point
from results.store import RunFolder
from sweeps.outcome import EXIT_CODES, read_run
from sweeps.strongest import FINALIST
from tests.sweeps.test_run import Recorder, run_with


@pytest.fixture(autouse=True)
def short_calibration() -> Iterator[None]:
    with patch("sweeps.calibrate._CHUNKS", 1):
        yield


SPACE = {"fake-ngram": {"n": [4], "m": [8]}}
QUICK = {"max_tokens": 30, "prompts_per_class": 2, "classes": ["code_edit"]}
FAST = Point("fake-ngram", {"n": 4, "m": 8, "--batch": 8})
STRONG = Point("none", {"--batch": 8})


def speed(of_speculation: float) -> Callable[[Point, str], float]:
    """`--batch 8` alone is worth a half."""
    return lambda point, _: (
        400.0
        * (1.0 if point.is_baseline else of_speculation)
        * (1.5 if point.knobs.get("--batch") == 8 else 1.0)
    )


def sweep(
    tmp_path: Path, gain: float = 1.2, trials: int = 9, baseline_trials: int = 0
) -> tuple[Recorder, RunFolder]:
    """The baseline's own tuning has no budget, so that the search meets its best setting first."""
    return run_with(
        FakeEngine(speed(gain)),
        tmp_path,
        space=SPACE,
        shared={"--batch": [8]},
        workload=QUICK,
        budget={"trials": trials, "baseline_trials": baseline_trials},
        confirm={"looks": [3], "finalists": 2},
    )


def test_a_finalists_settings_make_a_better_baseline(tmp_path: Path) -> None:
    recorder, folder = sweep(tmp_path)
    (challenger,) = [t for t in folder.trials() if t.source == FINALIST]
    assert challenger.point == STRONG
    assert {b.compared_with.key for b in folder.blocks() if b.phase is Phase.CONFIRM} == {STRONG.key}
    report, code = read_run(folder)
    assert code == EXIT_CODES[AnswerKind.WINNER]
    assert report.winner is not None and report.winner.effect is not None
    assert report.winner.point == FAST
    assert 1.1 < math.exp(report.winner.effect.log_ratio) < 1.3  # 1.8 against a straw man
    assert any("a better baseline" in note and STRONG.label in note for note in recorder.notes)
    estimate = findings.search_estimate(report, FAST)
    assert estimate is not None
    assert 1.1 < math.exp(estimate) < 1.3  # told against the same baseline as the confirmed figure
    assert "none --batch=8" in tables.finalists(report).note
    before = folder.blocks()
    sweep(tmp_path)
    assert folder.blocks() == before


def test_a_gain_that_is_not_speculations_wins_nothing(tmp_path: Path) -> None:
    _, folder = sweep(tmp_path, gain=0.9)
    report, code = read_run(folder)
    assert (code, report.winner) == (0, None)
    assert report.headline.startswith("No configuration beats the baseline.")
    assert "--batch" in report.command and '"none"' in report.command


def test_what_the_baseline_was_tuned_over_is_not_tried_again(tmp_path: Path) -> None:
    _, folder = sweep(tmp_path, baseline_trials=3)
    assert [t.source for t in folder.trials()].count(FINALIST) == 0
    assert folder.read_json("finalists.json")["baseline"] == {
        "method": "none",
        "knobs": {"--batch": 8},
        "name": "",
    }


def test_a_tuned_baseline_is_no_finalist(tmp_path: Path) -> None:
    _, folder = sweep(tmp_path, baseline_trials=3)
    assert all(p["method"] != "none" for p in folder.read_json("finalists.json")["points"])
    confirmed = [b for b in folder.blocks() if b.phase is Phase.CONFIRM]
    assert all(a.point == STRONG or not a.point.is_baseline for b in confirmed for a in b.arms)


def test_a_stronger_baseline_of_a_later_start_ends_the_earlier_confirmation(tmp_path: Path) -> None:
    """The first start meets only Points without the setting: its finalist is confirmed against BASELINE."""
    _, folder = sweep(tmp_path, trials=1)
    first = [b for b in folder.blocks() if b.phase is Phase.CONFIRM]
    assert {b.compared_with.key for b in first} == {BASELINE.key}
    sweep(tmp_path)
    report, _ = read_run(folder)
    confirmed = [b for b in folder.blocks() if b.phase is Phase.CONFIRM]
    assert {b.compared_with.key for b in confirmed[len(first) :]} == {STRONG.key}
    assert report.winner is not None and report.winner.effect is not None
    assert report.winner.effect.blocks == 3
    assert 1.1 < math.exp(report.winner.effect.log_ratio) < 1.3
