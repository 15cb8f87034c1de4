"""A duet on the embedded engine: two real servers at once, each pinned to a core of its own."""

import os
from pathlib import Path

import pytest

from launchers.embedded.model import find_model
from results.records import BASELINE, Phase, Point
from results.sharing import Alone
from results.store import RunFolder
from sweeps.blocks import blocks_here
from sweeps.duet import DUET_FILE
from sweeps.prepare import prepare
from sweeps.sweep import Sweep

pytestmark = [pytest.mark.rig, pytest.mark.timeout(900)]
pytest.importorskip("xllamacpp")

CORES = sorted(os.sched_getaffinity(0))
POINT = Point("ngram-simple", {"size_n": 3, "size_m": 5})


@pytest.mark.skipif(len(CORES) < 2, reason="one core cannot be halved")
def test_both_servers_have_a_core_of_their_own(tmp_path: Path) -> None:
    find_model("smollm2-135m")
    sweep = Sweep.model_validate(
        {
            "args": {"threads": 1},
            "space": {"ngram-simple": {"size_n": [3], "size_m": [5]}},
            "pairing": "duet",
            "duet": {"cores": [CORES[:1], CORES[1:2]]},
            "workload": {"classes": ["code_edit"], "prompts_per_class": 2, "max_tokens": 32},
            "patience": {"foreign_cores": 1000, "client_share": 1, "min_window_s": 0},
        }
    )
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.write_json(DUET_FILE, {"lanes": [{"node": "", "log_ratios": [0.001, -0.001, 0.001, -0.001]}]})
    run = blocks_here(prepare(sweep).setup(folder), [], Alone(0), lambda phase, point: None)
    block = run([POINT], Phase.SEARCH)
    assert block.invalid is None
    assert [arm.on_set for arm in block.arms] == [0, 1]
    assert {arm.point.key for arm in block.arms} == {POINT.key, BASELINE.key}
    for arm in block.arms:
        (measured,) = arm.measurements
        assert arm.failure is None
        assert measured.output_tokens == 2 * 32
        assert measured.telemetry.server_cores is not None
        assert 0 < measured.telemetry.server_cores <= 1.1  # though more threads than one are in it
