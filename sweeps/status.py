"""Where a run stands, read from its folder by another process: nothing is locked, written or asked."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analysis.duet import is_duet
from analysis.noise import block_noise, trial_effect
from analysis.report_input import ReportInput
from analysis.verdict import next_look
from results.records import BASELINE, Block, Effect, Measurement, Phase, TrialState
from results.store import RunFolder
from sweeps.cluster.board import Seat, ended
from sweeps.cluster.seats import Spent, at_once, gpus_per_server, seats_of, spent
from sweeps.duet import conclusions
from sweeps.estimate import Left, time_left, usual_block_s
from sweeps.now import STAGE_FILE, Stage
from sweeps.outcome import SIDES_FILE, read_run
from sweeps.session import NOW_FILE, Standing, State, sessions_of, spent_s, standing
from sweeps.study import best_of
from sweeps.sweep import Sweep
from sweeps.which_run import own_sweep

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Running:
    """What the run does at this moment. `arm` None = all arms take turns; `cell` None = it starts."""

    block: int
    phase: str
    arms: tuple[str, ...]  # in their order
    arm: str | None
    cell: str | None
    since_s: float
    block_since_s: float
    usual_block_s: float | None  # what a Block of this phase took lately


@dataclass(frozen=True, slots=True)
class Progress:
    """The stage and how far it is: Trials, or usable Blocks of the confirmation."""

    stage: str
    done: int
    total: int
    to_next_look: int | None = None  # confirmation Blocks


@dataclass(frozen=True, slots=True)
class Best:
    """The best of the search: optimistic, as the best of many is. Or a finalist, from the confirmation."""

    label: str
    effect: Effect | None  # its interval, where the noise of a Block is known
    log_speedup: float
    confirmed: str = ""  # the verdict so far; "" = an estimate of the search


@dataclass(frozen=True, slots=True)
class Status:
    name: str
    standing: Standing
    read_at: float
    progress: Progress | None
    running: Running | None
    best: Best | None
    trials: int
    failures: Mapping[str, int]  # reason -> Trials
    blocks: int
    invalid: Mapping[str, int]  # reason -> Blocks thrown away
    last_block_age_s: float | None
    elapsed_s: float
    hours: float | None  # of the budget
    left: Left | None
    gpus: int | None  # of the server; 0 = it uses none, None = not known yet
    answer: str  # one sentence
    seats: tuple[Seat, ...] = ()  # of a cluster: every Lane that it had
    spent: Spent | None = None  # likewise; None = on this machine
    lanes: int = 1  # Blocks at once
    usual_s: Mapping[str, float | None] = field(default_factory=dict)  # a Block, by phase
    duets: Sequence[str] = ()  # whether two servers are measured at once, and why, of each machine

    @property
    def machine_hours(self) -> float:
        """Of one machine, or of one for each Lane."""
        if self.spent is not None:
            return self.spent.held / max(1, self.gpus or 1)
        return self.elapsed_s / SECONDS_PER_HOUR

    @property
    def gpu_hours(self) -> float | None:
        return None if self.gpus is None else self.gpus * self.machine_hours


def status_of(folder: RunFolder) -> Status:
    """The status of a run, whatever became of it. Raises UsageError if it is no run folder."""
    found = standing(folder)  # before the records: what is said to have ended has all of them
    report, _ = read_run(folder)
    sweep, now_at = own_sweep(folder), time.time()
    progress = _progress(folder, report, sweep)
    going_on = found.state is not State.FINISHED
    failed = [t for t in report.trials if t.failure is not None]
    seats = _seats(folder, found)
    gpus = gpus_per_server(seats, report.blocks) if seats else gpus_of(report.blocks)
    return Status(
        name=report.name,
        standing=found,
        read_at=now_at,
        progress=progress,
        running=_running(folder, report.blocks, sweep, now_at) if found.state is State.RUNNING else None,
        best=_best(report),
        trials=sum(t.point != BASELINE for t in report.trials),
        failures=_counted([t.failure.reason for t in failed if t.failure]),
        blocks=len(report.blocks),
        invalid=_counted([b.invalid.reason for b in report.blocks if b.invalid]),
        last_block_age_s=now_at - report.blocks[-1].ended_at if report.blocks else None,
        elapsed_s=elapsed_s(folder, found, now_at),
        hours=sweep.budget.hours,
        left=remaining(folder, report.blocks, sweep) if going_on else None,
        gpus=gpus,
        answer=report.headline,
        seats=tuple(seats),
        spent=spent(seats, report.blocks, gpus or 0, _seen_at(found, now_at)) if seats else None,
        lanes=at_once(seats),
        usual_s={str(p): usual_block_s(report.blocks, p, sweep.confirm.finalists) for p in Phase},
        duets=conclusions(folder),
    )


def _seats(folder: RunFolder, found: Standing) -> list[Seat]:
    """As the driver wrote them; a driver that is gone measures nothing, whatever it wrote last."""
    if found.state in (State.RUNNING, State.ELSEWHERE):
        return seats_of(folder)
    return [ended(seat, found.since_at or 0.0) for seat in seats_of(folder)]


def _seen_at(found: Standing, now_at: float) -> float:
    """Until when seats that were not given back were held: now, or when the driver was last seen."""
    return now_at if found.state is State.RUNNING or found.since_at is None else found.since_at


def time_left_in(folder: RunFolder) -> Left | None:
    """What is left of a run that is going on; None before it has measured anything."""
    sweep = own_sweep(folder)
    return remaining(folder, folder.blocks(), sweep)


def remaining(folder: RunFolder, blocks: Sequence[Block], sweep: Sweep) -> Left | None:
    """What is left of a run, by what its Blocks took; None before the first."""
    stage = folder.read_json(STAGE_FILE)
    if not stage:
        return None
    searching = stage["stage"] != Stage.CONFIRM
    trials = stage["total"] - _trials_done(folder, stage) if searching else 0
    if stage["stage"] == Stage.BASELINE:
        trials += sweep.budget.trials
    compared = folder.read_json(SIDES_FILE)
    alone = len(compared.get("sides", ())) == 1
    found = time_left(
        blocks,
        trials_left=max(0, trials),
        looks=sweep.confirm.looks[:1] if alone else sweep.confirm.looks,
        finalists=1 if compared else sweep.confirm.finalists,
        searching=searching,
        lanes=at_once(seats_of(folder)),
    )
    if found is None or sweep.budget.hours is None:
        return found
    return found.within(sweep.budget.hours * SECONDS_PER_HOUR - spent_s(sessions_of(folder), time.time()))


def elapsed_s(folder: RunFolder, found: Standing, now_at: float) -> float:
    """Wall time of all starts; a start without a last word counts until it was last seen."""
    gone = found.state in (State.KILLED, State.ELSEWHERE) and found.since_at is not None
    return spent_s(sessions_of(folder), found.since_at if gone and found.since_at is not None else now_at)


def gpus_of(blocks: Sequence[Block]) -> int | None:
    """How many GPUs the servers were on, by the telemetry; None before anything was measured.

    Of a duet those of both servers: they are busy at the same time.
    """
    of_blocks = [(b, [max(map(_gpus_in, a.measurements)) for a in b.arms if a.measurements]) for b in blocks]
    return max((sum(n) if is_duet(b) else max(n) for b, n in of_blocks if n), default=None)


def _gpus_in(measurement: Measurement) -> int:
    return len(measurement.telemetry.gpus)


def _progress(folder: RunFolder, report: ReportInput, sweep: Sweep) -> Progress | None:
    stage = folder.read_json(STAGE_FILE)
    if not stage:
        return None
    if stage["stage"] != Stage.CONFIRM:
        return Progress(stage["stage"], _trials_done(folder, stage), stage["total"])
    done = sum(b.phase is Phase.CONFIRM and b.invalid is None for b in report.blocks)
    look = next_look(done, sweep.confirm.looks)
    return Progress(stage["stage"], done, stage["total"], None if look is None else look - done)


def _trials_done(folder: RunFolder, stage: Mapping[str, int]) -> int:
    return stage["done"] + len(folder.trials()) - stage["trials"]


def _running(folder: RunFolder, blocks: Sequence[Block], sweep: Sweep, now_at: float) -> Running | None:
    now = folder.read_json(NOW_FILE)
    if not now:
        return None
    phase = Phase(now["phase"])
    return Running(
        block=now["block"],
        phase=phase,
        arms=tuple(now["arms"]),
        arm=now["arm"],
        cell=now["cell"],
        since_s=now_at - now["since_at"],
        block_since_s=now_at - now["block_since_at"],
        usual_block_s=usual_block_s(blocks, phase, sweep.confirm.finalists),
    )


def _best(report: ReportInput) -> Best | None:
    judged = [v for v in report.verdicts if v.effect is not None]
    if judged:
        first = max(judged, key=lambda v: (v is report.winner, v.effect.log_ratio if v.effect else 0.0))
        assert first.effect is not None
        return Best(first.point.label, first.effect, first.effect.log_ratio, first.kind.value)
    trial = best_of([t for t in report.trials if t.state is TrialState.MEASURED and not t.point.is_baseline])
    if trial is None or trial.log_speedup is None:
        return None
    effect = trial_effect(trial, block_noise(report.blocks, report.objective, report.weights))
    return Best(trial.label, effect, trial.log_speedup)


def _counted(reasons: Sequence[str]) -> dict[str, int]:
    return {str(reason): times for reason, times in Counter(reasons).most_common()}
