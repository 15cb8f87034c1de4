"""Jobs of Slurm as a driver sees them: handed in through submitit, asked for, cancelled."""

import io
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.errors import UsageError
from sweeps.cluster.sections import Slurm

ASK_S = 10.0  # between two questions to Slurm's controller, about all jobs at once
WAITING = ("PENDING", "CONFIGURING")
AT_WORK = ("RUNNING", "COMPLETING")  # the latter may just have left its last Block
AFTERWARDS = ("srun: ", "slurmstepd: ")  # Slurm's own lines about a task that failed
GONE = "GONE"  # Slurm knows nothing of the job any more


class Refused(Exception):
    """Slurm does not take a job; the message is sbatch's."""


@dataclass(frozen=True, slots=True)
class State:
    """Of a job, in Slurm's words, with the reason why it waits."""

    name: str
    reason: str = ""

    @property
    def waits(self) -> bool:
        return self.name in WAITING

    @property
    def works(self) -> bool:
        return self.name in AT_WORK


class Queue:
    """The jobs of one driver. Threads may share it."""

    def __init__(self, section: Slurm, gpus: int, name: str, folder: Path) -> None:
        """`folder` gets submitit's files and the jobs' logs. Raises UsageError without a Slurm."""
        submitit = _imported()
        self._executor = submitit.SlurmExecutor(folder)
        self._parameters = parameters(section, gpus, name)
        self._exclude = str(section.sbatch.get("exclude", ""))
        self._folder, self._lock = folder, threading.Lock()
        self._states: dict[str, State] = {}  # of jobs that are not over
        self._asked_at = 0.0

    def submit(self, function: Callable[..., None], *args: object, without: Sequence[str] = ()) -> str:
        """Hand in a job that calls the function, on none of the nodes `without`; its id. Raises Refused."""
        from submitit.core.utils import FailedJobError

        excluded = ",".join(filter(None, (self._exclude, *without)))
        with self._lock, redirect_stderr(io.StringIO()):  # submitit prints what it raises too
            self._executor.update_parameters(**self._parameters, exclude=excluded or None)
            try:
                job = str(self._executor.submit(function, *args).job_id)
            except FailedJobError as error:
                said = last_line(str(error)).removeprefix("sbatch: error: ")
                raise Refused(said.removeprefix("Batch job submission failed: ")) from None
            self._states[job] = State("PENDING")
        return job

    def state(self, job: str) -> State:
        """As Slurm told it last; a controller that does not answer changes nothing."""
        with self._lock:
            if time.monotonic() - self._asked_at >= ASK_S:
                self._look()
                self._asked_at = time.monotonic()
            return self._states.get(job, State(GONE))

    def works(self, job: str) -> None:
        """It was heard of itself: what Slurm told of it before is old."""
        with self._lock:
            self._states[job] = State("RUNNING")

    @property
    def is_empty(self) -> bool:
        """Whether no job waits or works, as far as is known."""
        with self._lock:
            return not any(state.waits or state.works for state in self._states.values())

    def cancel(self, job: str) -> None:
        """End a job, wherever it is by now."""
        self.forget(job)
        _run(["scancel", "--quiet", job])

    def forget(self, job: str) -> None:
        """It ends by itself, or has."""
        with self._lock:
            self._states.pop(job, None)

    def cancel_all(self) -> None:
        for job in [*self._states]:
            self.cancel(job)

    def log(self, job: str) -> Path:
        """What the job itself printed."""
        return self._folder / f"{job}_0_log.out"

    def _look(self) -> None:
        """Ask about all jobs that were alive when last asked."""
        alive = [job for job, state in self._states.items() if state.waits or state.works]
        if not alive:
            return
        told = _squeue(alive)
        if told is not None:
            self._states |= {job: told.get(job) or State(_sacct(job)) for job in alive}


def parameters(section: Slurm, gpus: int, name: str) -> Mapping[str, Any]:
    """What submitit is told of every job."""
    further = {key: value for key, value in section.sbatch.items() if value is not False and key != "exclude"}
    return {
        "job_name": f"tuner-{name}",
        "nodes": 1,
        "ntasks_per_node": 1,
        "partition": section.partition,
        "account": section.account,
        "qos": section.qos,
        "constraint": section.constraint,
        "time": section.time,
        "gpus_per_node": gpus or None,
        "gres": section.gres,
        "cpus_per_task": section.cpus,
        "mem": section.mem,
        "srun_args": [f"--cpus-per-task={section.cpus}"] if section.cpus else None,  # srun 22.05 asks for it
        "signal_delay_s": 1,  # Slurm adds up to a minute; servers in a job do not survive this signal
        "stderr_to_stdout": True,
        "wckey": None,
        # A lost Block is measured in another job: the same one begun anew would find nobody.
        "additional_parameters": {"no-requeue": True, **further},
    }


def last_line(text: str) -> str:
    """The last that a program said itself."""
    lines = (line.strip() for line in reversed(text.splitlines()))
    return next((line for line in lines if line and not line.startswith(AFTERWARDS)), "it does not say why")


def _squeue(jobs: Sequence[str]) -> Mapping[str, State] | None:
    """What Slurm's controller knows of them, ended ones for minutes too; None if it does not answer."""
    options = ["--noheader", "--states=all", f"--jobs={','.join(jobs)}", "--format=%i|%T|%r"]
    asked = _run(["squeue", *options])
    if asked.returncode and "Invalid job id" not in asked.stderr:
        return None
    told = (line.split("|") for line in asked.stdout.splitlines() if line.count("|") == 2)
    return {job.strip(): State(name, reason) for job, name, reason in told}


def _sacct(job: str) -> str:
    """How a job ended that the controller has forgotten, if the cluster keeps accounts."""
    asked = _run(["sacct", "--noheader", "--allocations", "--parsable2", "--format=State", f"--jobs={job}"])
    return next(iter(asked.stdout.split()), GONE) if not asked.returncode else GONE


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))


def _imported() -> Any:
    try:
        import submitit
    except ImportError:
        raise UsageError(
            "launcher: slurm needs the package submitit: pip install -e '.[slurm]' in the folder of tuner"
        ) from None
    absent = [name for name in ("sbatch", "squeue", "scancel", "srun") if shutil.which(name) is None]
    if absent:
        raise UsageError(
            f"launcher: slurm: {', '.join(absent)} not found on the PATH: run this on a machine that hands in"
            " jobs, such as a login node of the cluster, or use another launcher"
        )
    return submitit
