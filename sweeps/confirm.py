"""Confirmation: finalists against the Baseline on held-out prompts, looked at only when planned."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NotRequired, TypedDict
from uuid import uuid4

from analysis.limits import broken_by_baseline
from analysis.verdict import conclude, next_look, still_open
from results.records import Block, Phase, Point, Trial, Verdict, Weights
from results.sharing import Sharing
from results.store import RunFolder
from sweeps.blocks import BlockRunner
from sweeps.lanes import Lanes
from sweeps.study import finalists
from sweeps.sweep import Sweep
from sweeps.tasks import Task, Tasks

CONFIRMATION = "confirmation"  # what claims of its Blocks begin with


class Rules(TypedDict):
    """How `conclude` reads confirmation Blocks."""

    objective: str
    looks: tuple[int, ...]
    alpha: float
    same_margin: float
    limits: Mapping[str, float]
    weights: Weights
    greedy: NotRequired[bool]  # by default it is


def rules_of(sweep: Sweep) -> Rules:
    """The rules a sweep file asks for."""
    return Rules(
        objective=sweep.objective,
        looks=tuple(sweep.confirm.looks),
        alpha=sweep.confirm.alpha,
        same_margin=math.log1p(sweep.confirm.same_margin),
        limits=sweep.limits,
        weights=sweep.weights.to_record(),
        greedy=sweep.workload.is_greedy,
    )


def finalists_of(folder: RunFolder, trials: Sequence[Trial], sweep: Sweep) -> list[Point]:
    """Whom to confirm: the best of the search, and whoever entered the confirmation before.

    Finalists stay finalists when a larger budget brings better ones: alpha is split over all.
    """
    earlier = [Point(p["method"], p["knobs"]) for p in folder.read_json("finalists.json").get("points", [])]
    margin = math.log1p(sweep.confirm.same_margin)
    searched = [b for b in folder.blocks() if b.phase is Phase.SEARCH] if sweep.limits else []
    is_out = bool(broken_by_baseline(searched, sweep.limits, sweep.weights.to_record()))
    chosen = finalists(trials, sweep.confirm.finalists, margin, baseline_is_out=is_out)
    points = {p.key: p for p in [*earlier, *chosen]}
    return [*points.values()]


def confirmation(blocks: Sequence[Block], baseline: Point) -> list[Block]:
    """The confirmation Blocks against this Baseline: those against a weaker one answer another question."""
    return [b for b in blocks if b.phase is Phase.CONFIRM and b.compared_with.key == baseline.key]


def confirm(
    lanes: Lanes,
    finalists: Sequence[Point],
    past: Sequence[Block],
    rules: Rules,
    *,
    baseline: Point,
    sharing: Sharing,
    news: Callable[[], Sequence[Block]] = tuple,
    go_on: Callable[[], bool] = lambda: True,
    on_block: Callable[[int, Sequence[Verdict]], None] = lambda _blocks, _verdicts: None,
    one_at_a_time: bool = False,
) -> list[Verdict]:
    """Run Blocks of the Baseline and every finalist still open until each has a verdict.

    `past` are confirmation Blocks of an earlier start of the same run, `news` gives those that other
    drivers have added since it was last asked. `go_on` is asked before each Block; when it says no, what
    is known so far is the answer. Never more Blocks are in flight than the next planned look takes.
    `one_at_a_time`: a Block has one finalist, each in turn, as a duet needs it.
    """
    usable = [b for b in past if b.invalid is None]
    handed_out: Counter[str] = Counter()  # Blocks of one finalist that are not done, by its key

    def verdicts() -> list[Verdict]:
        return conclude(usable, finalists, **rules)

    def next_block() -> Task[Sequence[Point]] | None:
        usable.extend(b for b in news() if b.invalid is None)
        points = open_points(verdicts(), rules)
        wanted = {p.key: _blocks_to_next_look(usable, p, rules["looks"]) for p in points}
        if not one_at_a_time:
            enough = tasks.in_flight >= min(wanted.values(), default=0)
            return None if enough else Task(points, f"{CONFIRMATION}: {uuid4().hex}")
        missing = {p.key: wanted[p.key] - in_flight(p) for p in points}
        point = max(points, key=lambda p: missing[p.key], default=None)
        if point is None or missing[point.key] <= 0:
            return None
        handed_out[point.key] += 1
        return Task([point], f"{_claims_of(point)}{uuid4().hex}")

    def in_flight(point: Point) -> int:
        return handed_out[point.key] + sharing.held_by_others(_claims_of(point))

    tasks = Tasks(CONFIRMATION, next_block, sharing, go_on)

    def work(run_block: BlockRunner) -> None:
        while True:
            with tasks.one() as task:
                if task is None:
                    return
                block = run_block(task.what, Phase.CONFIRM, baseline)
                with sharing.exclusive():
                    handed_out.subtract(p.key for p in task.what)
                    if block.invalid is None:
                        usable.append(block)
                    sharing.release(task.claim)
                    on_block(len(usable), verdicts())

    lanes.each(work)
    return verdicts()


def _claims_of(point: Point) -> str:
    """What the claims of Blocks of one finalist begin with."""
    return f"{CONFIRMATION}: {point.key} "


def _blocks_to_next_look(blocks: Sequence[Block], point: Point, looks: Sequence[int]) -> int:
    have = sum(b.arm(point) is not None for b in blocks)
    return (next_look(have, looks) or have) - have


def open_points(verdicts: Sequence[Verdict], rules: Rules) -> list[Point]:
    """Finalists that the next Block measures: still open, and not yet through their last look."""
    through = {v.point.key for v in verdicts if v.effect and v.effect.blocks >= rules["looks"][-1]}
    return [point for point in still_open(verdicts) if point.key not in through]
