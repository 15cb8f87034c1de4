"""What a server over several nodes asks of a sweep."""

from collections.abc import Iterable

from analysis.block import ENERGY
from analysis.limits import OF_THE_HARDWARE
from launchers.engines.engine import Engine, Served
from results.errors import UsageError
from results.records import BASELINE, Point
from sweeps.sweep import Sweep


def nodes_of(sweep: Sweep) -> int:
    """How many nodes one server of a sweep runs over."""
    return sweep.ray.nodes if sweep.ray is not None else 1


def check_nodes(sweep: Sweep, engine: Engine, served: Served, points: Iterable[Point]) -> None:
    """Raises UsageError if a server cannot run over the nodes that the sweep file names."""
    nodes = nodes_of(sweep)
    if nodes == 1:
        return
    if sweep.container is not None and sweep.container.network != "host":
        raise UsageError(
            f"container.network: {sweep.container.network} hides the ranks of a server over {nodes} nodes"
            " from each other: leave it out, which is host"
        )
    for name in _of_hardware(sweep):
        raise UsageError(f"{name}: of a server over {nodes} nodes only the hardware of rank 0 is looked at")
    for point in (BASELINE, *points):
        engine.check_nodes(point, served, nodes)


def _of_hardware(sweep: Sweep) -> list[str]:
    objective = [f"objective: {ENERGY}"] if sweep.objective == ENERGY else []
    return [*objective, *(f"limits.{name}" for name in sweep.limits if name in OF_THE_HARDWARE)]
