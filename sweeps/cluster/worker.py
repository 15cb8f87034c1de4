"""What runs on a node: servers, load and telemetry of one Block at a time, in a folder of its own."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from launchers.engines import engine_named, launcher_for
from launchers.group import Group
from launchers.nvml import installed_gpus
from results.environment import Environment, fingerprint
from results.errors import UsageError
from results.records import Phase, Point
from results.store import RunFolder
from sweeps.block import LocalLane
from sweeps.cluster.delivery import Delivery, packed
from sweeps.prepare import Plan, places_of
from sweeps.setup import Setup
from sweeps.sweep import Sweep
from sweeps.windows import Window
from sweeps.workload import Prompt


@dataclass(frozen=True)
class Order:
    """All that a node must know to measure Blocks of a run; what it serves lies there by the same names."""

    sweep: Sweep
    windows: Mapping[Phase, Sequence[Window]]
    warm_up: Sequence[Prompt]
    engine: str  # its version on the driver's machine
    served: Mapping[str, str]  # hashes of model and draft, likewise


def order_of(plan: Plan) -> Order:
    """What nodes are told of a plan."""
    return Order(
        plan.sweep, plan.windows, plan.warm_up, plan.engine.version(), plan.engine.identity(plan.served)
    )


class Worker:
    """Measures Blocks on the machine that it is made on; its servers end with its process."""

    def __init__(self, order: Order, gpus: Sequence[str] = (), group: Group | None = None) -> None:
        """`gpus`: what a container is given, by index or UUID; a process has them in its environment.

        `group`: the nodes that each server runs over, this one as rank 0's.
        """
        self._order, self._gpus, self._group = order, gpus, group
        self._scratch = tempfile.TemporaryDirectory(prefix="tuner-")  # removed with this object

    def fingerprint(self) -> Environment | str:
        """Of this machine; or why it cannot measure for this run."""
        try:
            engine = refuse_another(self._setup, self._order)
        except UsageError as error:
            return str(error)
        return fingerprint(version("tuner"), engine, gpus=installed_gpus())

    def measure(
        self, number: int, points: Sequence[Point], phase: Phase, baseline: Point, *, alone: bool
    ) -> Delivery:
        """One Block with all that belongs to it."""
        block = self._lane.measure(number, points, phase, baseline, alone=alone)
        return packed(block, self._setup.folder)

    @cached_property
    def _lane(self) -> LocalLane:
        return LocalLane(self._setup, lambda phase, point: None)

    @cached_property
    def _setup(self) -> Setup:
        folder = RunFolder(Path(self._scratch.name))
        folder.create()
        setup = setup_here(self._order, folder, self._gpus)
        return setup if self._group is None else setup.over(self._group)


def setup_here(order: Order, folder: RunFolder, gpus: Sequence[str] = ()) -> Setup:
    """What the arms share, with the engine and the model of this machine. Raises UsageError."""
    sweep = order.sweep
    if sweep.container is not None and gpus:  # what the cluster gave, in place of all
        container = sweep.container.model_copy(update={"gpus": [*gpus]})
        sweep = sweep.model_copy(update={"container": container})
    places = places_of(sweep)
    engine = engine_named(sweep.engine, sweep.server, places)
    return Setup(
        sweep=sweep,
        engine=engine,
        launcher=launcher_for(engine, folder.path, places),
        places=places,
        served=engine.resolve(sweep.model, sweep.draft, sweep.args, sweep.env),
        folder=folder,
        windows=order.windows,
        warm_up=order.warm_up,
    )


def refuse_another(setup: Setup, order: Order) -> str:
    """Version of the engine; raises UsageError if something else would be measured than was planned."""
    engine = setup.engine.version()
    if engine != order.engine:
        raise UsageError(f"it has {engine}, the machine of the driver {order.engine}: install the same")
    found = setup.engine.identity(setup.served)
    changed = [name for name, content in order.served.items() if found.get(name) != content]
    if changed:
        raise UsageError(f"its {' and '.join(changed)} is another one than the driver's: copy the same there")
    return engine
