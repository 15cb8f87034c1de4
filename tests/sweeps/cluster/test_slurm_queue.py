"""What a driver makes of the words of Slurm's programs, which are scripts here."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from results.errors import UsageError
from results.records import KnobValue
from sweeps.cluster import slurm_queue
from sweeps.cluster.sections import Slurm
from sweeps.cluster.slurm_job import seat_of
from sweeps.cluster.slurm_queue import Queue, Refused, State, parameters
from sweeps.sweep import Sweep

Says = Callable[[str, str], None]


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    """Call with a program and the shell that it is from now on."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(slurm_queue, "ASK_S", 0.0)

    def says(program: str, shell: str) -> None:
        path = programs / program
        path.write_text(f"#!/bin/sh\n{shell}\n")
        path.chmod(0o755)

    for program in ("srun", "sacct", "scancel", "squeue"):
        says(program, "exit 1")
    says("sbatch", "echo Submitted batch job 7")
    return says


def queue(tmp_path: Path, **section: object) -> Queue:
    return Queue(Slurm.model_validate(section), 2, "mine", tmp_path / "shared")


def test_a_job_is_what_squeue_says_and_then_what_sacct_says(says: Says, tmp_path: Path) -> None:
    jobs = queue(tmp_path)
    job = jobs.submit(print)
    assert job == "7"
    says("squeue", "echo '7|PENDING|QOSMaxGRESPerUser'")
    assert jobs.state(job) == State("PENDING", "QOSMaxGRESPerUser")
    says("squeue", "echo '7|RUNNING|None'")
    assert jobs.state(job).works
    says("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    assert jobs.state(job).works  # it goes on without the controller
    says("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    says("sacct", "echo 'CANCELLED by 1000'")
    assert jobs.state(job) == State("CANCELLED")
    assert jobs.is_empty


def test_a_job_that_was_heard_of_works_until_slurm_says_otherwise(
    says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = queue(tmp_path)
    job = jobs.submit(print)
    says("squeue", "echo '7|PENDING|Resources'")
    assert jobs.state(job).waits
    monkeypatch.setattr(slurm_queue, "ASK_S", 1000.0)
    jobs.works(job)
    assert jobs.state(job).works


def test_a_job_that_nobody_knows_any_more_is_gone(says: Says, tmp_path: Path) -> None:
    jobs = queue(tmp_path)
    job = jobs.submit(print)
    says("squeue", "true")
    assert jobs.state(job) == State("GONE")


def test_a_refusal_is_told_in_the_words_of_sbatch(
    says: Says, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = queue(tmp_path)
    says("sbatch", "echo 'sbatch: error: Job violates accounting/QOS policy' >&2; exit 1")
    with pytest.raises(Refused, match=r"^Job violates accounting/QOS policy$"):
        jobs.submit(print)
    assert jobs.is_empty
    assert capfd.readouterr() == ("", "")


def test_the_job_file_says_what_the_sweep_file_says(says: Says, tmp_path: Path) -> None:
    jobs = queue(
        tmp_path,
        partition="gpu",
        account="llm",
        qos="low",
        constraint="h200",
        cpus=16,
        mem="64G",
        time=90,
        sbatch={"exclusive": True, "mail_type": "FAIL", "exclude": "bad1", "contiguous": False},
    )
    says("sbatch", f'cp "$1" {tmp_path}/handed-in; echo Submitted batch job 8')
    jobs.submit(print, without=["node3", "node4"])
    text = (tmp_path / "handed-in").read_text()
    options = {line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")}
    assert options >= {
        "partition=gpu",
        "account=llm",
        "qos=low",
        "constraint=h200",
        "cpus-per-task=16",
        "mem=64G",
        "time=90",
        "gpus-per-node=2",
        "nodes=1",
        "no-requeue",
        "exclusive",
        "mail-type=FAIL",
        "exclude=bad1,node3,node4",
        "job-name=tuner-mine",
    }
    assert "contiguous" not in text and "wckey" not in text
    assert "--cpus-per-task=16" in text.splitlines()[-1]
    assert sys.executable in text


def test_gres_in_place_of_gpus() -> None:
    told = parameters(Slurm(gres="gpu:h200:2"), 0, "mine")
    assert (told["gres"], told["gpus_per_node"]) == ("gpu:h200:2", None)
    with pytest.raises(ValueError, match="gpus and gres are both given"):
        Slurm(gres="gpu:1", gpus=1)


def test_a_machine_without_slurm_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"sbatch, squeue, scancel, srun not found on the PATH: run this on"):
        queue(tmp_path)


@pytest.mark.parametrize(
    ("option", "why"),
    [("--time", "write slurm.time"), ("cpus_per_task", "write slurm.cpus"), ("array", "is set by tuner")],
)
def test_options_that_tuner_sets_are_refused(option: str, why: str) -> None:
    options: dict[str, KnobValue] = {option: 1}
    with pytest.raises(ValueError, match=why):
        Slurm(sbatch=options)


def test_how_jobs_wait_is_no_part_of_what_is_measured() -> None:
    def identity(**section: object) -> str:
        return Sweep.model_validate({"launcher": "slurm", "slurm": section}).identity()

    waiting = {"time": 60, "servers": 1, "qos": "low", "account": "llm", "folder": "/scratch/me"}
    assert identity() == identity(**waiting)
    assert identity() != identity(constraint="h200")
    with pytest.raises(ValueError, match="slurm: is for `launcher: slurm`"):
        Sweep.model_validate({"slurm": {}})


@pytest.mark.parametrize(
    ("environment", "seat"),
    [
        (
            {"SLURMD_NODENAME": "n3", "SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "0,1"},
            ("n3", ("2", "3")),
        ),
        ({"SLURMD_NODENAME": "n3", "CUDA_VISIBLE_DEVICES": "1"}, ("n3", ("1",))),
        ({"SLURMD_NODENAME": "n3", "CUDA_VISIBLE_DEVICES": ""}, ("n3", ())),
    ],
)
def test_where_a_job_is(environment: dict[str, str], seat: tuple[str, tuple[str, ...]]) -> None:
    assert seat_of(environment) == seat
