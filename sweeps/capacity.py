"""`tuner capacity`: the highest load that the baseline and the winner of a run bear within the limits."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from analysis.report_input import HighestLoad, ReportInput
from results.errors import MeasurementInvalid, UsageError
from results.reasons import MACHINE_FAULTS
from results.records import Phase, Point
from results.sharing import alone
from results.store import RunFolder
from sweeps.blocks import blocks_here
from sweeps.limits import check_measurable
from sweeps.loads import Question, found_loads, loads_of, note, probes_of
from sweeps.observer import Observer
from sweeps.opened import claim, opened
from sweeps.prepare import Plan


def capacity_points(report: ReportInput) -> list[Point]:
    """The baseline of a run, and its winner if there is one. Raises UsageError if nothing is confirmed."""
    confirmed = [block for block in report.blocks if block.phase is Phase.CONFIRM]
    if not report.finished or not confirmed:
        raise UsageError(f"the run {report.name} is not finished: `tuner sweep` finds the winner first")
    return [confirmed[-1].compared_with, *([report.winner.point] if report.winner else [])]


def run_capacity(
    plan: Plan,
    folder: RunFolder,
    points: Sequence[Point],
    question: Question,
    observer: Observer,
    stopped: Callable[[], bool],
) -> list[HighestLoad]:
    """What each of the `points` bears. Its Blocks are kept in a folder of their own inside the run's.

    Started again, it goes on where it ended. Raises UsageError and MeasurementInvalid.
    """
    check_measurable(plan.sweep.model_copy(update={"limits": dict(question.limits)}))
    asked = question.within(plan.grids[Phase.CONFIRM])
    if asked.high < question.high:
        observer.note(f"the prompts are enough for loads up to {asked.high:.3g}, not for {question.high:g}")
    own = RunFolder(folder.path / f"capacity-{question.kind}")
    with folder.locked():
        claim(folder, plan)
        with opened(own, plan, observer):
            note(own, asked, loads_of(own))
            for point in points:
                _search(plan, own, point, asked, observer, stopped)
    return [found for found in found_loads(folder) if found.kind == question.kind]


def _search(
    plan: Plan,
    own: RunFolder,
    point: Point,
    asked: Question,
    observer: Observer,
    stopped: Callable[[], bool],
) -> None:
    while not stopped():
        load = asked.next_load(probes_of(own, point, asked))
        if load is None:
            return
        pace = asked.pace(load, plan.sweep.seed)
        windows = asked.grid(plan.grids[Phase.CONFIRM], load).windows([pace])
        alone = plan.sweep.model_copy(update={"pairing": "adjacent"})  # there is no other to take turns with
        at_load = replace(plan, sweep=alone, windows={Phase.CONFIRM: windows})
        _measure(at_load, own, point, load, asked, observer, stopped)
        found = [probe for probe in probes_of(own, point, asked) if probe.load == load]
        for probe in found[-1:]:
            observer.note(f"{point.label} at {pace}: {probe.broken or 'within the limits'}")


def _measure(
    plan: Plan,
    own: RunFolder,
    point: Point,
    load: float,
    asked: Question,
    observer: Observer,
    stopped: Callable[[], bool],
) -> None:
    """One Block of one server; how it fails, unless by the machine's fault, is the answer as well."""
    done = own.blocks()
    earlier = len(done)
    run_block = blocks_here(plan.setup(own), done, alone(done), observer.arm, again=lambda: not stopped())
    try:
        invalid = run_block([], Phase.CONFIRM, point).invalid
        if invalid is not None and invalid.reason in MACHINE_FAULTS and not stopped():
            raise MeasurementInvalid(invalid.reason, invalid.evidence)  # after every rerun
    except MeasurementInvalid as error:
        if error.reason in MACHINE_FAULTS:
            raise
    finally:
        fresh = {str(block.number): load for block in done[earlier:]}
        note(own, asked, {**loads_of(own), **fresh})
