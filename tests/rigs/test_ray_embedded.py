"""The embedded engine on the nodes of a real Ray cluster: a killed node loses no Trial, no server stays."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import yaml

from results.store import RunFolder
from sweeps.prepare import prepare
from sweeps.run import run_sweep
from sweeps.sweep import Sweep
from tests.sweeps.cluster.local_ray import kill_one_at_work, on, ray_nodes, seats
from tests.sweeps.test_run import Recorder
from tests.waiting import wait_for

pytestmark = [pytest.mark.rig, pytest.mark.timeout(900)]
pytest.importorskip("ray")


# Servers share the cores here: figures say nothing, and nobody minds.
SMALL: dict[str, object] = {
    "space": {"ngram-simple": {"size_n": [3, 4], "size_m": [4, 8]}},
    "workload": {"classes": ["code_edit"], "prompts_per_class": 1, "max_tokens": 8},
    "budget": {"trials": 3},
    "confirm": {"finalists": 1, "looks": [2]},
    "patience": {"foreign_cores": 1000, "client_share": 1, "min_window_s": 0, "hopeless_ratio": 0},
}


def servers() -> set[int]:
    found = psutil.process_iter(["pid", "cmdline"])
    return {p.info["pid"] for p in found if "launchers.embedded" in (p.info["cmdline"] or ())}


def test_a_killed_node_loses_no_trial_and_leaves_no_server(tmp_path: Path) -> None:
    before, folder, recorder = servers(), RunFolder(tmp_path / "run"), Recorder()
    with ray_nodes(3) as (cluster, nodes), ThreadPoolExecutor() as pool:
        killed = pool.submit(kill_one_at_work, cluster, nodes, folder)
        run_sweep(prepare(Sweep.model_validate({**SMALL, **on(cluster)})), folder, recorder, recorder.stopped)
        name = killed.result()
        wait_for(lambda: not servers() - before, 30)
    trials = folder.trials()
    assert len({t.point.key for t in trials}) == len(trials) == 4
    assert all(t.failure is None for t in trials), [t.failure for t in trials]
    assert [s["node"] for s in seats(folder) if s["lost"]] == [name]


def test_no_server_outlives_its_driver(tmp_path: Path) -> None:
    before = servers()
    with ray_nodes(2) as (cluster, _):
        for end in (signal.SIGTERM, signal.SIGKILL):
            (tmp_path / "sweep.yaml").write_text(yaml.safe_dump({**SMALL, **on(cluster)}))
            command = [
                sys.executable,
                "-c",
                "import tuner; tuner.main()",
                "sweep",
                "sweep.yaml",
                "--run",
                "run",
            ]
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
            driver = subprocess.Popen(command, cwd=tmp_path, env=environment)
            wait_for(lambda: len(servers() - before) == 2, 120)
            driver.send_signal(end)
            if end is signal.SIGTERM:  # once: after the Block in flight; twice: now
                time.sleep(1)
                driver.send_signal(end)
            driver.wait(60)
            wait_for(lambda: not servers() - before, 30)
