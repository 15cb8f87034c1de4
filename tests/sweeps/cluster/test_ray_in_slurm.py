"""The script that runs a Ray cluster inside an allocation, handed in to a real Slurm."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from launchers.port import free_port
from results.store import RunFolder
from tests.slurm import NODE, needed_slurm, slurm
from tests.sweeps.test_run import plan
from tests.waiting import wait_for

pytest.importorskip("ray")

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "examples" / "cluster" / "ray.sbatch"


def test_the_script_runs_a_sweep_on_its_allocation(tmp_path: Path) -> None:
    needed_slurm()
    planned = plan(space={"fake-ngram": {"n": [4], "m": [8]}}, confirm={"looks": [2], "finalists": 1})
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(planned.sweep.model_dump(mode="json")))
    here = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ray = {"RAY_HEAD": "127.0.0.1", "RAY_PORT": str(free_port())}
    with slurm() as cluster:
        command = ["sbatch", "--wait", "--nodes=1", "--gpus-per-node=2", str(SCRIPT)]
        handed_in = subprocess.Popen(
            [*command, "sweep.yaml", "--run", "run"], cwd=tmp_path, env={**os.environ, **here, **ray, **cluster}
        )
        wait_for(lambda: handed_in.poll() is not None, 120)
    said = "\n".join(log.read_text() for log in tmp_path.glob("*.out"))
    assert handed_in.returncode in (0, 4), said
    folder = RunFolder(tmp_path / "run")
    assert len(folder.trials()) == 2
    assert {block.node for block in folder.blocks()} == {os.uname().nodename}, NODE
