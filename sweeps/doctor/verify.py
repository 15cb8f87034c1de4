"""Does the change help? A fresh server with it against one without, in paired Blocks."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from results.errors import UsageError
from results.records import Point
from results.store import RunFolder
from results.wiring import Fix
from sweeps.compare import run_comparison
from sweeps.doctor.mend import mended
from sweeps.doctor.patient import Patient, needs_drafter, plan_of_point
from sweeps.observer import Observer
from sweeps.sides import Comparison, Side
from sweeps.sweep import Sweep

BLOCKS = 2


def verify(
    patient: Patient, fix: Fix, folder: RunFolder, observer: Observer, stopped: Callable[[], bool]
) -> RunFolder:
    """A comparison of the server as it is (A) with the mended one (B), finished, in a folder of its own.

    The mended drafter stays in `folder`, for use. Raises UsageError if the change cannot be made here.
    """
    if patient.plan is None:
        raise UsageError("--verify-fix needs a sweep file that starts the server")
    compared = _compared(patient, fix, folder.path / "doctor")
    own = RunFolder(folder.path / "doctor" / "verify")
    shutil.rmtree(own.path, ignore_errors=True)
    run_comparison(compared, own, observer, stopped)
    return own


def acceptance_lines(folder: RunFolder) -> Iterator[str]:
    """What each side accepted, also where no Block could be used: a drafter that is broken makes none."""
    arms = [arm for block in folder.blocks() for arm in block.arms]
    for name, what in {"A": "as it is", "B": "changed"}.items():
        own = [arm for arm in arms if arm.point.name == name]
        found = [m.acceptance for arm in own for m in arm.measurements if m.acceptance.length is not None]
        failed = next(
            (f"{arm.failure.reason}: {arm.failure.evidence}" for arm in own if arm.failure), "not measured"
        )
        lengths = ", ".join(f"{acceptance.length:.3f}" for acceptance in found)
        yield f"{what}: {f'{lengths} tokens a round' if lengths else failed}"


def _compared(patient: Patient, fix: Fix, into: Path) -> Comparison:
    assert patient.plan is not None
    drafting, sweep = needs_drafter(patient), patient.plan.sweep
    draft = sweep.draft
    if fix.config or fix.tensors:
        draft = str(mended(drafting.head.folder, drafting.target.folder, fix, into / "mended").absolute())
    confirm = sweep.confirm.model_copy(update={"looks": [BLOCKS], "finalists": 1})
    as_is = sweep.model_copy(update={"shared": {}, "confirm": confirm})
    args = {k: v for k, v in {**sweep.args, **fix.args}.items() if v is not None}
    changed = as_is.model_copy(update={"draft": draft, "args": args})
    point = replace(patient.point, method=fix.method or patient.point.method)
    return Comparison(
        "verify", _side("A", "as it is", as_is, patient.point), _side("B", "changed", changed, point)
    )


def _side(name: str, given: str, sweep: Sweep, point: Point) -> Side:
    plan = plan_of_point(sweep, point)
    (chosen,) = plan.space.points.values()
    return Side(name, given, plan, replace(chosen, name=name))
