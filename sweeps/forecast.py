"""What a sweep would do, said before anything is started."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from analysis.statistics import look_alpha, smallest_effect
from launchers.engines import is_container, launch_of, shown_command
from launchers.gpu_choice import Shown, server_environment, visible_gpus
from launchers.nvml import driver
from results.records import BASELINE, Phase, Point
from sweeps.anchors import AUTO_TRIALS
from sweeps.cluster.outlook import outlook
from sweeps.cluster.ray_room import gpus_of
from sweeps.cluster.slurm_lanes import gpus_of as gpus_of_job
from sweeps.estimate import rounds, to_looks
from sweeps.prepare import Plan
from sweeps.space import baseline_space, iter_start_points
from sweeps.windows import usual_tokens

SHOWN_TRIALS = 3
SHOWN_PORT = 8080  # stands for the free port that each start gets
ASSUMED_BLOCK_NOISE = 0.02  # standard deviation of a Block's log ratio


@dataclass(frozen=True, slots=True)
class Speed:
    """What a server is assumed to do while none was measured."""

    tokens_per_s: float
    prompt_tokens_per_s: float  # all streams together
    is_shared: bool  # more streams get no more tokens

    def __str__(self) -> str:
        whose = "all streams together give" if self.is_shared else "one stream gives"
        read = f"prompts are read at {self.prompt_tokens_per_s:g} tokens/s"
        return f"{whose} {self.tokens_per_s:g} tokens/s and {read}"


ON_GPUS = Speed(100.0, 2000.0, is_shared=False)
ON_CPUS = Speed(100.0, 300.0, is_shared=True)  # a model of 135 million parameters on two cores


@dataclass(frozen=True)
class Forecast:
    """Commands and figures for `--dry-run`."""

    trials: int
    grid: str
    baseline_trials: int
    baseline: str
    baseline_example: str  # one of those settings; "" if there are none
    first_trials: tuple[str, ...]
    time: str
    sensitivity: str
    notes: tuple[str, ...]


def forecast(plan: Plan) -> Forecast:
    """What will be started, how long it takes, how small an effect it can see."""
    trials = min(plan.sweep.budget.trials, len(plan.space.points))
    cluster = outlook(plan)
    lanes = cluster.lanes if cluster is not None else None
    return Forecast(
        trials=trials,
        grid=grid(plan),
        baseline_trials=_baseline_trials(plan),
        baseline=command_of(plan, BASELINE),
        baseline_example=_baseline_example(plan),
        first_trials=tuple(command_of(plan, p) for p in islice(iter_start_points(plan.space), SHOWN_TRIALS)),
        time=sweep_time(plan, lanes or 1),
        sensitivity=sensitivity(plan),
        notes=(*([cluster.said] if cluster is not None else []), *plan.notes),
    )


def grid(plan: Plan) -> str:
    """The Cells of one launch, as a sentence."""
    windows = plan.windows[Phase.SEARCH]
    numbers = {
        "classes": len({w.cell.workload_class for w in windows}),
        "paces": len({w.cell.pace for w in windows}),
        "contexts": len({w.cell.context_tokens for w in windows}),
    }
    factors = [f"{number} {what}" for what, number in numbers.items() if number > 1]
    shown = f": {' x '.join(factors)}" if len(factors) > 1 else ""
    requests = sum(len(w.prompts) for w in windows)
    return f"{len(windows)} Cell{'s' if len(windows) > 1 else ''}{shown}, {requests} requests per launch."


def _baseline_trials(plan: Plan) -> int:
    without = baseline_space(plan.space)
    budget = plan.sweep.budget.for_baseline
    return min(budget, len(without.points) - 1) if without else 0


def _baseline_example(plan: Plan) -> str:
    """The last of the Space: with a value of its own for every setting."""
    without = baseline_space(plan.space)
    return command_of(plan, [*without.points.values()][-1]) if without else ""


def sensitivity(plan: Plan) -> str:
    """The smallest effect that the confirmation can see, as a sentence."""
    confirm = plan.sweep.confirm
    alpha = look_alpha(confirm.alpha, len(confirm.looks), confirm.finalists)
    looks = [confirm.looks[0], *confirm.looks[1:][-1:]]
    first, *later = (f"{smallest_effect(ASSUMED_BLOCK_NOISE, n, alpha):.1%}" for n in looks)
    at_last = f" and one of {later[0]} after {looks[-1]}" if later else ""
    return (
        f"At a noise of {ASSUMED_BLOCK_NOISE:.0%} per Block, a speed-up of {first} is seen after {looks[0]}"
        f" Blocks{at_last} (in 8 of 10 runs)."
    )


def command_of(plan: Plan, point: Point) -> str:
    launch = launch_of(plan.engine, plan.served, point, SHOWN_PORT, Path())
    words = shown_command(launch, plan.places)
    return " ".join([*_variables(point, words), shlex.join(words)])


def _variables(point: Point, words: Sequence[str]) -> Sequence[str]:
    """Variables of a Point in front of its command; a container's are among its words."""
    given = {name: value for name, value in point.variables.items() if value is not None}
    return [] if is_container(words) else [f"{n}={shlex.quote(v)}" for n, v in given.items()]


def sweep_time(plan: Plan, lanes: int = 1) -> str:
    """Wall time with so many Blocks at once, and GPU hours, at an assumed speed; the sweep itself revises
    it as it measures."""
    confirm = plan.sweep.confirm
    trials = min(plan.sweep.budget.trials, len(plan.space.points)) + _baseline_trials(plan)
    arm_s, start_s = _arm_s(plan), plan.engine.usual_start_s
    arms = confirm.finalists + 1
    launches, looks = _launches(plan, trials), confirm.looks
    search_s = arm_s * math.ceil(launches / lanes)
    steps = to_looks(0, looks)
    times_s = [search_s + arm_s * arms * sum(rounds(n, lanes) for n in part) for part in (steps[:1], steps)]
    first_s, last_s = (arm_s * (launches + arms * blocks) for blocks in (looks[0], looks[-1]))
    span = " to ".join(dict.fromkeys(map(_minutes, times_s))) + f" in all{_limit(plan)}"
    at_once = f" with {lanes} Blocks at once" if lanes > 1 else ""
    return (
        f"About {_minutes(search_s)} to search and {span}{at_once},"
        f" if a start takes {start_s:g} s, {_speed(plan)}."
        f"{_gpu_hours([plan], first_s, last_s, lanes)}"
    )


def _launches(plan: Plan, trials: int) -> int:
    """Launches of a search: the Baseline beside every Point, or once in a few where its start is dear."""
    every, start_s = plan.sweep.budget.baseline_every, plan.engine.usual_start_s
    if every == "auto":
        is_dear = plan.sweep.pairing == "adjacent" and start_s > _arm_s(plan) - start_s
        every = AUTO_TRIALS if is_dear else 1
    return 2 * trials if every == 1 else trials + math.ceil(trials / every) + 1


def comparison_time(plans: Sequence[Plan]) -> str:
    """Wall time of a comparison of these Plans, or of the one alone up to the first look."""
    looks = plans[0].sweep.confirm.looks
    block_s = sum(map(_arm_s, plans))
    first_s, last_s = (block_s * n for n in (looks[0], looks[-1] if len(plans) > 1 else looks[0]))
    span = [_minutes(first_s), _minutes(last_s)]
    starts = ", ".join(f"{plan.engine.usual_start_s:g} s" for plan in plans if plan.engine.usual_start_s)
    started = f" a start takes {starts}," if starts else ""
    return (
        f"About {' to '.join(dict.fromkeys(span))}{_limit(plans[0])}, if{started} {_speed(plans[0])}."
        f"{_gpu_hours(plans, first_s, last_s)}"
    )


def _gpu_hours(plans: Sequence[Plan], first_s: float, last_s: float, lanes: int = 1) -> str:
    """What that work is in GPU hours, as a sentence; "" without a GPU. A budget of hours ends it earlier."""
    gpus, hours = max(map(gpus_taken, plans)), plans[0].sweep.budget.hours or float("inf")
    if not gpus:
        return ""
    spans = (min(seconds / 3600, hours * lanes) * gpus for seconds in (first_s, last_s))
    on = ("one GPU" if gpus == 1 else f"{gpus} GPUs") + (" for each Block" if lanes > 1 else "")
    return f" On {on} that is {' to '.join(dict.fromkeys(f'{h:.1f}' for h in spans))} GPU hours."


def gpus_taken(plan: Plan) -> int:
    """GPUs that a server of the plan takes: one a rank, or all that its environment leaves to it."""
    if plan.sweep.launcher == "ray":
        return gpus_of(plan)  # those of a node: this machine may have none
    if plan.sweep.slurm is not None:
        return gpus_of_job(plan.sweep.slurm, plan)
    shown = [Shown(device.index, device.uuid, device.name) for device in driver().devices]
    container = plan.sweep.container.gpu_ids if plan.sweep.container is not None else None
    visible = visible_gpus(shown, server_environment(plan.sweep.env), container).uuids
    if plan.engine.torch_of(BASELINE) is None:
        return len(visible)
    return min(len(visible), plan.engine.ranks(BASELINE, plan.served))


def _limit(plan: Plan) -> str:
    return f", ended after {plan.sweep.budget.hours:g} h" if plan.sweep.budget.hours else ""


def _speed(plan: Plan) -> Speed:
    return ON_GPUS if plan.sweep.url or gpus_taken(plan) else ON_CPUS


def _arm_s(plan: Plan) -> float:
    """One launch of one arm, with all its Cells: prompts are read by all streams together."""
    workload, windows, speed = plan.sweep.workload, plan.windows[Phase.SEARCH], _speed(plan)
    written = sum(
        (prompt.max_tokens or workload.max_tokens) / (1 if speed.is_shared else window.pace.concurrency or 1)
        for window in windows
        for prompt in window.prompts
    )
    read = sum(w.cell.context_tokens or usual_tokens(prompt) for w in windows for prompt in w.prompts)
    return plan.engine.usual_start_s + written / speed.tokens_per_s + read / speed.prompt_tokens_per_s


def _minutes(seconds: float) -> str:
    return f"{max(1, round(seconds / 60))} min"
