"""A finished run of the stand-in engine, for what is pinned of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from launchers.fake import FakeEngine
from results.records import Point
from results.store import RunFolder
from sweeps.prepare import prepare
from sweeps.run import run_sweep
from sweeps.sweep import Sweep
from tests.sweeps.test_run import Recorder

SWEEP = {
    "name": "guarded",
    "engine": "fake",
    "space": {"fake-ngram": {"n": 4, "m": [2, 8]}},
    "workload": {"max_tokens": 60, "prompts_per_class": 2, "classes": ["code_edit"]},
    "confirm": {"looks": [3], "finalists": 1},
    "budget": {"trials": 2},
    "patience": {"client_share": 1, "foreign_cores": 100, "min_window_s": 0, "hopeless_ratio": 0},
}


@pytest.fixture(scope="package")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """With a winner: the stand-in is faster when it drafts."""
    folder = RunFolder(tmp_path_factory.mktemp("nightly") / "guarded")
    plan = replace(prepare(Sweep.model_validate(SWEEP)), engine=FakeEngine(_speed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.block.MIN_CONCURRENCY_SHARE", 0.5)
        run_sweep(plan, folder, Recorder(), lambda: False)
    return folder


def _speed(point: Point, _: str) -> float:
    """So far apart that a busy machine does not blur it."""
    return 200.0 if point.is_baseline else 400.0 + 50.0 * int(point.knobs["m"])


@pytest.fixture
def pinned_file(finished: RunFolder, tmp_path: Path) -> Path:
    from sweeps.nightly.pin import pin_of, pin_text

    file = tmp_path / "pinned.yaml"
    file.write_text(pin_text(pin_of(finished, blocks=2), str(finished.path)), encoding="utf-8")
    return file
