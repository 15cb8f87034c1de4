"""Which Point to measure next: starting points, then the best proposal, then the neighbours of the best.

Every few Points Optuna's sampler is asked instead, so that an error of the cost model traps nobody.

Optuna's journal is search state only. It is made again from the Trials whenever a run is opened, so
a damaged or missing journal, and trials that were running when the tool was killed, cost nothing.
"""

import math
import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.findings import eligible
from results.reasons import MACHINE_FAULTS, Reason
from results.records import BASELINE, EQUAL_WEIGHTS, Block, Point, Trial, TrialState, Weights
from results.sharing import StudyPlace
from sweeps.memory import does_not_fit
from sweeps.proposal import Proposal, propose
from sweeps.space import Space, iter_start_points
from sweeps.studies import DRIVER, NUMBER, begin, fail_what_is_left_open, told_before

if TYPE_CHECKING:
    import optuna

START_SHARE = 0.4  # of the budget, at most, for starting points
MORE_STARTS = 2  # than methods, at most
SAMPLER_EVERY = 5  # Points, of which one is the sampler's
MAX_REPEATS = 20  # proposals of known Points in a row before another one is drawn instead

START, SAMPLER, NEIGHBOUR = "start", "sampler", "neighbour"


class Search:
    """Ask for a Point, measure it, tell the Trial. Never asks for the same Point twice.

    Several may be asked for before the first of them is told.
    """

    def __init__(
        self,
        space: Space,
        *,
        trials: int,
        seed: int,
        journal: Path | StudyPlace,
        objective: str = "tokens_per_s",
        weights: Weights = EQUAL_WEIGHTS,
        past: Sequence[Trial] = (),
        blocks: Sequence[Block] = (),
    ) -> None:
        """`past`: Trials of the run so far. `blocks`: all of the run, with those still to come.

        Whoever measures goes on adding to that list: what was counted in it feeds the cost model.
        """
        self._space = space
        self._budget = trials
        self._objective, self._weights = objective, weights
        self._blocks = blocks
        self._study = begin(journal, space, seed)
        self._shared = journal if isinstance(journal, StudyPlace) else None
        if self._shared is not None:
            fail_what_is_left_open(self._study, self._shared)
        self._random = random.Random(seed)
        # Good guesses first, but most of the budget is for what nobody guessed.
        most = min(math.ceil(START_SHARE * trials), len(space.methods) + MORE_STARTS)
        self._starts = list(islice(iter_start_points(space), most))
        self._trials: list[Trial] = []
        self._out_of_memory: list[Trial] = []
        self._told: dict[str, Trial] = {}  # by the keys of their Points
        self._asked: dict[str, optuna.Trial] = {}  # by Point: not told yet
        told = told_before(self._study)
        for trial in past:
            self.tell(trial, is_in_study=trial.number in told)

    @property
    def space(self) -> Space:
        return self._space

    @property
    def remaining(self) -> int:
        """Points that may still be measured."""
        return max(0, self._budget - len(self._trials))

    @property
    def best(self) -> Trial | None:
        """The best Trial that keeps every limit."""
        return best_of(self._trials)

    def ask(self, elsewhere: int = 0) -> tuple[Point, str] | None:
        """The next Point and who proposed it; None when the budget or the Space is used up.

        `elsewhere`: Points that other drivers have under way.
        """
        if self._shared is not None:
            fail_what_is_left_open(self._study, self._shared)
        remaining = self.remaining - len(self._asked) - elsewhere
        if remaining <= 0 or not self._unknown():
            return None
        start = next((p for p in self._starts if not self._is_known(p) and self._fits(p)), None)
        if start is not None:
            return self._take(start), START
        neighbours = self._open_neighbours()
        if neighbours and remaining <= len(neighbours):
            proposal = self._proposal(neighbours)
            return self._take(proposal.point if proposal else neighbours[0]), NEIGHBOUR
        if len(self._trials) % SAMPLER_EVERY != SAMPLER_EVERY - 1:
            proposal = self._proposal(self._hopeful())
            if proposal is not None:
                return self._take(proposal.point), proposal.source
        return self._sampled(), SAMPLER

    def tell(self, trial: Trial, *, is_in_study: bool = False) -> None:
        """Record the outcome of a Point that was asked for, or of an earlier run's Trial.

        `is_in_study`: another driver has told it to the study that both share.
        """
        if trial.point == BASELINE:  # known without a Block
            self._told[BASELINE.key] = trial
            return
        self._trials.append(trial)
        if trial.failure is not None and trial.failure.reason is Reason.START_OOM:
            self._out_of_memory.append(trial)
        # A Point that the server made of another one is known as well, and need not be launched.
        self._told |= {trial.point.key: trial, trial.launched.key: trial}
        if trial.launched.key not in self._space.points:
            return  # measured under a Space that has changed since: known, but not the sampler's
        if is_in_study:
            if (asked := self._asked.pop(trial.launched.key, None)) is not None:
                self._study.tell(asked, state=_failed())  # the other's counts
            return
        if trial.launched.key not in self._asked:
            self._take(trial.launched)
        _tell(self._study, self._asked.pop(trial.launched.key), trial)

    def _is_known(self, point: Point) -> bool:
        """Whether its outcome is known, or on its way."""
        return point.key in self._told or point.key in self._asked

    def _proposal(self, points: Sequence[Point]) -> Proposal | None:
        from analysis.costmodel.model import CostModel
        from analysis.costmodel.observations import observe

        telling = [t for t in self._trials if t.log_speedup is not None or _is_own_fault(t)]
        model = CostModel(observe(self._blocks, self._objective), self._weights)
        return propose(self._space.engine, model, telling, points)

    def _hopeful(self) -> list[Point]:
        return [p for p in self._unknown() if not self._looks_doomed(p)]

    def _open_neighbours(self) -> list[Point]:
        best = self.best
        if best is None or best.point.key not in self._space.points:
            return []
        return [p for p in self._space.neighbours(best.point) if not self._is_known(p) and self._fits(p)]

    def _unknown(self) -> list[Point]:
        """Points that may still be asked for."""
        return [p for p in self._space.points.values() if not self._is_known(p) and self._fits(p)]

    @property
    def unfit(self) -> int:
        """Points that are not tried, since something no larger ran out of memory."""
        points = self._space.points.values()
        return sum(not self._is_known(p) and not self._fits(p) for p in points) if self._out_of_memory else 0

    def _fits(self, point: Point) -> bool:
        """Whether nothing that ran out of memory was smaller than this Point."""
        engine, args = self._space.engine, self._space.served.args
        return not any(does_not_fit(point, failed, engine, args) for failed in self._out_of_memory)

    def _take(self, point: Point) -> Point:
        self._study.enqueue_trial(self._space.parameters(point))
        trial = self._study.ask()
        self._space.suggest(trial)
        return self._under_way(trial, point)

    def _under_way(self, trial: "optuna.Trial", point: Point) -> Point:
        trial.set_user_attr("point", point.label)
        if self._shared is not None:
            trial.set_user_attr(DRIVER, self._shared.driver)
        self._asked[point.key] = trial
        return point

    def _sampled(self) -> Point:
        for _ in range(MAX_REPEATS):
            trial = self._study.ask()
            point = self._space.suggest(trial)
            if point is None:  # against the engine's rules: never launched, costs nothing
                trial.set_user_attr("state", "passed over: against the engine's rules")
                trial.set_constraint("legal", 1.0)
                self._study.tell(trial, state=_pruned())
            elif (known := self._told.get(point.key)) is not None:
                _tell(self._study, trial, known)
            elif point.key in self._asked:  # nothing is known of it yet
                self._study.tell(trial, state=_failed())
            elif not self._fits(point) or self._looks_doomed(point):  # while there is something better to try
                trial.set_user_attr("point", point.label)
                trial.set_user_attr("state", "passed over: what is closest to it failed")
                trial.set_constraint("failed", 1.0)
                self._study.tell(trial, state=_pruned())
            else:
                return self._under_way(trial, point)
        return self._take(self._random.choice(self._hopeful() or self._unknown()))

    def _looks_doomed(self, point: Point) -> bool:
        """Whether everything that was tried closest to a Point failed by its own fault."""
        if not any(map(_is_own_fault, self._trials)):
            return False
        tried = [(self._space.distance(point, t.launched), t) for t in self._trials]
        nearest = min((steps for steps, _ in tried), default=math.inf)
        if nearest == math.inf:
            return False
        return all(_is_own_fault(t) for steps, t in tried if steps == nearest)


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The measured Trial with the largest speed-up among those that keep every limit and are not lossy."""
    return max(_ranked(trials), key=_rank, default=None)


def finalists(
    trials: Sequence[Trial], count: int, margin: float, *, baseline_is_out: bool = False
) -> list[Point]:
    """The Points to confirm, the best first: those within `margin` (log ratio) of the baseline or above it.

    If the baseline breaks a limit itself (`baseline_is_out`), those that are slower than it too.

    Behind the best over all Cells come the best of single Cells, since the answer may differ between
    them: those that gain most there over the best over all, and more than `margin`.
    If no Point is hopeful, the single best, stopped early or not, so that "nothing beats the baseline" is
    stated with an interval; behind it those that gain on the baseline in a single Cell.
    """
    trials = [t for t in trials if not t.point.is_baseline]  # its own settings are told against another one
    ranked = sorted(_ranked(trials), key=_rank, reverse=True)
    hopeful = [t for t in ranked if baseline_is_out or _log_speedup(t) > -margin]
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
    return [t for t in eligible(trials) if t.point != BASELINE and t.log_speedup is not None]


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


def _tell(study: "optuna.Study", asked: "optuna.Trial", trial: Trial) -> None:
    for name, told in {**_attributes(trial), NUMBER: trial.number}.items():
        asked.set_user_attr(name, told)
    for name, value in trial.limits.items():
        asked.set_constraint(name, value)
    asked.set_constraint("admitted", len(trial.limited) or -1.0)
    if trial.log_speedup is not None and trial.state is not TrialState.FAILED:
        asked.set_constraint("failed", -1.0)
        study.tell(asked, trial.log_speedup)
    elif trial.failure is not None and trial.failure.reason in MACHINE_FAULTS:
        study.tell(asked, state=_failed())
    else:
        asked.set_constraint("failed", 1.0)
        study.tell(asked, state=_pruned())


def _attributes(trial: Trial) -> dict[str, str | float]:
    """What a person wants to know of a trial: for optuna-dashboard, never read again here."""
    cells = {f"speed-up, {cell}": round(math.exp(ratio), 4) for cell, ratio in trial.by_cell.items()}
    limits = {f"share of limit {name}": round(math.exp(v), 4) for name, v in trial.limits.items()}
    whole = {} if trial.log_speedup is None else {"speed-up": round(math.exp(trial.log_speedup), 4)}
    failure = trial.failure
    why = {"reason": failure.reason.value, "evidence": failure.evidence} if failure is not None else {}
    return {"point": trial.label, "state": trial.state.value, **whole, **why, **cells, **limits}


def _pruned() -> "optuna.trial.TrialState":
    import optuna

    return optuna.trial.TrialState.PRUNED


def _failed() -> "optuna.trial.TrialState":
    """Invisible to the sampler."""
    import optuna

    return optuna.trial.TrialState.FAIL
