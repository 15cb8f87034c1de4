"""Two configurations against each other, without a search: paired Blocks and one verdict."""

import time
from collections.abc import Callable

from results.errors import UsageError
from results.records import Phase
from results.sharing import alone
from results.store import RunFolder
from sweeps.block import LocalLane
from sweeps.blocks import Blocks
from sweeps.confirm import confirm, rules_of
from sweeps.duet import with_sets_checked
from sweeps.lanes import OneLane
from sweeps.now import Stage, write_stage
from sweeps.observer import Observer
from sweeps.opened import opened
from sweeps.outcome import SIDES_FILE
from sweeps.run import Clock, end
from sweeps.session import sessions_of, spent_s
from sweeps.sides import Comparison


def run_comparison(
    compared: Comparison, folder: RunFolder, observer: Observer, stopped: Callable[[], bool]
) -> None:
    """Run what is left of a comparison. Everything it finds out is in the folder.

    Raises as `sweeps.run.run_sweep` does.
    """
    if (folder.trials() or folder.blocks()) and not folder.read_json(SIDES_FILE):
        raise UsageError(f"{folder.path} holds the records of a sweep: name another folder with --run")
    with opened(folder, compared, observer):
        folder.write_json(SIDES_FILE, compared.record())
        for note in (*compared.notes(), *compared.notes_of_sides()):
            observer.note(note)
        clock = _measure(compared, folder, observer, stopped)
        folder.write_json(SIDES_FILE, compared.record())  # what could not be checked shows on the way
        if not stopped():
            end(folder, 0, clock)


def _measure(
    compared: Comparison, folder: RunFolder, observer: Observer, stopped: Callable[[], bool]
) -> Clock:
    past = folder.blocks()
    clock = Clock(compared.sweep, past, spent_s(sessions_of(folder), time.time()))
    setups = {side.point.key: side.plan.setup(folder) for side in compared.sides}

    def go_on() -> bool:
        return not stopped() and clock.may_confirm()

    sharing = alone(past)
    here = LocalLane(setups[compared.a.point.key], observer.arm, setups)
    lane = with_sets_checked(here, compared.sweep, folder, sharing, observer.note, go_on)
    run_block = Blocks(lane, folder, compared.sweep.patience, past, sharing, again=go_on)
    looks = compared.sweep.confirm.looks
    total = looks[0] if compared.b is None else looks[-1]
    usable = sum(b.invalid is None for b in past)
    write_stage(folder, Stage.CONFIRM, usable, total)
    observer.begin(Phase.CONFIRM, usable, total)
    if compared.b is not None:
        rules = rules_of(compared.sweep)
        earlier = [*past]  # which itself grows
        confirm(
            OneLane(run_block),
            [compared.b.point],
            earlier,
            rules,
            baseline=compared.a.point,
            sharing=sharing,
            go_on=go_on,
            on_block=observer.look,
        )
        return clock
    while usable < total and go_on():
        usable += run_block([], Phase.CONFIRM, compared.a.point).invalid is None
        observer.look(usable, ())
    return clock
