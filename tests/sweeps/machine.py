"""A BlockRunner without servers: every launch takes minutes of a clock that nobody waits for."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from results.reasons import Reason
from results.records import BASELINE, ArmRun, Block, Failure, Phase, Point
from tests.records import CELL, arm

GAIN = 0.2  # log ratio of every speculating Point to the Baseline


def usual_gain(point: Point) -> float:
    return 0.0 if point.is_baseline else GAIN


class Machine:
    """`level` is its log speed at a time in hours, `noise` that of one launch, `gain` that of a Point."""

    def __init__(
        self,
        level: Callable[[float], float] = lambda hours: 0.0,
        noise: Callable[[], float] = lambda: 0.0,
        start_s: float = 300.0,
        measured_s: float = 60.0,
        gain: Callable[[Point], float] = usual_gain,
        past: Sequence[Block] = (),
        written: Callable[[Block], None] = lambda block: None,
    ) -> None:
        self._level, self._noise, self._gain, self._written = level, noise, gain, written
        self._times_s = (start_s, measured_s)
        self._now = past[-1].ended_at if past else 0.0
        self.blocks: list[Block] = list(past)
        self.spoiled: set[int] = set()  # numbers of Blocks that turn out invalid
        self.failing: set[str] = set()  # keys of Points whose server breaks

    @property
    def launches(self) -> int:
        return sum(len(block.arms) for block in self.blocks)

    def __call__(
        self, points: Sequence[Point], phase: Phase, baseline: Point = BASELINE, *, alone: bool = False
    ) -> Block:
        began = self._now
        arms = [self._arm(p) for p in ([] if alone else [baseline]) + [*points]]
        number = len(self.blocks)
        spoiled = Failure(Reason.HOST_PRESSURE, "others") if number in self.spoiled else None
        prompts = f"{phase.value} prompts"
        made = Block(number, phase, began, self._now, prompts, tuple(arms), invalid=spoiled)
        self.blocks.append(replace(made, compared_with=baseline))
        self._written(self.blocks[-1])
        return self.blocks[-1]

    def _arm(self, point: Point) -> ArmRun:
        start_s, measured_s = self._times_s
        at_hours = (self._now + start_s + measured_s / 2) / 3600
        self._now += start_s + measured_s
        log = self._gain(point) + self._level(at_hours) + self._noise()
        failure = Failure(Reason.HANG, "silent") if point.key in self.failing else None
        made = arm(point, {CELL: 100 * math.exp(log)}, failure)
        return replace(made, start_s=start_s, warm_up_s=0.0, measured_s=measured_s)
