"""Whole sweeps on a real Slurm of one node: same verdict, nothing lost, nothing left."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from results.errors import MeasurementInvalid, UsageError
from results.reasons import Reason
from results.store import RunFolder
from sweeps.cluster import slurm_lanes, slurm_queue
from sweeps.cluster.board import NODES_FILE
from sweeps.outcome import read_run
from sweeps.run import run_sweep
from tests.slurm import NODE, needed_slurm, slurm
from tests.sweeps.test_run import Recorder, plan, run
from tests.waiting import wait_for

SPACE = {"fake-ngram": {"n": [1, 4], "m": [4, 8]}}
SLOW = {"FAKE_START_S": "1"}
FEW = {"looks": [2], "finalists": 1}
ASK_S = slurm_queue.ASK_S
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    needed_slurm()
    with slurm() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", str(ROOT))  # jobs import what is tested
        patch.setattr(slurm_queue, "ASK_S", 0.5)
        yield


@pytest.fixture(autouse=True)
def _nothing_left(cluster: None) -> Iterator[None]:
    yield
    subprocess.run(["scontrol", "update", f"nodename={NODE}", "state=resume"], capture_output=True)
    left = jobs()
    if left:
        subprocess.run(["scancel", *left], check=True)
    wait_for(lambda: not jobs())
    assert not left


def on(**section: object) -> dict[str, Any]:
    return {"launcher": "slurm", "slurm": {"servers": 2, "time": 10, **section}}


def jobs() -> list[str]:
    """Those that wait or run, once what was ended has ended."""
    asked = ["squeue", "--noheader", "--format=%i", "--states=PENDING,RUNNING,SUSPENDED"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()


def ended(job: str) -> str:
    asked = ["squeue", "--noheader", "--format=%T", "--states=all", f"--jobs={job}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def busy(folder: RunFolder) -> int:
    return sum(seat["block"] is not None for seat in folder.read_json(NODES_FILE).get("seats", ()))


def test_the_verdict_is_that_of_a_single_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_queue, "ASK_S", ASK_S)  # as seldom as in real life
    env = {"HF_TOKEN": "planted"}
    _, folder = run(tmp_path / "slurm", space=SPACE, env=env, **on(servers=3, gpus=1))
    _, alone = run(tmp_path / "alone", space=SPACE, env=env)
    report, code = read_run(folder)
    single, its_code = read_run(alone)
    assert code == its_code == 0
    assert report.winner is not None and single.winner is not None
    assert report.winner.point == single.winner.point
    assert {t.point.key for t in folder.trials()} == {t.point.key for t in alone.trials()}
    blocks = folder.blocks()
    assert sorted(b.number for b in blocks) == list(range(len(blocks)))
    assert {b.node for b in blocks} == {NODE}
    assert {b.gpus for b in blocks} > {("0",), ("1",)}  # the work was spread
    for block in blocks:
        for arm in block.arms:
            assert folder.read_requests(arm.requests)
            assert (folder.logs / arm.log).read_text().startswith("fake server")
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"planted" in path.read_bytes()]
    wait_for(lambda: not jobs())


def cancel() -> None:
    subprocess.run(["scancel", jobs()[0]], check=True)


def lose_node() -> None:
    """Down and up again; Slurm refuses to resume a node while it still takes its jobs away."""

    def becomes(state: str) -> bool:
        change = ["scontrol", "update", f"nodename={NODE}", f"state={state}", "reason=lost"]
        return subprocess.run(change, check=False, capture_output=True).returncode == 0

    assert becomes("down")
    wait_for(lambda: becomes("resume") or not is_down())


def is_down() -> bool:
    asked = ["sinfo", "--noheader", f"--nodes={NODE}", "--format=%T"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.startswith("down")


def suspend() -> None:
    subprocess.run(["scontrol", "suspend", jobs()[0]], check=True)


@pytest.mark.parametrize(
    ("lose", "state", "lost"),
    [(cancel, "CANCELLED", 1), (lose_node, "NODE_FAIL", 2), (suspend, "SUSPENDED", 1)],
)
def test_a_lost_job_loses_no_trial(tmp_path: Path, lose: Callable[[], None], state: str, lost: int) -> None:
    recorder, folder = Recorder(), RunFolder(tmp_path / "run")

    def lose_when_busy() -> None:
        wait_for(lambda: busy(folder) == 2)
        lose()

    losing = threading.Thread(target=lose_when_busy)
    losing.start()
    run_sweep(plan(space=SPACE, env=SLOW, confirm=FEW, **on()), folder, recorder, recorder.stopped)
    losing.join()
    assert len({t.point.key for t in folder.trials()}) == len(folder.trials()) == 5
    assert all(t.failure is None for t in folder.trials())
    notes = [note for note in recorder.notes if "is lost" in note]
    assert len(notes) == lost and all(f": {state})" in note for note in notes)
    assert sum(bool(s["lost"]) for s in folder.read_json(NODES_FILE)["seats"]) == lost
    wait_for(lambda: not jobs())


def started(tmp_path: Path, start_s: str, **options: Any) -> tuple[Any, RunFolder, list[str]]:
    """A driver as a process of its own, once it has two Blocks in flight; its run, and its command."""
    planned = plan(space=SPACE, env={"FAKE_START_S": start_s}, confirm=FEW, **on())
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(planned.sweep.model_dump(mode="json")))
    short = (
        "from sweeps.cluster import slurm_lanes, slurm_queue; slurm_lanes.LEASE_S, slurm_queue.ASK_S = 6, 0.5"
    )
    code = f"{short}; import tuner; tuner.main()"
    command = [sys.executable, "-c", code, "sweep", "sweep.yaml", "--run", "run"]
    folder = RunFolder(tmp_path / "run")
    driver = subprocess.Popen(command, cwd=tmp_path, text=True, **options)
    wait_for(lambda: driver.poll() is not None or busy(folder) == 2)
    return driver, folder, command


def test_jobs_of_a_killed_driver_end_and_another_one_goes_on(tmp_path: Path) -> None:
    driver, folder, command = started(tmp_path, "1", stdout=subprocess.DEVNULL)
    wait_for(lambda: len(folder.trials()) > 1 and busy(folder) == 2)
    driver.kill()
    driver.wait()
    orphans, recorded = jobs(), len(folder.trials())
    assert len(orphans) == 2
    wait_for(lambda: not jobs())
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode in (0, 4), again.stderr
    assert len({t.point.key for t in folder.trials()}) == len(folder.trials()) == 5 > recorded
    wait_for(lambda: not jobs())


def test_interrupting_twice_cancels_the_jobs(tmp_path: Path) -> None:
    driver, _, _ = started(tmp_path, "60", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    running = jobs()
    driver.send_signal(signal.SIGINT)
    time.sleep(1)
    driver.send_signal(signal.SIGINT)
    said, _ = driver.communicate(timeout=60)
    assert driver.returncode == 130, said
    assert "Traceback" not in said
    wait_for(lambda: {ended(job) for job in running} == {"CANCELLED"})


def test_what_slurm_does_not_take_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Slurm takes no job of this sweep: .*Invalid partition"):
        run(tmp_path, **on(partition="nowhere"))
    with pytest.raises(UsageError, match=r"Slurm takes no job of this sweep: .*not available"):
        run(tmp_path / "gpus", **on(gpus=9))


def test_a_job_that_waits_says_why_and_is_not_left_waiting(tmp_path: Path) -> None:
    class Stopping(Recorder):
        def note(self, text: str) -> None:
            super().note(text)
            if "queue" in text:
                self._left = 0

    recorder, folder = Stopping(), RunFolder(tmp_path / "run")
    run_sweep(plan(**on(sbatch={"hold": True})), folder, recorder, recorder.stopped)
    assert recorder.notes[1:] == ["jobs wait in the queue: JobHeldUser"]
    assert len(folder.trials()) == 1
    assert not jobs()


def test_a_job_that_cannot_start_ends_the_run_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_lanes, "serve", fails)
    with pytest.raises(MeasurementInvalid, match=r"FAILED.*RuntimeError: no such thing") as ended:
        run(tmp_path, **on())
    assert ended.value.reason is Reason.CLUSTER_LOST
    wait_for(lambda: not jobs())


def fails(place: Path, lease: Path, lease_s: float) -> None:
    raise RuntimeError(f"no such thing as {os.fspath(place)}")


def test_jobs_whose_time_is_used_up_are_replaced(tmp_path: Path) -> None:
    recorder, folder = run(tmp_path, space=SPACE, confirm=FEW, **on(time=1))
    assert len(folder.trials()) == 5
    assert all("its time is nearly used up" in note for note in recorder.notes[1:])
    assert len(folder.read_json(NODES_FILE)["seats"]) > 2
    wait_for(lambda: not jobs())
