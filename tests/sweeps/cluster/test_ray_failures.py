"""What is lost with a head or a driver: nothing that was recorded, and no process stays."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from results.store import RunFolder
from sweeps.cluster.board import NODES_FILE
from tests.sweeps.cluster.local_ray import on, ray_nodes
from tests.sweeps.test_run import plan
from tests.waiting import wait_for

pytest.importorskip("ray")

SPACE = {"fake-ngram": {"n": [1, 4], "m": [4, 8]}}
SLOW = {"FAKE_START_S": "1"}
FEW = {"looks": [2], "finalists": 1}


def busy(folder: RunFolder) -> int:
    return sum(seat["block"] is not None for seat in folder.read_json(NODES_FILE).get("seats", ()))


def workers() -> list[psutil.Process]:
    """Processes of actors that measure Blocks."""
    return [p for p in psutil.process_iter(["cmdline"]) if "RayWorker" in " ".join(p.info["cmdline"] or ())]


def started(tmp_path: Path, cluster: Any, start_s: str, **options: Any) -> tuple[Any, RunFolder, list[str]]:
    """A driver as a process of its own, once it has two Blocks in flight; its run, and its command."""
    planned = plan(space=SPACE, env={"FAKE_START_S": start_s}, confirm=FEW, **on(cluster))
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(planned.sweep.model_dump(mode="json")))
    command = [sys.executable, "-c", "import tuner; tuner.main()", "sweep", "sweep.yaml", "--run", "run"]
    folder = RunFolder(tmp_path / "run")
    driver = subprocess.Popen(command, cwd=tmp_path, env=environment(), text=True, **options)
    wait_for(lambda: busy(folder) == 2, 60)
    assert len(workers()) == 2
    return driver, folder, command


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


def test_a_lost_head_ends_the_run_with_what_to_do(tmp_path: Path) -> None:
    with ray_nodes(2) as (cluster, _):
        together = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        driver, folder, _ = started(tmp_path, cluster, "1", **together)
        cluster.head_node.kill_gcs_server(check_alive=False)
        said, _ = driver.communicate(timeout=50)  # Ray would abort it after 60 s
        assert driver.returncode == 5, said
    assert "the head of the Ray cluster at" in said and "then the same command" in said
    assert "Traceback" not in said
    assert "CLUSTER_LOST" in folder.read_json("sessions.json")["sessions"][0]["why"]


def test_a_killed_driver_leaves_no_worker_and_another_one_goes_on(tmp_path: Path) -> None:
    with ray_nodes(2) as (cluster, _):
        driver, folder, command = started(tmp_path, cluster, "1", stdout=subprocess.DEVNULL)
        wait_for(lambda: len(folder.trials()) > 1 and busy(folder) == 2, 60)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        recorded = len(folder.trials())
        wait_for(lambda: not workers(), 30)
        ended = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
        assert ended.returncode in (0, 4), ended.stderr
        assert "raylet" not in ended.stdout.lower()
    trials = folder.trials()
    assert len(trials) == 5 > recorded
    assert len({t.point.key for t in trials}) == 5


def test_interrupting_twice_ends_at_once_and_leaves_no_worker(tmp_path: Path) -> None:
    with ray_nodes(2) as (cluster, _):
        together = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        driver, _, _ = started(tmp_path, cluster, "60", **together)
        driver.send_signal(signal.SIGINT)
        time.sleep(1)
        driver.send_signal(signal.SIGINT)
        said, _ = driver.communicate(timeout=30)
        assert driver.returncode == 130, said
        assert "Traceback" not in said
        wait_for(lambda: not workers(), 30)
