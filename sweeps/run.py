"""A whole sweep: open the run folder, search, confirm. Started again, it goes on where it ended."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import msgspec

from analysis import words
from analysis.limits import broken_by_baseline
from results.reasons import MACHINE_FAULTS
from results.records import BASELINE, Block, Phase, Point, Trial
from results.sharing import Sharing
from results.store import RunFolder
from sweeps.anchors import Measured, SearchBlocks, unrecorded
from sweeps.block import LocalLane
from sweeps.blocks import BlockRunner, Blocks, Lane, LaneLost
from sweeps.confirm import confirm, confirmation, finalists_of, rules_of
from sweeps.duet import with_sets_checked
from sweeps.estimate import usual_block_s
from sweeps.lanes import Lanes, ManyLanes, OneLane
from sweeps.now import Stage, write_stage
from sweeps.observer import Observer
from sweeps.opened import opened
from sweeps.place import here
from sweeps.prepare import Plan
from sweeps.session import ENDED_FILE, sessions_of, spent_s
from sweeps.space import Space, baseline_space
from sweeps.strongest import FINALIST, settings_of, strongest
from sweeps.study import Search
from sweeps.sweep import Sweep
from sweeps.tasks import Task, Tasks
from sweeps.trial import BASELINE_TRIAL, trial_of

GoOn = Callable[[], bool]
Afterwards = Callable[[Observer, GoOn], None]

KINDS = (str(Stage.BASELINE), str(Stage.SEARCH), FINALIST)  # what claims of Points begin with
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
    with opened(folder, plan, observer, together=True) as sharing:
        _run(plan, folder, sharing, observer, stopped)
        if afterwards is not None and not stopped():
            afterwards(observer, stopped)


def _run(plan: Plan, folder: RunFolder, sharing: Sharing, observer: Observer, stopped: GoOn) -> None:
    blocks = folder.blocks()
    clock = Clock(plan.sweep, blocks, spent_s(sessions_of(folder), time.time()))

    def may_go_on() -> bool:
        return not stopped() and clock.may_confirm()

    if not folder.living() - {folder.driver}:
        folder.write_json("notes.json", {"notes": plan.notes})
    for note in plan.notes:
        observer.note(note)

    def may_search() -> bool:
        return not stopped() and clock.may_search()

    with lanes_of(plan, folder, blocks, sharing, observer, again=may_go_on) as lanes:
        trials, theirs = folder.trials(), [*blocks]
        run = Run(plan.space, plan.sweep, folder, lanes, sharing, blocks, trials, observer, theirs)
        with sharing.exclusive():
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
    checked: dict[Lane, Lane] = {}  # a Lane that is used again, in a later stage, knows its sets

    def blocks_of(lane: Lane) -> BlockRunner:
        if lane not in checked:
            checked[lane] = with_sets_checked(lane, plan.sweep, folder, sharing, observer.note, again)
        return Blocks(checked[lane], folder, plan.sweep.patience, blocks, sharing, again=again)

    if plan.sweep.launcher != "ray":
        local = LocalLane(plan.setup(folder), observer.arm)
        yield OneLane(blocks_of(here(local) if folder.is_shared else local))
        return
    from sweeps.cluster.ray_lanes import ray_cluster

    with ray_cluster(plan, folder, observer) as cluster:
        count = cluster.lanes
        observer.note(f"{words.count(count, 'Block')} at once, at most, on the Ray cluster")
        lanes = ManyLanes(cluster, count, blocks_of, observer.note, again)
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
    theirs: list[Block] = field(default_factory=list)  # of earlier starts, and of other drivers
    waited: set[str] = field(default_factory=set)  # the stages in which it had to wait for another driver

    def take_up(self) -> list[Trial]:
        """Record what a start that is dead measured and could not record any more. Nobody else records."""
        found = []
        for measured in unrecorded(self.theirs, self.trials):
            mine = [claim for kind in KINDS if self.sharing.claim(claim := _claim(kind, measured.point))]
            if len(mine) == len(KINDS):  # else another driver is still at it
                found.append(self._record(measured))
            for claim in mine:
                self.sharing.release(claim)
        return found

    def tune_baseline(self, go_on: GoOn) -> Point:
        """The best settings of a server without speculation, among those both arms may have."""
        known = self.folder.read_json("baseline.json")
        if known:
            return Point(known["method"], known["knobs"])
        without = baseline_space(self.space)
        if without is None:
            return BASELINE
        self._measure(without, self.sweep.budget.for_baseline, go_on)
        with self.sharing.exclusive():
            self._news()
            return self._decided_baseline(go_on)

    def _decided_baseline(self, go_on: GoOn) -> Point:
        """By whoever comes first."""
        known = self.folder.read_json("baseline.json")
        if known:
            return Point(known["method"], known["knobs"])
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
        with self.sharing.exclusive():
            self._news()
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
        with self.sharing.exclusive():
            self._news()
            points, baseline = self._decided_finalists(baseline, go_on)
        if not points or not go_on():
            return
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
            one_at_a_time=self.sweep.pairing == "duet",
        )

    def _decided_finalists(self, baseline: Point, go_on: GoOn) -> tuple[list[Point], Point]:
        """Who is confirmed against which Baseline: by whoever comes first with these Trials."""
        known = self.folder.read_json("finalists.json")
        if known.get("trials") == len(self.trials):
            decided = known["points"], known["baseline"]
            return msgspec.convert(decided, tuple[list[Point], Point])
        points = finalists_of(self.folder, self.trials, self.sweep)
        if points and go_on():
            told = {"points": points, "baseline": baseline, "trials": len(self.trials)}
            self.folder.write_json("finalists.json", told)
        return points, baseline

    def _measure(self, space: Space, budget: int, go_on: GoOn, baseline: Point = BASELINE) -> None:
        """Measure every Point that the Search asks for, once."""
        kind = str(Stage.BASELINE if space.is_baseline else Stage.SEARCH)
        with self.sharing.exclusive():
            asker = self._search(space, budget, kind)
        tasks = Tasks(kind, lambda: self._asked(asker, kind), self.sharing, go_on)

        def record(found: Sequence[Measured]) -> None:
            for measured in found:
                self._report(measured, _claim(kind, measured.point), asker)

        def work(run_block: BlockRunner) -> None:
            blocks = SearchBlocks(
                run_block, self.sweep, baseline, self.blocks, go_on=go_on, note=self.observer.note
            )

            def before_waiting() -> None:
                record(blocks.close())
                self._say_once_that_it_waits(kind)

            _measure_each(tasks, blocks, record, before_waiting)

        self.lanes.each(work)
        self._note_unfit(asker.unfit)

    def _search(self, space: Space, budget: int, kind: str) -> Search:
        """By all that is known now; the stage begins."""
        self._news()
        if not self.trials:
            self._add(BASELINE_TRIAL)
        # What a disturbed machine spoiled in an earlier start is asked again.
        past = [
            t
            for t in self.trials
            if _is_of(space, t)
            if (t.failure is None or t.failure.reason not in MACHINE_FAULTS)
        ]
        self._begin(Stage(kind), len(past) - 1, min(budget, len(space.points)))
        place = self.folder.study_place
        return Search(
            space,
            trials=budget,
            seed=self.sweep.seed,
            journal=replace(place, name=f"{place.name}: {kind}") if place else self.folder.study_file,
            objective=self.sweep.objective,
            weights=self.sweep.weights.to_record(),
            past=past,
            blocks=self.blocks,
        )

    def _report(self, measured: Measured, claim: str, asker: Search | None = None) -> None:
        """Record what came of a Point, and tell everybody."""
        with self.sharing.exclusive():
            news, _ = self._news()
            if asker is not None:
                _tell(asker, news, is_in_study=True)
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
        self.theirs.extend(blocks)
        return trials, blocks

    def _asked(self, asker: Search, kind: str) -> "Task[tuple[Point, str]] | None":
        """The next Point of the search, by all that is known now, of other drivers too."""
        _tell(asker, self._news()[0], is_in_study=True)
        _tell(asker, self.take_up())
        asked = asker.ask(elsewhere=self.sharing.held_by_others(kind))
        return Task(asked, _claim(kind, asked[0])) if asked is not None else None

    def _say_once_that_it_waits(self, kind: str) -> None:
        if kind not in self.waited and self.sharing.held_by_others(kind):
            self.waited.add(kind)
            self.observer.note("waiting for what another driver measures")

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


def _measure_each(
    tasks: Tasks[tuple[Point, str]],
    blocks: SearchBlocks,
    record: Callable[[Sequence[Measured]], None],
    before_waiting: Callable[[], None],
) -> None:
    """Every Point that is asked for; recorded as soon as there is something to compare it with."""
    try:
        while True:
            with tasks.one(before_waiting) as task:
                if task is None:
                    break
                found = blocks.measure(*task.what)
            record(found)
    except LaneLost:  # what was measured there before is compared with what there is
        record(blocks.compared())
        raise
    record(blocks.close())


def _tell(asker: Search, trials: Sequence[Trial], *, is_in_study: bool = False) -> None:
    """What others recorded, as far as it is of this search."""
    for trial in trials:
        if _is_of(asker.space, trial):
            asker.tell(trial, is_in_study=is_in_study)


def _is_of(space: Space, trial: Trial) -> bool:
    return trial.point == BASELINE or trial.point.is_baseline is space.is_baseline


def _claim(kind: str, point: Point) -> str:
    return f"{kind}: {point.key}"


def _task(kind: str, point: Point | None) -> Task[Point] | None:
    return Task(point, _claim(kind, point)) if point is not None else None


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
