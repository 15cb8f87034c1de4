"""Run Blocks on real servers: every arm once, in random order, again if the Block is invalid."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from analysis.block import Rules, arm_failure, disturbance, judge
from analysis.output import compare_outputs
from results.errors import MeasurementInvalid
from results.records import BASELINE, Block, Failure, Phase, Point
from sweeps.arm import Arm, Gate, Setup, run_arm


class BlockRunner(Protocol):
    """Measures Points against the Baseline in one Block: all the search needs to know of servers."""

    def __call__(self, points: Sequence[Point], phase: Phase) -> Block: ...


class Blocks:
    """The BlockRunner of real servers. Every Block, invalid ones too, goes into the run folder."""

    def __init__(self, setup: Setup, past: Sequence[Block], observe: Callable[[Phase, Point], None]) -> None:
        self._setup = setup
        self._observe = observe
        self._next = max((b.number for b in past), default=-1) + 1
        self._reference: dict[Phase, Arm] = {}  # the latest good baseline of each phase
        self._checked: set[Phase] = set()
        sweep = setup.sweep
        self._rules = Rules(
            min_window_s=sweep.patience.min_window_s,
            max_foreign_cores=sweep.patience.foreign_cores,
            max_stolen_cores=sweep.patience.foreign_cores,
            speculative_keys=setup.engine.speculative_settings,
            thinking={"off": False, "on": True}.get(sweep.workload.thinking),
        )

    def __call__(self, points: Sequence[Point], phase: Phase) -> Block:
        """Raises MeasurementInvalid if the Baseline itself cannot be measured."""
        for _ in range(self._setup.sweep.patience.reruns + 1):
            block = self._run(points, phase)
            self._setup.folder.add_block(block)
            if block.invalid is None:
                return block
        failure = block.baseline.failure if block.baseline else None
        if failure is not None:
            raise MeasurementInvalid(failure.reason, f"the baseline cannot be measured: {failure.evidence}")
        return block

    def _run(self, points: Sequence[Point], phase: Phase) -> Block:
        number, self._next = self._next, self._next + 1
        started_at = time.time()
        order = [BASELINE, *points]
        random.Random(f"{self._setup.sweep.seed}:{number}").shuffle(order)
        earlier = self._reference.get(phase)
        arms: list[Arm] = []
        for place, point in enumerate(order):
            arm = self._run_arm(point, phase, f"block{number:04d}-{place}-{point.method}")
            arms.append(arm)
            if (point.is_baseline and arm.failure) or (arm.stopped_at_ratio is not None and len(points) == 1):
                break  # without a baseline nothing counts; a hopeless Point needs no second one
        return self._block(number, phase, started_at, arms, earlier)

    def _run_arm(self, point: Point, phase: Phase, name: str) -> Arm:
        self._observe(phase, point)
        reference = self._reference.get(phase)
        gate = None
        if phase is Phase.SEARCH and not point.is_baseline and reference is not None:
            gate = Gate(reference.all_requests, self._setup.sweep.patience.hopeless_ratio)
        arm = run_arm(self._setup, point, phase, name, gate, check=phase not in self._checked)
        self._checked.add(phase)
        self._setup.folder.write_requests(name, arm.all_requests)
        if point.is_baseline and arm.failure is None:
            self._reference[phase] = arm
        return arm

    def _block(
        self, number: int, phase: Phase, started_at: float, arms: Sequence[Arm], earlier: Arm | None
    ) -> Block:
        baseline = next((a for a in arms if a.point.is_baseline), None)
        reference = baseline or earlier
        candidates = [a for a in arms if not a.point.is_baseline]
        if reference is not None:
            for arm in candidates:
                arm.failure = self._judge_arm(arm, reference)
        return Block(
            number=number,
            phase=phase,
            started_at=started_at,
            ended_at=time.time(),
            prompt_set=self._setup.prompt_set(phase),
            arms=tuple(arm.record() for arm in arms),
            outputs={a.point.key: compare_outputs(reference.texts, a.texts) for a in candidates if reference},
            control=compare_outputs(earlier.texts, baseline.texts) if earlier and baseline else None,
            invalid=self._judge(arms),
        )

    def _judge_arm(self, arm: Arm, reference: Arm) -> Failure | None:
        return arm_failure(
            arm.record(),
            arm.all_requests,
            self._rules,
            baseline=reference.record(),
            reference=reference.all_requests,
        )

    def _judge(self, arms: Sequence[Arm]) -> Failure | None:
        records = [arm.record() for arm in arms]
        if not any(arm.point.is_baseline for arm in arms):  # ended early, see `_run`
            return disturbance(records[0], self._rules)
        return judge(records, {arm.point.key: arm.all_requests for arm in arms}, self._rules)
