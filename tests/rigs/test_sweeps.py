"""Whole sweeps on the real SGLang and vLLM, small enough for every run of the tests."""

import math
from pathlib import Path

import pytest

from analysis.report import markdown
from results.reasons import Reason
from results.records import Trial, TrialState, VerdictKind
from results.store import RunFolder
from sweeps.outcome import read_run
from sweeps.prepare import prepare
from sweeps.run import run_sweep
from sweeps.sweep import Sweep, load_sweep
from tests.rigs.needed import needed_rig
from tests.sweeps.test_run import Recorder

pytestmark = [pytest.mark.rig, pytest.mark.timeout(1500)]
EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "budget": {"trials": 2},
    "confirm": {"finalists": 1, "looks": [2]},
    # what others do on the machine meanwhile spoils a speed, and no speed is asserted here
    "patience": {"foreign_cores": 100, "client_share": 1, "hopeless_ratio": 0, "min_window_s": 0},
}


def run(rig: str, folder: Path, **changes: object) -> tuple[RunFolder, dict[str, Trial]]:
    python = needed_rig(rig)
    example = load_sweep(EXAMPLES / f"{rig}-cpu.yaml").model_dump()
    example["workload"] |= {"prompts_per_class": 3, "max_tokens": 48}
    sweep = Sweep.model_validate({**example, **SMALL, "server": str(python), **changes})
    kept, recorder = RunFolder(folder / rig), Recorder()
    run_sweep(prepare(sweep), kept, recorder, recorder.stopped)
    return kept, {t.label: t for t in kept.trials()}


def test_sglang_is_tuned_and_a_crash_at_the_first_request_is_named(tmp_path: Path) -> None:
    space = {"EAGLE3": {"num_steps": [2], "topk": [2], "draft_tokens": [6, 100]}}
    kept, trials = run("sglang", tmp_path, space=space, ignore_rules=True)
    crashed = trials["EAGLE3 draft_tokens=100 num_steps=2 topk=2"]
    assert crashed.state is TrialState.FAILED
    assert crashed.failure is not None
    assert crashed.failure.reason is Reason.CRASH_UNDER_LOAD
    assert "out of range" in crashed.failure.evidence
    good = trials["EAGLE3 draft_tokens=6 num_steps=2 topk=2"]
    check_confirmed(kept, good)
    settings = markdown(read_run(kept)[0])
    assert "Settings in effect" in settings
    assert "CRASH" in settings


def test_vllm_is_tuned_and_a_crash_at_the_first_draft_is_named(tmp_path: Path) -> None:
    knobs = {"num_speculative_tokens": [2], "rejection_sample_method": ["standard", "synthetic"]}
    kept, trials = run("vllm", tmp_path, space={"eagle3": knobs}, allow_lossy=True)
    crashed = trials["eagle3 num_speculative_tokens=2 rejection_sample_method=synthetic LOSSY"]
    assert crashed.failure is not None
    assert crashed.failure.reason is Reason.CRASH_UNDER_LOAD
    check_confirmed(kept, trials["eagle3 num_speculative_tokens=2"])


def check_confirmed(kept: RunFolder, trial: Trial) -> None:
    """The one good Point has a number, an acceptance and a verdict, whatever the verdict is."""
    assert trial.state is TrialState.MEASURED
    assert trial.log_speedup is not None
    assert math.isfinite(trial.log_speedup)
    report, _ = read_run(kept)
    (verdict,) = report.verdicts
    assert verdict.point == trial.point
    assert verdict.kind is not VerdictKind.INVALID
    assert verdict.acceptance_length is not None
    assert verdict.acceptance_length > 1.5
    assert verdict.identical_share == 1.0  # greedy, float32
    assert report.finished
