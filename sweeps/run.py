"""A whole sweep: open the run folder, search, confirm. Started again, it goes on where it ended."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Protocol

from analysis.limits import broken_by_baseline
from launchers.leftovers import reap
from results.errors import UsageError
from results.reasons import MACHINE_FAULTS
from results.records import BASELINE, Block, Phase, Point
from results.store import RunFolder
from sweeps.block import BlockRunner, Blocks
from sweeps.calibrate import calibrate
from sweeps.confirm import confirm, finalists_of, rules_of
from sweeps.observer import Observer
from sweeps.prepare import Plan
from sweeps.space import Space, baseline_space
from sweeps.study import Search, best_of
from sweeps.sweep import Sweep, parse_sweep
from sweeps.trial import BASELINE_TRIAL, trial_of

GoOn = Callable[[], bool]

CONFIRM_SHARE = 0.4  # of a budget of hours: what the search leaves to the confirmation


def run_sweep(plan: Plan, folder: RunFolder, observer: Observer, stopped: GoOn) -> None:
    """Run what is left of a sweep. Everything it finds out is in the folder.

    `stopped` is asked between Blocks. Raises UsageError (the folder belongs to another sweep, no
    space left ...) and MeasurementInvalid (the Baseline cannot be measured).
    """
    with opened(folder, plan, observer):
        _run(plan, folder, observer, stopped)


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
        with _session(folder):
            yield


def _run(plan: Plan, folder: RunFolder, observer: Observer, stopped: GoOn) -> None:
    past = folder.blocks()
    clock = Clock(plan.sweep, past)
    run_block = Blocks(plan.setup(folder), past, observer.arm)
    run = Run(plan.space, plan.sweep, folder, run_block, observer)
    (folder.path / "ended.json").unlink(missing_ok=True)
    folder.write_json("notes.json", {"notes": plan.notes})
    for note in plan.notes:
        observer.note(note)

    def may_search() -> bool:
        return not stopped() and clock.may_search()

    def may_confirm() -> bool:
        return not stopped() and clock.left_s() > 0

    baseline = run.tune_baseline(may_search)
    run.search(baseline, may_search)
    run.confirm(baseline, may_confirm)
    if not stopped():
        folder.write_json("ended.json", {"trials": len(folder.trials())})  # by itself, with so many Trials


@dataclass(frozen=True)
class Run:
    """The three stages of a sweep. What each finds out is in the folder, and a later start goes on there."""

    space: Space
    sweep: Sweep
    folder: RunFolder
    run_block: BlockRunner
    observer: Observer

    def tune_baseline(self, go_on: GoOn) -> Point:
        """The best settings of a server without speculation, among those both arms may have."""
        known = self.folder.read_json("baseline.json")
        if known:
            return Point(known["method"], known["knobs"])
        without = baseline_space(self.space)
        if without is None:
            return BASELINE
        self._measure(without, self.sweep.budget.for_baseline, go_on)
        best = best_of([t for t in self.folder.trials() if t.point.is_baseline])
        is_out = broken_by_baseline(self.folder.blocks(), self.sweep.limits, self.sweep.weights.to_record())
        margin = -math.inf if is_out else math.log1p(self.sweep.confirm.same_margin)
        baseline = best.point if best is not None and (best.log_speedup or 0.0) > margin else BASELINE
        if go_on():  # else there may be more to try at the next start
            self.folder.write_json("baseline.json", {"method": baseline.method, "knobs": baseline.knobs})
            self.observer.note(f"the baseline of this sweep: {baseline.label}")
        return baseline

    def search(self, baseline: Point, go_on: GoOn) -> None:
        """Measure Points until the budget is used up or `go_on` says no."""
        self._measure(self.space, self.sweep.budget.trials, go_on, baseline)

    def confirm(self, baseline: Point, go_on: GoOn) -> None:
        """Confirm the finalists of the search, if anything could be measured."""
        points = finalists_of(self.folder, self.folder.trials(), self.sweep)
        if not points or not go_on():
            return
        self.folder.write_json("finalists.json", {"points": points})
        past = [b for b in self.folder.blocks() if b.phase is Phase.CONFIRM]
        self.observer.begin(Phase.CONFIRM, len(past), self.sweep.confirm.looks[-1])
        run_block = partial(self.run_block, baseline=baseline)
        rules, look = rules_of(self.sweep), self.observer.look
        confirm(run_block, points, past, rules, go_on=go_on, on_block=look)

    def _measure(self, space: Space, budget: int, go_on: GoOn, baseline: Point = BASELINE) -> None:
        """One Block for each Point that the Search asks for."""
        trials = self.folder.trials()
        if not trials:
            self.folder.add_trial(BASELINE_TRIAL)
            trials = [BASELINE_TRIAL]
        # What a disturbed machine spoiled in an earlier start is asked again.
        past = [
            t
            for t in trials
            if t.point == BASELINE or t.point.is_baseline is space.is_baseline
            if (t.failure is None or t.failure.reason not in MACHINE_FAULTS)
        ]
        asker = Search(space, trials=budget, seed=self.sweep.seed, journal=self.folder.study_file, past=past)
        self.observer.begin(Phase.SEARCH, len(past) - 1, min(budget, len(space.points)))
        numbers = itertools.count(len(trials))
        while go_on() and (asked := asker.ask()) is not None:
            point, source = asked
            block = self.run_block([point], Phase.SEARCH, baseline)
            trial = trial_of(
                block,
                next(numbers),
                point,
                source,
                objective=self.sweep.objective,
                limits=self.sweep.limits,
                weights=self.sweep.weights.to_record(),
            )
            self.folder.add_trial(trial)
            asker.tell(trial)
            self.observer.trial(trial, asker.best)


def claim(folder: RunFolder, claimant: Claimant) -> None:
    """Make the folder the claimant's own.

    Raises UsageError if it holds records of another sweep, or measured under something else: figures
    of different models, prompts, engines or machines are never put together.
    """
    environment = claimant.environment()
    if folder.blocks() or any(t.point != BASELINE for t in folder.trials()):
        earlier = parse_sweep(folder.sweep_file.read_text(), where=str(folder.sweep_file))
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
    """Wall time of a run against its budget, earlier starts included."""

    def __init__(self, sweep: Sweep, past: Sequence[Block]) -> None:
        self._hours = sweep.budget.hours
        self._past = past
        self._began = time.monotonic()

    def left_s(self) -> float:
        """Seconds left; infinite without a budget of hours."""
        if self._hours is None:
            return float("inf")
        spent = sum(b.ended_at - b.started_at for b in self._past)
        return self._hours * 3600 - spent - (time.monotonic() - self._began)

    def may_search(self) -> bool:
        """Whether the part of the budget that is kept for the confirmation is still untouched."""
        return self._hours is None or self.left_s() > self._hours * 3600 * CONFIRM_SHARE


@contextmanager
def _session(folder: RunFolder) -> Iterator[None]:
    """Calibrate the client and note when this start of the run began and ended."""
    earlier = folder.read_json("sessions.json").get("sessions", [])
    began_at, calibration = time.time(), calibrate()

    def note(ended_at: float | None) -> None:
        session = {"began_at": began_at, "ended_at": ended_at, "calibration": asdict(calibration)}
        folder.write_json("sessions.json", {"sessions": [*earlier, session]})

    note(None)
    try:
        yield
    finally:
        note(time.time())
