"""Synthetic Blocks of a cluster: 3 nodes with 2 sets of GPUs each, one node 8 % slower."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from analysis.anchor import Place
from analysis.report_input import ReportInput
from analysis.verdict import answer, conclude
from results.reasons import Reason
from results.records import BASELINE, ArmRun, Block, Failure, Phase, Point, Trial, TrialState
from tests.analysis.build import CHAT, CODE, arm, measurement

NODES = ("alba", "bora", "cima")
SETS = (("0", "1"), ("2", "3"))
PLACES: tuple[Place, ...] = tuple((node, gpus) for gpus in SETS for node in NODES)
SLOW = "cima"
POINT = Point("eagle3", {"num_steps": 3, "topk": 1})
OTHER = Point("eagle3", {"num_steps": 5, "topk": 1})
LEVELS = {CHAT: 92.0, CODE: 110.0}
BLOCK_S = 300.0


def block_at(
    number: int,
    place: Place,
    gains: Sequence[tuple[Point, float]],
    phase: Phase = Phase.CONFIRM,
    *,
    level: float = 0.0,
    noise: float = 0.008,
) -> Block:
    """`gains` are log speed-ups, `level` the log of how much faster everything is at this place."""
    chance = random.Random(number)
    theirs = level + chance.gauss(0, noise)
    runs = [_arm(BASELINE, theirs, chance)]
    for point, gain in gains:
        ours = theirs + gain + chance.gauss(0, noise)
        runs.append(_arm(point, ours, chance))
    started_at = 1.8e9 + BLOCK_S * (number // len(PLACES))
    prompts = "held-out" if phase is Phase.CONFIRM else "search"
    return Block(
        number, phase, started_at, started_at + BLOCK_S, prompts, tuple(runs), node=place[0], gpus=place[1]
    )


def _arm(point: Point, log: float, chance: random.Random) -> ArmRun:
    speeds = {cell: level * math.exp(log + chance.gauss(0, 0.003)) for cell, level in LEVELS.items()}
    return arm(point, *(measurement(cell, speed) for cell, speed in speeds.items()))


def blocks(
    count: int = 12, gains: Mapping[str, float] | None = None, slow: float = math.log(0.92)
) -> list[Block]:
    """Search and confirmation, dealt out in turns; `gains`: log speed-up of POINT by node."""
    found = []
    for number in range(2 * count):
        place = PLACES[number % len(PLACES)]
        gain = (gains or {}).get(place[0], 0.11)
        phase = Phase.SEARCH if number < count else Phase.CONFIRM
        points = [(POINT, gain)] if number % 2 or phase is Phase.CONFIRM else [(OTHER, gain - 0.04)]
        found.append(block_at(number, place, points, phase, level=slow if place[0] == SLOW else 0.0))
    return found


def report(measured: Sequence[Block]) -> ReportInput:
    """A finished run of these Blocks."""
    confirmed = [b for b in measured if b.phase is Phase.CONFIRM]
    verdicts = conclude(confirmed, [POINT])
    found = answer(verdicts)
    trials = [
        Trial(0, POINT, "start", TrialState.MEASURED, 0.11, {}, (1,)),
        Trial(1, OTHER, "sampler", TrialState.MEASURED, 0.07, {}, (0,)),
    ]
    lost = Failure(Reason.HOST_PRESSURE, "2.4 cores used by others")
    spoiled = replace(block_at(99, PLACES[0], [(POINT, 0.1)]), invalid=lost)
    return ReportInput(
        name="cluster",
        trials=trials,
        blocks=[*measured, spoiled],
        verdicts=verdicts,
        winner=found.winner,
        headline=found.sentence,
        calibration={"chunks_per_cpu_s": 200000.0},
        environment={"engine": "sglang 0.5.23"},
        finished=True,
    )


def sample() -> ReportInput:
    return report(blocks())


def sample_that_depends() -> ReportInput:
    return report(blocks(gains={SLOW: -0.03}))
