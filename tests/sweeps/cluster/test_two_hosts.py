"""A sweep over two hosts, as docs/cluster.md has it, over a network with a cable that is taken out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from results.store import RunFolder
from tests.sweeps.cluster.hosts import Host, two_hosts
from tests.sweeps.cluster.local_ray import SLOT, seats
from tests.sweeps.test_run import plan
from tests.waiting import wait_for

pytest.importorskip("ray")

PORT = 6379
RAY = (sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1", f'--resources={{"{SLOT}": 1}}')
TUNER = (sys.executable, "-c", "import tuner; tuner.main()", "sweep", "sweep.yaml", "--run", "run")
ENV = {
    **os.environ,
    "PYTHONPATH": str(Path(__file__).parents[3]),
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray notices after a minute that a node is cut off; here within seconds.
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}


def test_a_host_that_is_cut_off_loses_no_trial_and_keeps_no_worker(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with two_hosts(tmp_path) as (a, b):
        a.run(
            *RAY,
            "--head",
            f"--port={PORT}",
            f"--node-ip-address={a.address}",
            "--include-dashboard=false",
            env=ENV,
        )
        b.run(*RAY, f"--address={a.address}:{PORT}", env=ENV)
        driver = swept(a, tmp_path)
        wait_for(lambda: any(block.node == b.name for block in folder.blocks()))
        wait_for(lambda: any(s["node"] == b.name and s["block"] is not None for s in seats(folder)))
        b.plug(out=True)
        said, _ = driver.communicate(timeout=120)
        assert driver.returncode in (0, 4), said
        b.plug()
        wait_for(lambda: not any("ray::RayWorker" in line for line in b.processes().values()), 30)
    assert len({t.point.key for t in folder.trials()}) == len(folder.trials()) == 6
    assert all(t.failure is None for t in folder.trials())
    assert {block.node for block in folder.blocks()} == {a.name, b.name}
    assert f"{b.name} is lost (its actor" in said
    assert [s["node"] for s in seats(folder) if s["lost"]] == [b.name]


def swept(host: Host, tmp_path: Path) -> "subprocess.Popen[str]":
    """A driver on this host."""
    planned = plan(
        space={"fake-ngram": {"n": [1, 4], "m": [4, 8, 32]}},
        budget={"trials": 5},
        env={"FAKE_START_S": "1"},
        confirm={"looks": [2], "finalists": 1},
        launcher="ray",
        ray={"address": f"{host.address}:{PORT}", "resources": {SLOT: 1}},
    )
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(planned.sweep.model_dump(mode="json")))
    return host.start(*TUNER, cwd=tmp_path, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
