"""Does the change help? A fresh server with it against one without, in paired Blocks."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.acceptance import over_windows
from analysis.wiring.conclusion import ALIKE
from results.errors import MeasurementInvalid, UsageError
from results.records import AcceptanceState, Block, Point, VerdictKind
from results.store import RunFolder
from results.wiring import Fix
from sweeps.compare import run_comparison
from sweeps.doctor.mend import mended
from sweeps.doctor.patient import Patient, needs_drafter, plan_of_point
from sweeps.observer import Observer
from sweeps.outcome import VERDICT_CODES
from sweeps.sides import Comparison, Side
from sweeps.sweep import Sweep

BLOCKS = 2
TOLERANT = {"foreign_cores": 1000.0, "client_share": 1.0, "min_window_s": 0.0}  # for acceptance alone


@dataclass(frozen=True, slots=True)
class Accepted:
    """What one side accepted, over all its windows."""

    length: float | None  # tokens a round, the target's own included
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Verified:
    as_it_is: Accepted
    changed: Accepted
    folder: RunFolder | None  # of the comparison of speed; None if there is none
    not_compared: str = ""  # why

    @property
    def restores(self) -> bool:
        """Whether more is accepted with the change."""
        before, after = self.as_it_is.length, self.changed.length
        return after is not None and after > (1 + ALIKE) * (before or 1.0)


def compared_in(folder: RunFolder) -> RunFolder:
    """The run folder of the comparison, in that of the examination."""
    return RunFolder(folder.path / "doctor" / "verify")


def verify(
    patient: Patient, fix: Fix, folder: RunFolder, observer: Observer, stopped: Callable[[], bool]
) -> Verified:
    """A comparison of the server as it is (A) with the mended one (B), in a folder of its own.

    A server that fails or accepts nothing gives no Block: then the mended one is measured alone. The mended
    drafter stays in `folder`, for use. Raises UsageError if the change cannot be made here.
    """
    if patient.plan is None:
        raise UsageError("--verify-fix needs a sweep file that starts the server")
    as_is, changed = _sides(patient, fix, folder.path / "doctor")
    own, alone = compared_in(folder), RunFolder(folder.path / "doctor" / "changed")
    for earlier in (own, alone):
        shutil.rmtree(earlier.path, ignore_errors=True)
    try:
        run_comparison(Comparison("verify", as_is, changed), own, observer, stopped)
    except MeasurementInvalid as error:
        before, after = (_accepted(own.blocks(), name) for name in "AB")
        if after.length is None and not stopped():
            after = _alone(changed, alone, observer, stopped)
        return Verified(before, after, None, str(error))
    blocks = own.blocks()
    return Verified(_accepted(blocks, "A"), _accepted(blocks, "B"), own)


def _alone(side: Side, own: RunFolder, observer: Observer, stopped: Callable[[], bool]) -> Accepted:
    patience = side.plan.sweep.patience.model_copy(update=TOLERANT)
    # Nobody is there to take turns with.
    sweep = side.plan.sweep.model_copy(update={"patience": patience, "pairing": "adjacent"})
    alone, ended = replace(side, name="A", plan=replace(side.plan, sweep=sweep)), ""
    try:
        run_comparison(Comparison("verify", alone, None), own, observer, stopped)
    except MeasurementInvalid as error:
        ended = str(error)
    found = _accepted(own.blocks(), side.point.name)
    return found if found.failure or found.length is not None else replace(found, failure=ended)


def exit_code(verified: Verified) -> int:
    """0 if more is accepted, 4 if not, 5 if the change could not be measured."""
    if verified.changed.length is None:
        return VERDICT_CODES[VerdictKind.INVALID]
    return 0 if verified.restores else VERDICT_CODES[VerdictKind.UNDECIDED]


def lines(verified: Verified) -> Iterator[str]:
    """What each side accepted, and what that says of the change."""
    if verified.not_compared:
        yield f"Speed was not compared: {verified.not_compared}"
    yield f"as it is: {_words(verified.as_it_is)}"
    yield f"changed: {_words(verified.changed)}"
    if verified.restores:
        yield "The change raises what is accepted."
    elif verified.changed.length is None:
        yield "What the change does could not be measured."
    else:
        yield "The change does not raise what is accepted."


def _words(accepted: Accepted) -> str:
    if accepted.length is None:
        return accepted.failure or "not measured"
    failure = f"; {accepted.failure}" if accepted.failure else ""
    return f"{accepted.length:.2f} tokens a round{failure}"


def _accepted(blocks: list[Block], name: str) -> Accepted:
    arms = [arm for block in blocks for arm in block.arms if arm.point.name == name]
    windows = [window for arm in arms for window in arm.measurements]
    failures = [f"{arm.failure.reason}: {arm.failure.evidence}" for arm in arms if arm.failure]
    length = over_windows(windows).length
    if windows and all(w.acceptance.state is AcceptanceState.NOT_SPECULATING for w in windows):
        length = 1.0  # the target's own
    return Accepted(length, failures[0] if failures else "")


def _sides(patient: Patient, fix: Fix, into: Path) -> tuple[Side, Side]:
    assert patient.plan is not None
    drafting, sweep = needs_drafter(patient), patient.plan.sweep
    draft = sweep.draft
    if fix.config or fix.tensors:
        draft = str(mended(drafting.head.folder, drafting.target.folder, fix, into / "mended").absolute())
    confirm = sweep.confirm.model_copy(update={"looks": [BLOCKS], "finalists": 1})
    patience = sweep.patience.model_copy(update={"reruns": 0})  # a drafter that is broken stays so
    as_is = sweep.model_copy(update={"shared": {}, "confirm": confirm, "patience": patience})
    args = {k: v for k, v in {**sweep.args, **fix.args}.items() if v is not None}
    changed = as_is.model_copy(update={"draft": draft, "args": args})
    point = replace(patient.point, method=fix.method or patient.point.method)
    return _side("A", "as it is", as_is, patient.point), _side("B", "changed", changed, point)


def _side(name: str, given: str, sweep: Sweep, point: Point) -> Side:
    plan = plan_of_point(sweep, point)
    (chosen,) = plan.space.points.values()
    return Side(name, given, plan, replace(chosen, name=name))
