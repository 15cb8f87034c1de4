"""Which servers are traced: of a run its baseline and its best, or a Point that is named."""

import shlex
from collections.abc import Callable, Mapping, Sequence

import yaml

from analysis.findings import compared_with
from results.errors import MeasurementInvalid, UsageError
from results.profile import Profile
from results.records import BASELINE, Phase, Point
from results.store import RunFolder
from sweeps.mistakes import nearest
from sweeps.observer import Observer
from sweeps.opened import opened
from sweeps.outcome import read_run
from sweeps.prepare import Plan
from sweeps.setup import Setup
from sweeps.space import iter_start_points
from sweeps.study import best_of
from sweeps.traced import Look, profile_arm
from sweeps.windows import Window

__all__ = ["Look", "check_traceable", "profile_best", "profile_run"]


def check_traceable(plan: Plan, folder: RunFolder) -> None:
    """Raises UsageError if servers of this engine cannot be traced."""
    plan.engine.tracer(BASELINE, folder.path)


def profile_run(
    plan: Plan,
    folder: RunFolder,
    observer: Observer,
    stopped: Callable[[], bool],
    look: Look,
    *,
    point: str = "",
    cell: str = "",
) -> Sequence[Profile]:
    """Trace the baseline and a Point (the run's best, unless one is named) at one Cell (or its first).

    Raises UsageError, and MeasurementInvalid if no server could be traced.
    """
    check_traceable(plan, folder)
    window = window_of(plan.setup(folder), cell)
    named = point_of(plan, point) if point else None
    with opened(folder, plan, observer):
        arms = arms_of(plan, folder, named)
        found, failure = _profiled(plan.setup(folder), arms, window, look, observer, stopped)
    if not found and failure is not None:
        raise failure
    return found


def profile_best(
    plan: Plan, folder: RunFolder, observer: Observer, stopped: Callable[[], bool], look: Look
) -> None:
    """After a sweep, in its open folder: baseline and best, as far as they have no Profile yet.

    What fails becomes a note: the verdict stands without it.
    """
    setup = plan.setup(folder)
    window = window_of(setup, "")
    known = {(p.point.key, p.cell) for p in folder.profiles()}
    arms = arms_of(plan, folder, None)
    missing = {name: p for name, p in arms.items() if (p.key, window.cell) not in known}
    _profiled(setup, missing, window, look, observer, stopped)


def arms_of(plan: Plan, folder: RunFolder, named: Point | None) -> Mapping[str, Point]:
    """What to trace, by what each is: the baseline, and one other if there is any."""
    baseline = compared_with(folder.blocks())
    other = {"point": named} if named is not None else _best(plan, folder)
    return {"baseline": baseline, **{name: p for name, p in other.items() if p.key != baseline.key}}


def _best(plan: Plan, folder: RunFolder) -> Mapping[str, Point]:
    """The winner, else the best so far, else what the engine would start with."""
    report, _ = read_run(folder)
    if report.winner is not None:
        return {"winner": report.winner.point}
    best = best_of(folder.trials())
    if best is not None and not best.point.is_baseline:
        return {"best": best.launched}
    start = next(iter_start_points(plan.space), None)
    return {"start": start} if start is not None else {}


def point_of(plan: Plan, text: str) -> Point:
    """The Point of `METHOD knob=value ...` in this plan. Raises UsageError."""
    point = parsed_point(text)
    if point.method not in plan.engine.methods(plan.served):
        raise UsageError(
            f"--point {text}: no method {point.method!r}{nearest(point.method, [*_methods(plan)])}"
        )
    plan.engine.check(point, plan.served)
    return plan.engine.canonical(point)


def parsed_point(text: str) -> Point:
    """`METHOD knob=value ...`, as labels are written; no engine is asked. Raises UsageError."""
    method, *settings = shlex.split(text) or [""]
    knobs = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--point {text}: expected METHOD knob=value ..., found {setting!r}")
        knobs[name] = yaml.safe_load(value)
    return Point(method, knobs)


def _methods(plan: Plan) -> Sequence[str]:
    return [*plan.engine.methods(plan.served)]


def window_of(setup: Setup, text: str) -> Window:
    """The window of the Cell that is meant: a label, a class, or the first. Raises UsageError."""
    windows = setup.windows[Phase.SEARCH]
    if not text:
        return windows[0]
    for window in windows:
        if text in (window.cell.label, window.cell.workload_class):
            return window
    raise UsageError(f"--cell {text}: no such Cell{nearest(text, [w.cell.label for w in windows])}")


def _profiled(
    setup: Setup,
    arms: Mapping[str, Point],
    window: Window,
    look: Look,
    observer: Observer,
    stopped: Callable[[], bool],
) -> tuple[list[Profile], MeasurementInvalid | None]:
    """The Profiles, each in the run folder as soon as it is there, and the last failure."""
    found: list[Profile] = []
    failure: MeasurementInvalid | None = None
    for name, point in arms.items():
        if stopped():
            break
        observer.note(f"profiling {name}: {point.label} at {window.cell.label}")
        try:
            found.append(profile_arm(setup, name, point, window, look))
            setup.folder.add_profile(found[-1])
        except MeasurementInvalid as error:
            failure = error
            note = f"No profile of {name} ({point.label}): {error}"
            setup.folder.add_note(note)
            observer.note(note)
    return found, failure
