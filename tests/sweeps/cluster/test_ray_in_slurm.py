"""The script that runs a Ray cluster inside an allocation, handed in to a real Slurm."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from launchers.port import free_port
from results.store import RunFolder
from tests.exported import program, ran
from tests.slurm import needed_slurm, slurm
from tests.sweeps.test_run import plan
from tests.waiting import wait_for

pytest.importorskip("ray")

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "examples" / "cluster" / "ray.sbatch"


def test_shellcheck_finds_nothing() -> None:
    ran(program("shellcheck"), SCRIPT)


def test_the_script_runs_a_sweep_on_its_allocation(tmp_path: Path) -> None:
    needed_slurm()
    planned = plan(space={"fake-ngram": {"n": [4], "m": [8]}}, confirm={"looks": [2], "finalists": 1})
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(planned.sweep.model_dump(mode="json")))
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ray = {"RAY_HEAD": "127.0.0.1", "RAY_PORT": str(free_port())}
    with slurm() as cluster:
        options = ["--wait", "--nodes=1", "--gpus-per-node=2"]
        command = ["sbatch", *options, str(SCRIPT), "sweep.yaml", "--run", "run"]
        environment = {**os.environ, **own, **ray, **cluster}
        handed_in = subprocess.Popen(command, cwd=tmp_path, env=environment)
        wait_for(lambda: handed_in.poll() is not None, 120)
    said = "\n".join(log.read_text() for log in tmp_path.glob("*.out"))
    assert handed_in.returncode in (0, 4), said
    folder = RunFolder(tmp_path / "run")
    assert len(folder.trials()) == 2
    assert len(folder.blocks()) >= 3
