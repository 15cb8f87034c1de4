"""Step 2: what stands on this machine, and what may be in the way. Nothing is stopped or removed."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis.wiring.state import checked, follows, seen
from launchers.gpu_memory import driver_state
from launchers.leftovers import reap
from launchers.orphans import (
    engine_processes,
    is_first_namespace,
    kept_by_a_tool,
    listeners,
    process_table,
    with_details,
)
from launchers.shared_memory import shared_segments
from results.machine_state import MachineState, OwnServer, Role
from results.wiring import Section, Step


def section(runs: Sequence[Path] = ()) -> Section:
    """Engine processes, ports, shared memory and GPUs; `runs` are folders whose servers this tool started."""
    state = machine_state(runs)
    return Section(Step.STATE, tuple(checked(state)), tuple(seen(state)), tuple(follows(state)))


def machine_state(runs: Sequence[Path] = ()) -> MachineState:
    """All facts of one moment."""
    table, listening = process_table(), listeners()
    processes = engine_processes(table, listening)
    servers = [p.pid for p in processes if p.role is Role.SERVER]
    return MachineState(
        time.time(),
        with_details(processes),
        listening,
        shared_segments(),
        driver_state(),
        tuple(_left_behind(runs)),
        is_first_namespace(),
        tuple(pid for pid in servers if kept_by_a_tool(pid, table)),
    )


def _left_behind(runs: Sequence[Path]) -> Iterator[OwnServer]:
    for run in runs:
        for leftover in reap(run, end=False):
            yield OwnServer(leftover.pid, str(run))
