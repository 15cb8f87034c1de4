"""One Block on real servers: every arm once, in random order or two at once."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from analysis.acceptance import SlotCounts
from analysis.accuracy import scores
from analysis.block import ENERGY, Rules, arm_failure, disturbance, judge
from analysis.goodput import GOODPUT
from analysis.output import compare_outputs
from analysis.parity import workload_warnings
from launchers.engines.engine import SlotDrafts
from launchers.hardware_sets import HardwareSet
from results.reasons import Reason
from results.records import ArmRun, Block, Failure, Phase, Point, Request
from sweeps.arm import Arm, measure, up
from sweeps.company import Company, at_once, keep_busy, share_clients
from sweeps.duet import are_equal, earlier_ratios, is_check, ratio_of
from sweeps.equal_sets import sets_of
from sweeps.gate import Gate, PromptKey, seconds_per_token
from sweeps.now import Now
from sweeps.setup import Setup
from sweeps.windows import Window

SPOILING = (Reason.WRONG_SERVER, Reason.OTHER_LOAD)  # in one arm, and a rerun may cure it


class LocalLane:
    """Measures Blocks with servers of this machine, one Block at a time."""

    def __init__(
        self,
        setup: Setup,
        observe: Callable[[Phase, Point], None],
        setups: Mapping[str, Setup] | None = None,
    ) -> None:
        """`setups` are of Points, by key, that run with another Setup than the others."""
        self._setup = setup
        self._now = Now(setup.folder)
        self._setups = setups or {}
        self._observe = observe
        self._earlier: dict[tuple[Phase, str], Arm] = {}  # the latest good run of each baseline
        self._baseline_s: dict[PromptKey, float] = {}  # what the baseline needed per token, latest
        self._checked: set[tuple[Phase, str]] = set()  # with whose context the prompts were compared
        sweep = setup.sweep
        is_duet = sweep.pairing == "duet"
        self._sets = sets_of(sweep.duet, sweep.container) if is_duet else ()
        self._set_ratios = earlier_ratios(setup.folder) if is_duet else []
        self._duets = Counter(filter(None, map(_side_of, setup.folder.blocks()))) if is_duet else Counter()
        self._rules = Rules(
            min_window_s=sweep.patience.min_window_s,
            max_foreign_cores=sweep.patience.foreign_cores,
            max_stolen_cores=sweep.patience.foreign_cores,
            max_client_share=sweep.patience.client_share,
            speculative_keys=setup.engine.speculative_settings,
            thinking={"off": False, "on": True}.get(sweep.workload.thinking),
        )

    def measure(
        self, number: int, points: Sequence[Point], phase: Phase, baseline: Point, *, alone: bool
    ) -> Block:
        """One Block, invalid or not; its requests, telemetry and logs go into the run folder."""
        started_at = time.time()
        chance = random.Random(f"{self._setup.sweep.seed}:{number}")
        order = [*points] if alone else [baseline, *points]
        chance.shuffle(order)
        checks = is_check(points, baseline)
        kind = "sets" if checks else "block"
        names = {point.key: f"{kind}{number:04d}-{i}-{point.method}" for i, point in enumerate(order)}
        self._now.block(number, phase, order)
        if self._setup.sweep.pairing == "together":
            arms = self._together(order, phase, baseline, names, chance)
        elif self._sets and len(order) == 2 and (checks or are_equal(self._set_ratios, self._setup.sweep)):
            arms = self._duet(self._seated(order, phase, baseline), phase, baseline, names)
        else:
            arms = self._adjacent(order, phase, baseline, names)
        for arm in arms:
            self._setup.folder.write_requests(arm.name, arm.requests)
            self._setup.folder.write_telemetry(arm.name, arm.gpu_samples)
        block = self._block(number, phase, baseline, started_at, arms)
        self._remember_sets(block, checks=checks)
        return block

    def _adjacent(
        self, order: Sequence[Point], phase: Phase, baseline: Point, names: Mapping[str, str]
    ) -> list[Arm]:
        """One server after the other; with two sets of hardware, all on the first."""
        arms: list[Arm] = []
        for point in order:
            with self._up(point, phase, names[point.key], 0 if self._sets else None) as arm:
                arms.append(arm)
                gate = self._gate(arm, phase, baseline)
                for window in self._setup.windows[phase]:
                    self._now.measures(window.cell, point)
                    self._measure(arm, phase, baseline, window, gate)
            failed = point == baseline and arm.failure is not None
            if failed or (arm.stopped_at_ratio is not None and len(order) == 2):
                break  # without a baseline nothing counts; a hopeless Point needs no second one
        return arms

    def _together(
        self,
        order: Sequence[Point],
        phase: Phase,
        baseline: Point,
        names: Mapping[str, str],
        chance: random.Random,
    ) -> list[Arm]:
        """All servers are up and take turns, so that a drift of the machine meets every arm alike."""
        with ExitStack() as servers:
            arms = [servers.enter_context(self._up(p, phase, names[p.key])) for p in order]
            gates = {arm.name: self._gate(arm, phase, baseline) for arm in arms}
            for window in self._setup.windows[phase]:
                self._now.measures(window.cell)
                for turn in window.turns():
                    for arm in chance.sample(arms, len(arms)):
                        self._measure(arm, phase, baseline, turn, gates[arm.name])
                    if _is_settled(arms, baseline):
                        for arm in arms:
                            arm.complete = False
                        return arms
        return arms

    def _duet(
        self, order: Sequence[Point], phase: Phase, baseline: Point, names: Mapping[str, str]
    ) -> list[Arm]:
        """Both servers at once, the first on set 0: what disturbs the whole machine meets both alike.

        Two arms, never more: a ratio of servers that ran at different times would have lost just that, and
        a second candidate would need a launch of the Baseline of its own beside it. So a confirmation gives
        a duet one finalist at a time (see sweeps.confirm).
        """
        cells = (window.cell for window in self._setup.windows[phase])
        company = Company(lambda: self._now.measures(next(cells)))
        for point in order:
            self._observe(phase, point)
            self._now.starts(point)
        arms = at_once(
            [
                partial(self._in_company, point, phase, baseline, names[point.key], company, on)
                for on, point in enumerate(order)
            ]
        )
        share_clients(arms)
        return arms

    def _in_company(
        self, point: Point, phase: Phase, baseline: Point, name: str, company: Company, on: int
    ) -> Arm:
        """One arm of a duet. Its end, whatever the cause, is the end of the other's next wait."""
        try:
            with self._launched(point, phase, name, on) as arm:
                gate = self._gate(arm, phase, baseline)
                for window in self._setup.windows[phase]:
                    if arm.is_over or not company.meet(on, arm):
                        arm.complete = arm.is_over
                        break
                    self._measure(arm, phase, baseline, window, gate)
                    company.through(on)
                    if not arm.is_over:
                        keep_busy(self._setup_of(point), arm, window, partial(company.other_is_measured, on))
        finally:
            company.leave()
        return arm

    def _seated(self, order: Sequence[Point], phase: Phase, baseline: Point) -> list[Point]:
        """Who runs on set 0 and on set 1.

        Each candidate is on either set as often as on the other, at most one apart, so that a bias too small
        to be seen cancels; the first time it is as the (random) order has it.
        """
        candidate = next(point for point in order if point != baseline)
        first, second = (self._duets[phase, candidate.key, on] for on in (0, 1))
        if first == second:
            return [*order]
        return [candidate, baseline] if first < second else [baseline, candidate]

    def _remember_sets(self, block: Block, *, checks: bool) -> None:
        """What a valid duet says of the sets, and who was where."""
        side = _side_of(block)
        if side is not None:
            self._duets[side] += 1
        ratio = ratio_of(block, self._setup.sweep) if checks else None
        if ratio is not None:
            self._set_ratios.append(ratio)

    def _up(
        self, point: Point, phase: Phase, name: str, on: int | None = None
    ) -> AbstractContextManager[Arm]:
        self._observe(phase, point)
        self._now.starts(point)
        return self._launched(point, phase, name, on)

    @contextmanager
    def _launched(self, point: Point, phase: Phase, name: str, on: int | None) -> Iterator[Arm]:
        hardware: HardwareSet | None = None if on is None else self._sets[on]
        unchecked = self._server_kind(phase, point) not in self._checked
        prompts = [p for window in self._setup.windows[phase] for p in window.prompts]
        checked = prompts if unchecked else ()
        with up(self._setup_of(point), point, name, checked, hardware=hardware) as arm:
            arm.on_set = on
            yield arm

    def _server_kind(self, phase: Phase, point: Point) -> tuple[Phase, str]:
        return phase, point.key if point.key in self._setups else ""

    def _setup_of(self, point: Point) -> Setup:
        return self._setups.get(point.key, self._setup)

    def _gate(self, arm: Arm, phase: Phase, baseline: Point) -> Gate | None:
        knows = self._setup.sweep.objective not in (ENERGY, GOODPUT)  # the gate knows speed alone
        if phase is not Phase.SEARCH or arm.point == baseline or arm.point.name or not knows:
            return None
        return Gate(self._baseline_s, self._setup.sweep.patience.hopeless_ratio)

    def _measure(self, arm: Arm, phase: Phase, baseline: Point, window: Window, gate: Gate | None) -> None:
        if arm.is_over:
            return
        self._checked.add(self._server_kind(phase, arm.point))  # it is up: the prompts fit into its context
        for request in measure(self._setup_of(arm.point), arm, window, gate):
            per_token_s = seconds_per_token(request)
            if arm.point == baseline and per_token_s is not None:
                self._baseline_s[window.cell.label, request.prompt_id] = per_token_s

    def _block(
        self, number: int, phase: Phase, compared_with: Point, started_at: float, arms: Sequence[Arm]
    ) -> Block:
        baseline = next((a for a in arms if a.point == compared_with), None)
        earlier = self._earlier.get((phase, compared_with.key))
        reference = baseline or earlier
        if baseline is not None and baseline.failure is None and baseline.complete:
            self._earlier[phase, compared_with.key] = baseline
        candidates = [a for a in arms if a.point != compared_with]
        requests = {arm.point.key: arm.requests for arm in arms}
        references = self._setup.references(phase)
        runs = {arm.point.key: replace(arm.record(), scores=scores(arm.requests, references)) for arm in arms}
        if reference is not None:
            theirs = runs.get(reference.point.key) or reference.record()
            sent = requests.get(reference.point.key) or reference.requests
            for arm in candidates:
                key = arm.point.key
                failure = self._judge_arm(runs[key], requests[key], arm.slots, theirs, sent)
                runs[key] = replace(runs[key], failure=failure)
        if compared_with.name and baseline is not None and candidates:
            key, others = compared_with.key, requests[candidates[0].point.key]
            runs[key] = replace(runs[key], failure=self._judge_side(baseline, runs[key], others))
        return Block(
            number=number,
            phase=phase,
            started_at=started_at,
            ended_at=time.time(),
            prompt_set=self._setup.prompt_set(phase),
            arms=tuple(runs.values()),
            outputs={a.point.key: compare_outputs(reference.texts, a.texts) for a in candidates if reference},
            control=compare_outputs(earlier.texts, baseline.texts) if earlier and baseline else None,
            invalid=self._judge([*runs.values()], requests, compared_with),
            warnings=(
                *workload_warnings([r for sent in requests.values() for r in sent]),
                *dict.fromkeys(arm.restless for arm in arms if arm.restless),
            ),
            compared_with=compared_with,
        )

    def _judge_side(self, arm: Arm, run: ArmRun, others: Sequence[Request]) -> Failure | None:
        """The reference of a comparison is no plain server that may be trusted: the other side judges it."""
        counts = [SlotCounts(s.slot, s.accepted, s.generated) for s in arm.slots]
        return arm_failure(run, arm.requests, self._rules, reference=others, slots=counts)

    def _judge_arm(
        self,
        run: ArmRun,
        requests: Sequence[Request],
        slots: Sequence[SlotDrafts],
        baseline: ArmRun,
        reference: Sequence[Request],
    ) -> Failure | None:
        counts = [SlotCounts(s.slot, s.accepted, s.generated) for s in slots]
        return arm_failure(run, requests, self._rules, baseline=baseline, reference=reference, slots=counts)

    def _judge(
        self,
        runs: Sequence[ArmRun],
        requests: Mapping[str, Sequence[Request]],
        compared_with: Point,
    ) -> Failure | None:
        lost = next((r.failure for r in runs if r.failure and r.failure.reason in SPOILING), None)
        if all(run.point != compared_with for run in runs):  # measured alone, or ended early
            return lost or disturbance(runs[0], self._rules)
        return lost or judge(runs, requests, self._rules, compared_with)


def _side_of(block: Block) -> tuple[Phase, str, int] | None:
    """On which set the candidate of a valid duet was; None of any other Block."""
    arms = block.candidates
    if block.invalid is not None or len(block.arms) != 2 or len(arms) != 1 or arms[0].on_set is None:
        return None
    return block.phase, arms[0].point.key, arms[0].on_set


def _is_settled(arms: Sequence[Arm], baseline: Point) -> bool:
    """Whether more turns would tell nothing: no baseline to compare with, or nothing left to compare."""
    baseline_lives = any(arm.point == baseline and not arm.is_over for arm in arms)
    return not baseline_lives or all(arm.is_over for arm in arms if arm.point != baseline)
