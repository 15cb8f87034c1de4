"""A whole sweep: open the run folder, search, confirm. Started again, it goes on where it ended."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from analysis import words
from analysis.limits import broken_by_baseline
from launchers.leftovers import reap
from results.errors import UsageError
from results.reasons import MACHINE_FAULTS
from results.records import BASELINE, Block, Phase, Point, Trial
from results.sharing import Sharing, alone
from results.store import RunFolder
from sweeps.anchors import Measured, SearchBlocks, unrecorded
from sweeps.blocks import BlockRunner, Blocks, Lane, LaneLost, blocks_here
from sweeps.confirm import confirm, confirmation, finalists_of, rules_of
from sweeps.estimate import usual_block_s
from sweeps.lanes import Lanes, ManyLanes, OneLane
from sweeps.now import Stage, write_stage
from sweeps.observer import Observer
from sweeps.prepare import Plan
from sweeps.session import ENDED_FILE, session, sessions_of, spent_s
from sweeps.space import Space, baseline_space
from sweeps.strongest import FINALIST, settings_of, strongest
from sweeps.study import Search
from sweeps.sweep import Sweep
from sweeps.tasks import Task, Tasks
from sweeps.trial import BASELINE_TRIAL, trial_of
from sweeps.which_run import own_sweep

GoOn = Callable[[], bool]
Afterwards = Callable[[Observer, GoOn], None]

CONFIRM_SHARE = 0.4  # of a budget of hours: what the search leaves to the confirmation


def run_sweep(
    plan: Plan,
    folder: RunFolder,
    observer: Observer,
    stopped: GoOn,
    afterwards: Afterwards | None = None,
) -> None:
    """Run what is left of a sweep. Everything it finds out is in the folder.

    `stopped` is asked between Blocks; `afterwards` is done when the last is over, unless it was
    stopped. Raises UsageError (the folder belongs to another sweep, no space left ...) and
    MeasurementInvalid (the Baseline cannot be measured).
    """
    with opened(folder, plan, observer):
        _run(plan, folder, observer, stopped)
        if afterwards is not None and not stopped():
            afterwards(observer, stopped)


class Claimant(Protocol):
    """What a run folder belongs to: the Plan of a sweep, or a comparison."""

    @property
    def sweep(self) -> Sweep: ...

    def environment(self) -> Mapping[str, object]: ...


@contextmanager
def opened(folder: RunFolder, claimant: Claimant, observer: Observer) -> Iterator[None]:
    """The run folder while this start is at work on it: its own, locked, nothing left behind running."""
    folder.create()
    with folder.locked():
        claim(folder, claimant)
        for leftover in reap(folder.path, end=True):
            observer.note(f"ended a server left behind by an earlier start: {leftover.what}")
        with session(folder):
            yield


def _run(plan: Plan, folder: RunFolder, observer: Observer, stopped: GoOn) -> None:
    blocks = folder.blocks()
    clock = Clock(plan.sweep, blocks, spent_s(sessions_of(folder), time.time()))

    def may_go_on() -> bool:
        return not stopped() and clock.may_confirm()

    sharing = alone(blocks)
    folder.write_json("notes.json", {"notes": plan.notes})
    for note in plan.notes:
        observer.note(note)

    def may_search() -> bool:
        return not stopped() and clock.may_search()

    with lanes_of(plan, folder, blocks, sharing, observer, again=may_go_on) as lanes:
        run = Run(plan.space, plan.sweep, folder, lanes, sharing, blocks, folder.trials(), observer)
        run.take_up()
        baseline = run.tune_baseline(may_search)
        run.search(baseline, may_search)
        run.confirm(run.strongest_baseline(baseline, may_go_on), may_go_on)
    if not stopped():
        end(folder, len(run.trials), clock)


@contextmanager
def lanes_of(
    plan: Plan, folder: RunFolder, blocks: list[Block], sharing: Sharing, observer: Observer, again: GoOn
) -> Iterator[Lanes]:
    """Where the Blocks of a plan are measured, while a run uses it. Raises UsageError."""
    if not plan.sweep.is_for_cluster:
        yield OneLane(blocks_here(plan.setup(folder), blocks, sharing, observer.arm, again=again))
        return
    from sweeps.cluster.named import cluster_named

    def blocks_of(lane: Lane) -> BlockRunner:
        return Blocks(lane, folder, plan.sweep.patience, blocks, sharing, again=again)

    with cluster_named(plan.sweep.launcher)(plan, folder, observer) as cluster:
        lanes = ManyLanes(cluster, cluster.lanes, blocks_of, observer.note, again)
        try:
            yield lanes
        finally:
            lanes.close()


@dataclass(frozen=True)
class Run:
    """The stages of a sweep. What each finds out is in the folder, and a later start goes on there."""

    space: Space
    sweep: Sweep
    folder: RunFolder
    lanes: Lanes
    sharing: Sharing
    blocks: list[Block]  # of every start; whoever runs Blocks adds to it
    trials: list[Trial]  # of every start
    observer: Observer

    def take_up(self) -> None:
        """Record what an earlier start measured and could not record any more."""
        for measured in unrecorded(self.blocks, self.trials):
            self._record(measured)

    def tune_baseline(self, go_on: GoOn) -> Point:
        """The best settings of a server without speculation, among those both arms may have."""
        known = self.folder.read_json("baseline.json")
        if known:
            return Point(known["method"], known["knobs"])
        without = baseline_space(self.space)
        if without is None:
            return BASELINE
        self._measure(without, self.sweep.budget.for_baseline, go_on)
        baseline = self._strongest(BASELINE)
        if go_on():  # else there may be more to try at the next start
            self.folder.write_json("baseline.json", {"method": baseline.method, "knobs": baseline.knobs})
            self.observer.note(f"the baseline of this sweep: {baseline.label}")
        return baseline

    def search(self, baseline: Point, go_on: GoOn) -> None:
        """Measure Points until the budget is used up or `go_on` says no."""
        self._measure(self.space, self.sweep.budget.trials, go_on, baseline)

    def strongest_baseline(self, baseline: Point, go_on: GoOn) -> Point:
        """The Baseline of the confirmation: the settings of a finalist may be better without speculation."""
        chosen = finalists_of(self.folder, self.trials, self.sweep)
        untried = iter(settings_of(chosen, self.space, self.trials))
        tasks = Tasks(FINALIST, lambda: _task(FINALIST, next(untried, None)), self.sharing, go_on)

        def work(run_block: BlockRunner) -> None:
            while True:
                with tasks.one() as task:
                    if task is None:
                        return
                    block = run_block([task.what], Phase.SEARCH, baseline)
                    self._report(Measured(block, task.what, FINALIST), task.claim)

        self.lanes.each(work)
        best = self._strongest(baseline)
        if best != baseline:
            self.observer.note(f"a better baseline, which the finalists are confirmed against: {best.label}")
        return best

    def _strongest(self, baseline: Point) -> Point:
        weights = self.sweep.weights.to_record()
        against = [b for b in self.blocks if b.compared_with.key == baseline.key and b.phase is Phase.SEARCH]
        is_out = broken_by_baseline(against, self.sweep.limits, weights)
        margin = -math.inf if is_out else math.log1p(self.sweep.confirm.same_margin)
        return strongest(baseline, self.trials, self.blocks, margin)

    def confirm(self, baseline: Point, go_on: GoOn) -> None:
        """Confirm the finalists of the search, if anything could be measured."""
        points = finalists_of(self.folder, self.trials, self.sweep)
        if not points or not go_on():
            return
        self.folder.write_json("finalists.json", {"points": points, "baseline": baseline})
        past = confirmation(self.blocks, baseline)
        self._begin(Stage.CONFIRM, len(past), self.sweep.confirm.looks[-1])
        rules, look = rules_of(self.sweep), self.observer.look
        confirm(
            self.lanes,
            points,
            past,
            rules,
            baseline=baseline,
            sharing=self.sharing,
            news=lambda: confirmation(self._news()[1], baseline),
            go_on=go_on,
            on_block=look,
        )

    def _measure(self, space: Space, budget: int, go_on: GoOn, baseline: Point = BASELINE) -> None:
        """Measure every Point that the Search asks for, once."""
        if not self.trials:
            self._add(BASELINE_TRIAL)
        # What a disturbed machine spoiled in an earlier start is asked again.
        past = [
            t
            for t in self.trials
            if t.point == BASELINE or t.point.is_baseline is space.is_baseline
            if (t.failure is None or t.failure.reason not in MACHINE_FAULTS)
        ]
        asker = Search(
            space,
            trials=budget,
            seed=self.sweep.seed,
            journal=self.folder.study_file,
            objective=self.sweep.objective,
            weights=self.sweep.weights.to_record(),
            past=past,
            blocks=self.blocks,
        )
        stage = Stage.BASELINE if space.is_baseline else Stage.SEARCH
        self._begin(stage, len(past) - 1, min(budget, len(space.points)))
        kind = str(stage)
        tasks = Tasks(kind, lambda: self._asked(asker, kind), self.sharing, go_on)

        def work(run_block: BlockRunner) -> None:
            blocks = SearchBlocks(
                run_block, self.sweep, baseline, self.blocks, go_on=go_on, note=self.observer.note
            )
            for measured in _each(tasks, blocks):
                self._report(measured, _claim(kind, measured.point), asker)

        self.lanes.each(work)
        self._note_unfit(asker.unfit)

    def _report(self, measured: Measured, claim: str, asker: Search | None = None) -> None:
        """Record what came of a Point, and tell everybody."""
        with self.sharing.exclusive():
            for trial in self._news()[0]:
                if asker is not None:
                    asker.tell(trial)
            trial = self._record(measured)
            self.sharing.release(claim)
            if asker is not None:
                asker.tell(trial)
            self.observer.trial(trial, asker.best if asker is not None else None)

    def _news(self) -> tuple[Sequence[Trial], Sequence[Block]]:
        """What other drivers have recorded; it is of this run from now on."""
        trials, blocks = self.sharing.news()
        self.trials.extend(trials)
        self.blocks.extend(blocks)
        return trials, blocks

    def _asked(self, asker: Search, kind: str) -> "Task[tuple[Point, str]] | None":
        """The next Point of the search, by all that is known now, of other drivers too."""
        for trial in self._news()[0]:
            asker.tell(trial)
        asked = asker.ask(elsewhere=self.sharing.held_by_others(kind))
        return Task(asked, _claim(kind, asked[0])) if asked is not None else None

    def _note_unfit(self, points: int) -> None:
        if not points:
            return
        note = f"{words.count(points, 'Point')} not launched: one that needs no more ran out of memory"
        self.folder.add_note(note)
        self.observer.note(note)

    def _record(self, measured: Measured) -> Trial:
        trial = trial_of(
            measured.block,
            len(self.trials),
            measured.point,
            measured.source,
            objective=self.sweep.objective,
            limits=self.sweep.limits,
            weights=self.sweep.weights.to_record(),
            anchors=measured.anchors,
        )
        self._add(trial)
        return trial

    def _add(self, trial: Trial) -> None:
        self.folder.add_trial(trial)
        self.trials.append(trial)

    def _begin(self, stage: Stage, done: int, total: int) -> None:
        write_stage(self.folder, stage, done, total)
        self.observer.begin(Phase.CONFIRM if stage is Stage.CONFIRM else Phase.SEARCH, done, total)


def _each(tasks: Tasks[tuple[Point, str]], blocks: SearchBlocks) -> Iterator[Measured]:
    """Every Point that is asked for, as soon as there is something to compare it with."""
    try:
        while True:
            with tasks.one() as task:
                if task is None:
                    break
                found = blocks.measure(*task.what)
            yield from found
    except LaneLost:  # what was measured there before is compared with what there is
        yield from blocks.compared()
        raise
    yield from blocks.close()


def _claim(kind: str, point: Point) -> str:
    return f"{kind}: {point.key}"


def _task(kind: str, point: Point | None) -> Task[Point] | None:
    return Task(point, _claim(kind, point)) if point is not None else None


def claim(folder: RunFolder, claimant: Claimant) -> None:
    """Make the folder the claimant's own.

    Raises UsageError if it holds records of another sweep, or measured under something else: figures
    of different models, prompts, engines or machines are never put together.
    """
    environment = claimant.environment()
    if folder.blocks() or any(t.point != BASELINE for t in folder.trials()):
        earlier = own_sweep(folder)
        changed = differences(folder.read_json("environment.json"), environment)
        if earlier.identity() != claimant.sweep.identity():
            changed = ["the sweep file (only name, budget and patience may)"]
        if changed:
            raise UsageError(
                f"{folder.path} holds the records of another sweep; what changed: {', '.join(changed)}."
                " Name another folder with --run, or remove this one"
            )
    else:
        folder.study_file.unlink(missing_ok=True)  # of a start that failed before it measured anything
    folder.write_text("sweep.yaml", claimant.sweep.to_yaml())
    folder.write_json("environment.json", environment)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What decides a measurement and is no longer the same, by name; unknown counts as the same."""
    decided = [
        ("sides", "the configurations compared"),
        ("served", "model files"),
        ("prompts", "prompts"),
        ("references", "the references of the prompts"),
        ("load", "arrival times"),
        ("images", "container images"),
    ]
    found = [name for key, name in decided if key in before and before[key] != now.get(key)]
    then, host = before.get("host", {}), now["host"]
    if _cards(then) and _cards(then) != _cards(host):
        found.append("GPUs or their power limits")
    return found + [
        key for key in ("engine", "host", "cpu", "gpu_driver") if then.get(key, host[key]) != host[key]
    ]


def _cards(host: Mapping[str, Any]) -> list[tuple[str, float | None]]:
    """The GPUs of a fingerprint by UUID, with their limits; those of earlier versions had no UUID."""
    return [(gpu["uuid"], gpu["power_limit_w"]) for gpu in host.get("gpus", ()) if "uuid" in gpu]


class Clock:
    """Wall time of a run against its budget, earlier starts included.

    A Block is begun only if one like the last few would end in time: so the run ends within one Block
    of the budget, and not beyond it unless that Block is slower than those.
    """

    def __init__(self, sweep: Sweep, blocks: Sequence[Block], spent_s: float) -> None:
        """`blocks` grows while the run goes on; `spent_s` until now."""
        self._sweep = sweep
        self._blocks = blocks
        self._began = time.monotonic() - spent_s
        self.refused = False  # something more would have been measured

    def left_s(self) -> float:
        """Seconds left; infinite without a budget of hours."""
        hours = self._sweep.budget.hours
        return float("inf") if hours is None else hours * 3600 - (time.monotonic() - self._began)

    def may_search(self) -> bool:
        """Whether a Block fits before the part of the budget that is kept for the confirmation."""
        kept_s = (self._sweep.budget.hours or 0.0) * 3600 * CONFIRM_SHARE
        return self._fits(self.left_s() - kept_s, Phase.SEARCH)

    def may_confirm(self) -> bool:
        """Whether a Block of the confirmation fits into what is left."""
        return self._fits(self.left_s(), Phase.CONFIRM)

    def _fits(self, left_s: float, phase: Phase) -> bool:
        fits = left_s > (usual_block_s(self._blocks, phase, self._sweep.confirm.finalists) or 0.0)
        self.refused |= not fits
        return fits


def end(folder: RunFolder, trials: int, clock: Clock) -> None:
    """Note that the run ended by itself, with so many Trials."""
    folder.write_json(ENDED_FILE, {"trials": trials, "out_of_time": clock.refused})
