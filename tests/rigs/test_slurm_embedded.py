"""The embedded engine in jobs of a real Slurm: a cancelled job loses no Trial, no server stays."""

import subprocess
import threading
from pathlib import Path

import psutil
import pytest

from launchers.process import GUARD
from results.store import RunFolder
from sweeps.cluster import slurm_queue
from sweeps.cluster.board import NODES_FILE
from sweeps.prepare import prepare
from sweeps.run import run_sweep
from sweeps.sweep import Sweep
from tests.slurm import NODE, needed_slurm, slurm
from tests.sweeps.test_run import Recorder
from tests.waiting import wait_for

pytestmark = [pytest.mark.rig, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]


def guards(slurm_conf: str) -> list[psutil.Process]:
    """Processes that hold a server each, in jobs of this Slurm."""
    found = [p for p in psutil.process_iter(["cmdline"]) if str(GUARD) in (p.info["cmdline"] or ())]
    return [p for p in found if p.is_running() and p.environ().get("SLURM_CONF") == slurm_conf]


def busy(folder: RunFolder) -> int:
    return sum(seat["block"] is not None for seat in folder.read_json(NODES_FILE).get("seats", ()))


def test_a_cancelled_job_loses_no_trial_and_leaves_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed_slurm()
    folder, recorder = RunFolder(tmp_path / "run"), Recorder(stop_after=2)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(slurm_queue, "ASK_S", 0.5)
    content = {
        "space": {"ngram-simple": {"size_n": [3, 4], "size_m": [8]}},
        "workload": {"classes": ["code_edit"], "prompts_per_class": 2, "max_tokens": 12},
        "budget": {"trials": 2, "baseline_every": 1},
        # Two servers share the cores here: figures say nothing, and nobody minds.
        "patience": {"foreign_cores": 1000, "client_share": 1, "min_window_s": 0},
        "launcher": "slurm",
        "slurm": {"servers": 2, "time": 10},
    }
    planned = prepare(Sweep.model_validate(content))
    with slurm() as cluster:
        for name, value in cluster.items():
            monkeypatch.setenv(name, value)

        def cancel_when_busy() -> None:
            wait_for(lambda: busy(folder) > 0 and bool(guards(cluster["SLURM_CONF"])))
            subprocess.run(["scancel", "1"], check=True)

        cancelling = threading.Thread(target=cancel_when_busy)
        cancelling.start()
        run_sweep(planned, folder, recorder, recorder.stopped)
        cancelling.join()
        wait_for(lambda: not guards(cluster["SLURM_CONF"]))
    assert len(folder.trials()) == 3
    assert all(t.failure is None for t in folder.trials())
    assert {block.node for block in folder.blocks()} == {NODE}
    assert any("is lost (job 1: CANCELLED)" in note for note in recorder.notes)
