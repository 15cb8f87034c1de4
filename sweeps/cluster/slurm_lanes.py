"""Lanes of a Slurm cluster: a job holds a node, or GPUs of one, and measures Blocks until its time ends.

A job is a Lane and not a single Block, so that a sweep waits in the queue once, and so that a baseline that
is measured every few trials alone is measured on the machine of those trials.
"""

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from results.environment import Environment
from results.errors import MeasurementInvalid, UsageError
from results.lines import explained
from results.reasons import Reason
from results.records import BASELINE, Block, Phase, Point
from results.store import RunFolder
from sweeps.blocks import LaneLost, LaneOver
from sweeps.cluster.board import Board
from sweeps.cluster.delivery import Delivery, unpacked
from sweeps.cluster.sections import Slurm
from sweeps.cluster.shared_files import beating, put, take
from sweeps.cluster.slurm_job import ASKED, FOUND, ORDER, SEAT, Seat, serve
from sweeps.cluster.slurm_queue import Queue, Refused, State, last_line
from sweeps.cluster.worker import order_of
from sweeps.observer import Observer
from sweeps.prepare import Plan

LEASE_S = 180.0  # a job ends when its driver has not been heard of for so long
POLL_S = 0.5
RETRY_S = 60.0  # after Slurm refused one more job
SPARE_S = 90.0  # of a job's time: Slurm may end it a minute early
MOST_REFUSED = 3  # nodes, none of which can measure
OWN_FAULTS = {  # a job that ends so without a single Block ends so again
    "TIMEOUT": "raise slurm.time, or shorten the Blocks",
    "DEADLINE": "raise slurm.time, or shorten the Blocks",
    "OUT_OF_MEMORY": "raise slurm.mem",
    "FAILED": "its log says why",
    "COMPLETED": "its log says why",
}
UNTOLD = ("", "None", "Priority", "Resources")  # reasons why a job waits that change by themselves


@contextmanager
def slurm_cluster(plan: Plan, folder: RunFolder, observer: Observer) -> Iterator["Jobs"]:
    """The Slurm that this machine hands in jobs to, while a run uses it. Raises UsageError."""
    section = plan.sweep.slurm
    assert section is not None
    if section.folder is None:  # nobody else is at work in this run folder: jobs of a killed driver end now
        for place in (folder.path / "slurm").glob("driver-*/job-*"):
            shutil.rmtree(place, ignore_errors=True)
    shared = own_folder(section.folder or folder.path / "slurm")
    queue = Queue(section, gpus_of(section, plan), plan.sweep.name, shared)
    with beating(shared / "lease", LEASE_S):
        try:
            yield Jobs(plan, folder, observer, queue, shared)
        finally:
            queue.cancel_all()


@dataclass(frozen=True, slots=True)
class Job:
    """One that was handed in, and the folder that it exchanges files in."""

    id: str
    place: Path


class Jobs:
    """The Source of Lanes on a Slurm cluster."""

    def __init__(self, plan: Plan, folder: RunFolder, observer: Observer, queue: Queue, shared: Path) -> None:
        assert plan.sweep.slurm is not None
        self.folder, self.observer, self.queue, self.board = folder, observer, queue, Board(folder)
        self.lanes = plan.sweep.slurm.servers
        self.time_s = plan.sweep.slurm.time * 60.0
        self._order, self._shared = order_of(plan), shared
        self._lock = threading.Lock()
        self._refused: dict[str, str] = {}  # why a node measures nothing, by name
        self._some_measures = False
        self._told: set[str] = set()

    def open(self, wanted: Callable[[], bool]) -> "SlurmLane | None":
        while wanted():
            job = self._handed_in(wanted)
            lane = self._lane_of(job, wanted) if job is not None else None
            if lane is not None:
                return lane
        return None

    def give_back(self, job: Job, *, busy: bool) -> None:
        """End a job: at once, or as soon as it sees that nobody wants more of it."""
        if busy:
            self.queue.cancel(job.id)
        self.queue.forget(job.id)
        shutil.rmtree(job.place, ignore_errors=True)  # the job may write there at this moment

    def why_ended(self, job: Job, state: State) -> MeasurementInvalid:
        """What to tell of a job that ended by its own fault."""
        log = self.queue.log(job.id)
        said = last_line(log.read_text(errors="replace")) if log.exists() else "there is none"
        return MeasurementInvalid(
            Reason.CLUSTER_LOST,
            f"job {job.id} ended before it measured a Block ({state.name}): {OWN_FAULTS[state.name]};"
            f" the last line of its log {log}: {said}",
        )

    def _handed_in(self, wanted: Callable[[], bool]) -> Job | None:
        """One more job, as soon as Slurm takes it."""
        while wanted():
            place = Path(tempfile.mkdtemp(prefix="job-", dir=self._shared))
            put(place / ORDER, self._order)
            lease = self._shared / "lease"
            try:
                id = self.queue.submit(serve, place, lease, LEASE_S, without=[*self._refused])
                return Job(id, place)
            except Refused as refused:
                shutil.rmtree(place)
                self._wait_or_give_up(str(refused), wanted)
        return None

    def _wait_or_give_up(self, why: str, wanted: Callable[[], bool]) -> None:
        """A limit on jobs leaves those that there are; without any there is nothing to wait for."""
        if self.queue.is_empty and not self._some_measures:
            raise UsageError("\n".join((f"Slurm takes no job of this sweep: {why}", *self._refused.values())))
        if self.queue.is_empty:
            raise MeasurementInvalid(
                Reason.CLUSTER_LOST,
                f"Slurm takes no more jobs ({why}); what was recorded is kept: the same command goes on",
            )
        self._tell(f"Slurm takes no more jobs now ({why}): going on with those that there are")
        retry_at = time.monotonic() + RETRY_S
        while wanted() and time.monotonic() < retry_at:
            time.sleep(POLL_S)

    def _lane_of(self, job: Job, wanted: Callable[[], bool]) -> "SlurmLane | None":
        """The Lane of a job as soon as it runs; None if its node is no good, or it is not wanted any more."""
        while (seat := take(job.place / SEAT)) is None:
            state = self.queue.state(job.id)
            if not wanted() or not (state.waits or state.works):
                self.give_back(job, busy=True)
                if state.name in OWN_FAULTS:
                    raise self.why_ended(job, state)
                return None
            if state.waits and state.reason not in UNTOLD:
                self._tell(f"jobs wait in the queue: {state.reason}")
            time.sleep(POLL_S)
        self.queue.works(job.id)
        if isinstance(seat.host, Environment):
            self._some_measures = True
            return SlurmLane(self, job, seat, seat.host)
        self.give_back(job, busy=False)
        self._refuse(seat.node, f"{seat.node}: {seat.host}")
        return None

    def _refuse(self, node: str, why: str) -> None:
        with self._lock:
            if node not in self._refused:
                self._refused[node] = why
                self.observer.note(f"not measured on {why}")
            if len(self._refused) >= MOST_REFUSED and not self._some_measures:
                every = "\n".join(self._refused.values())
                raise UsageError(f"no node that Slurm gave can measure this sweep:\n{every}")

    def _tell(self, what: str) -> None:
        """Once, however many jobs it is true of."""
        with self._lock:
            if what not in self._told:
                self._told.add(what)
                self.observer.note(what)


class SlurmLane:
    """One job on one node."""

    def __init__(self, jobs: Jobs, job: Job, seat: Seat, host: Environment) -> None:
        self.name, self._gpus = seat.node, seat.gpus
        self._jobs, self._job = jobs, job
        self._seat = jobs.board.comes(seat.node, seat.gpus, asdict(host))
        self._ends_at = time.monotonic() + jobs.time_s - seat.age_s - SPARE_S
        self._longest_s = 0.0  # of the Blocks that it measured
        self._is_busy = self._is_closed = False
        self._why = ""  # it was lost

    def measure(
        self, number: int, points: Sequence[Point], phase: Phase, baseline: Point, *, alone: bool
    ) -> Block:
        jobs, begun = self._jobs, time.monotonic()
        if self._longest_s and begun + self._longest_s > self._ends_at:
            self._why = f"job {self._job.id}: its time is nearly used up"
            raise LaneOver(self._why)
        jobs.board.begins(self._seat, number, phase, [*points] if alone else [baseline, *points])
        for point in points or (baseline,):
            jobs.observer.arm(phase, point)
        self._is_busy = True
        asked = {"number": number, "points": points, "phase": phase, "baseline": baseline, "alone": alone}
        delivery = self._answer(asked)
        self._is_busy = False
        if isinstance(delivery, UsageError):
            raise delivery
        self._longest_s = max(self._longest_s, time.monotonic() - begun)
        jobs.board.ends(self._seat)
        return replace(unpacked(delivery, jobs.folder), node=self.name, gpus=self._gpus)

    def close(self) -> None:
        self._is_closed = True
        self._jobs.give_back(self._job, busy=self._is_busy)
        self._jobs.board.goes(self._seat, self._why)

    def _answer(self, asked: object) -> Delivery | UsageError:
        """What the job delivers."""
        try:
            put(self._job.place / ASKED, asked)
        except FileNotFoundError:
            raise self._lost("given back") from None
        while True:
            state = State("given back") if self._is_closed else self._jobs.queue.state(self._job.id)
            delivered: Delivery | UsageError | None = take(self._job.place / FOUND)
            if delivered is not None:
                return delivered
            if not state.works:
                raise self._ended(state)
            time.sleep(POLL_S)

    def _ended(self, state: State) -> Exception:
        if state.name in OWN_FAULTS and not self._longest_s:
            return self._jobs.why_ended(self._job, state)
        return self._lost(state.name)

    def _lost(self, why: str) -> LaneLost:
        self._why = f"job {self._job.id}: {why}"
        return LaneLost(self._why)


def own_folder(base: Path) -> Path:
    """A new folder below `base` that nobody else may read: jobs are told secrets of `env` there."""
    with explained(base, "slurm.folder"):
        base.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="driver-", dir=base)).resolve()


def gpus_of(section: Slurm, plan: Plan) -> int:
    """GPUs of a job: what the file says, else one for each rank of an engine that computes on GPUs."""
    if section.gpus is not None:
        return section.gpus
    if section.gres is not None or plan.engine.device(BASELINE) != "cuda":
        return 0
    return plan.engine.ranks(BASELINE, plan.served)
