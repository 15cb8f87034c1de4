"""Which Point to measure next: starting points, then the sampler, then the neighbours of the best.

Optuna's journal is search state only. It is made again from the Trials whenever a run is opened, so
a damaged or missing journal, and trials that were running when the tool was killed, cost nothing.
"""

import logging
import math
import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from results.reasons import MACHINE_FAULTS, Reason
from results.records import BASELINE, Point, Trial, TrialState
from sweeps.memory import does_not_fit
from sweeps.space import Space, iter_start_points

if TYPE_CHECKING:
    import optuna

START_SHARE = 2 / 3  # of the budget, at most, for starting points
MAX_REPEATS = 20  # proposals of known Points in a row before another one is drawn instead

START, SAMPLER, NEIGHBOUR = "start", "sampler", "neighbour"


class Search:
    """Ask for a Point, measure it, tell the Trial. Never asks for the same Point twice."""

    def __init__(
        self, space: Space, *, trials: int, seed: int, journal: Path, past: Sequence[Trial] = ()
    ) -> None:
        self._space = space
        self._budget = trials
        self._study = _new_study(journal, seed)
        self._random = random.Random(seed)
        # Good guesses first, but some of the budget is for what nobody guessed.
        self._starts = list(islice(iter_start_points(space), math.ceil(START_SHARE * trials)))
        self._trials: list[Trial] = []
        self._out_of_memory: list[Trial] = []
        self._told: dict[str, Trial] = {}  # by the keys of their Points
        self._asked: tuple[str, optuna.Trial] | None = None
        for trial in past:
            self.tell(trial)

    @property
    def remaining(self) -> int:
        """Points that may still be measured."""
        return max(0, self._budget - len(self._trials))

    @property
    def best(self) -> Trial | None:
        """The best Trial that keeps every limit."""
        return best_of(self._trials)

    def ask(self) -> tuple[Point, str] | None:
        """The next Point and who proposed it; None when the budget or the Space is used up."""
        if self.remaining == 0 or not self._unknown():
            return None
        start = next((p for p in self._starts if p.key not in self._told and self._fits(p)), None)
        if start is not None:
            return self._take(start), START
        neighbours = self._open_neighbours()
        if neighbours and self.remaining <= len(neighbours):
            return self._take(neighbours[0]), NEIGHBOUR
        return self._sampled(), SAMPLER

    def tell(self, trial: Trial) -> None:
        """Record the outcome of the Point last asked for, or of an earlier run's Trial."""
        if trial.point == BASELINE:  # known without a Block
            self._told[BASELINE.key] = trial
            return
        self._trials.append(trial)
        if trial.failure is not None and trial.failure.reason is Reason.START_OOM:
            self._out_of_memory.append(trial)
        # A Point that the server made of another one is known as well, and need not be launched.
        self._told |= {trial.point.key: trial, trial.launched.key: trial}
        asked, self._asked = self._asked, None
        if trial.launched.key not in self._space.points:
            return  # measured under a Space that has changed since: known, but not the sampler's
        if asked is None or asked[0] != trial.launched.key:
            self._take(trial.launched)
            asked, self._asked = self._asked, None
        if asked is not None:
            _tell(self._study, asked[1], trial)

    def _open_neighbours(self) -> list[Point]:
        best = self.best
        if best is None or best.point.key not in self._space.points:
            return []
        return [p for p in self._space.neighbours(best.point) if p.key not in self._told and self._fits(p)]

    def _unknown(self) -> list[Point]:
        """Points that may still be asked for."""
        return [p for key, p in self._space.points.items() if key not in self._told and self._fits(p)]

    def _fits(self, point: Point) -> bool:
        """Whether nothing that ran out of memory was smaller than this Point."""
        engine, args = self._space.engine, self._space.served.args
        return not any(does_not_fit(point, failed, engine, args) for failed in self._out_of_memory)

    def _take(self, point: Point) -> Point:
        self._study.enqueue_trial(self._space.parameters(point))
        trial = self._study.ask()
        self._space.suggest(trial)
        trial.set_user_attr("point", point.label)
        self._asked = (point.key, trial)
        return point

    def _sampled(self) -> Point:
        for _ in range(MAX_REPEATS):
            trial = self._study.ask()
            point = self._space.suggest(trial)
            if point is None:  # against the engine's rules: never launched, costs nothing
                trial.set_constraint("legal", 1.0)
                self._study.tell(trial, state=_pruned())
            elif (known := self._told.get(point.key)) is not None:
                _tell(self._study, trial, known)
            elif not self._fits(point) or self._looks_doomed(point):  # while there is something better to try
                trial.set_constraint("failed", 1.0)
                self._study.tell(trial, state=_pruned())
            else:
                trial.set_user_attr("point", point.label)
                self._asked = (point.key, trial)
                return point
        unknown = self._unknown()
        hopeful = [p for p in unknown if not self._looks_doomed(p)]
        return self._take(self._random.choice(hopeful or unknown))

    def _looks_doomed(self, point: Point) -> bool:
        """Whether everything that was tried closest to a Point failed by its own fault."""
        tried = [(self._space.distance(point, t.launched), t) for t in self._trials]
        nearest = min((steps for steps, _ in tried), default=math.inf)
        if nearest == math.inf:
            return False
        return all(_is_own_fault(t) for steps, t in tried if steps == nearest)


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The measured Trial with the largest speed-up among those that keep every limit and are not lossy."""
    return max(_ranked(trials), key=_rank, default=None)


def finalists(trials: Sequence[Trial], count: int, margin: float) -> list[Point]:
    """The Points to confirm, the best first: those within `margin` (log ratio) of the baseline or above it.

    Behind the best over all Cells come the best of single Cells, since the answer may differ between
    them: those that gain most there over the best over all, and more than `margin`.
    If no Point is hopeful, the single best, stopped early or not, so that "nothing beats the baseline" is
    stated with an interval; behind it those that gain on the baseline in a single Cell.
    """
    ranked = sorted(_ranked(trials), key=_rank, reverse=True)
    hopeful = [t for t in ranked if _log_speedup(t) > -margin]
    hopeless = sorted((t for t in trials if t.state is TrialState.HOPELESS), key=_log_speedup, reverse=True)
    best = (hopeful or ranked or hopeless)[:1]
    ordered = best + _specialists(hopeful[:1], ranked, margin) + hopeful[1:]
    return [*{t.point.key: t.point for t in ordered}.values()][:count]


def _specialists(best: Sequence[Trial], trials: Sequence[Trial], margin: float) -> list[Trial]:
    """The best of each Cell, those first that gain most there over `best`; without one, over the baseline."""
    found = []
    for cell in dict.fromkeys(cell for t in trials for cell in t.by_cell):
        trial = max(trials, key=lambda t: t.by_cell.get(cell, -math.inf))
        theirs = best[0].by_cell.get(cell, -math.inf) if best else 0.0
        found.append((trial.by_cell[cell] - theirs, trial))
    return [t for gain, t in sorted(found, key=lambda f: -f[0]) if gain > margin]


def _ranked(trials: Sequence[Trial]) -> list[Trial]:
    return [
        t
        for t in trials
        if t.state is TrialState.MEASURED
        and t.point != BASELINE
        and not t.lossy
        and t.log_speedup is not None
        and all(v <= 0 for v in t.limits.values())
    ]


def _is_own_fault(trial: Trial) -> bool:
    return (
        trial.state is TrialState.FAILED
        and trial.failure is not None
        and trial.failure.reason not in MACHINE_FAULTS
    )


def _rank(trial: Trial) -> tuple[int, float]:
    """One that admits the load of more Cells comes first: speed-ups over other Cells do not compare."""
    return -len(trial.limited), _log_speedup(trial)


def _log_speedup(trial: Trial) -> float:
    return trial.log_speedup if trial.log_speedup is not None else float("-inf")


def _new_study(journal: Path, seed: int) -> "optuna.Study":
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(logging.ERROR)
    for stale in journal.parent.glob(journal.name + "*"):
        stale.unlink()
    return optuna.create_study(
        study_name="tuner",
        direction="maximize",
        storage=JournalStorage(JournalFileBackend(str(journal))),
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.NopPruner(),
    )


def _tell(study: "optuna.Study", asked: "optuna.Trial", trial: Trial) -> None:
    import optuna

    for name, value in trial.limits.items():
        asked.set_constraint(name, value)
    asked.set_constraint("admitted", len(trial.limited) or -1.0)
    if trial.log_speedup is not None and trial.state is not TrialState.FAILED:
        asked.set_constraint("failed", -1.0)
        study.tell(asked, trial.log_speedup)
    elif trial.failure is not None and trial.failure.reason in MACHINE_FAULTS:
        study.tell(asked, state=optuna.trial.TrialState.FAIL)
    else:
        asked.set_constraint("failed", 1.0)
        study.tell(asked, state=_pruned())


def _pruned() -> "optuna.trial.TrialState":
    import optuna

    return optuna.trial.TrialState.PRUNED
