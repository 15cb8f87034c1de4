"""What runs in a job of Slurm: it measures the Blocks that its driver asks for, one after the other.

Driver and job exchange files in a folder of the job's own. When that is gone, or the driver is not heard
of, the job ends by itself, and its servers with it: no GPU is held for nobody.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from results.environment import Environment
from results.errors import UsageError
from sweeps.cluster.delivery import Delivery
from sweeps.cluster.shared_files import end_on, is_there, put, take, wait_for_death
from sweeps.cluster.worker import Order, Worker

ORDER, SEAT, ASKED, FOUND = "order", "seat", "asked", "found"  # files of a job
POLL_S = 0.5
END_WITHIN_S = 20.0  # Slurm kills after KillWait, by default 30 s
GPU_VARIABLES = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")  # cgroups renumber the last


@dataclass(frozen=True, slots=True)
class Seat:
    """Where Slurm put a job; what is there, or why nothing can be measured there."""

    node: str
    gpus: tuple[str, ...]
    host: Environment | str
    age_s: float  # of the job


def serve(place: Path, lease: Path, lease_s: float) -> None:
    """Measure until the folder `place` is gone, or nobody has renewed the lease for `lease_s`."""
    end = end_on(signal.SIGTERM, signal.SIGUSR2, within_s=END_WITHIN_S)  # the latter: time is nearly up
    threading.Thread(target=wait_for_death, args=(lease, lease_s, end), daemon=True).start()
    order: Order | None = take(place / ORDER)
    if order is None:
        return  # nobody waits for this job any more
    node, gpus = seat_of(os.environ)
    worker = Worker(order, gpus)
    with suppress(FileNotFoundError):  # `place` is gone meanwhile
        put(place / SEAT, Seat(node, gpus, worker.fingerprint(), age_s()))
        while is_there(place):
            asked = take(place / ASKED)
            if asked is None:
                time.sleep(POLL_S)
            else:
                put(place / FOUND, found(worker, asked))


def found(worker: Worker, asked: Mapping[str, object]) -> Delivery | UsageError:
    """What came of a Block."""
    try:
        return worker.measure(**asked)  # type: ignore[arg-type] # as SlurmLane.measure was called
    except UsageError as error:
        return error


def age_s() -> float:
    """Of this process."""
    return time.time() - psutil.Process().create_time()


def seat_of(environment: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Node and GPUs by what Slurm says in the environment of a job."""
    gpus = next((environment[name] for name in GPU_VARIABLES if environment.get(name)), "")
    return environment.get("SLURMD_NODENAME", socket.gethostname()), tuple(filter(None, gpus.split(",")))
