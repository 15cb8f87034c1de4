"""Lanes of a Ray cluster: an actor on a node holds the resources of one server and measures its Blocks.

Ray ends an actor with its driver, with its node and with the cluster, and the servers below it end with
the actor's process (see launchers.guard): whatever is lost, nothing stays on a GPU.
"""

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from results.environment import Environment
from results.errors import MeasurementInvalid, UsageError
from results.reasons import Reason
from results.records import Block, Phase, Point
from results.store import RunFolder
from sweeps.blocks import LaneLost
from sweeps.cluster.board import Board
from sweeps.cluster.delivery import unpacked
from sweeps.cluster.nodes import nodes_of
from sweeps.cluster.ray_group import NodeRefused, in_bundle, ray_group, reserved
from sweeps.cluster.ray_room import gpus_of, groups, lanes_on, needs_of, too_small
from sweeps.cluster.worker import Order, Worker, order_of
from sweeps.observer import Observer
from sweeps.prepare import Plan

NODE_ID = "ray.io/node-id"  # the label that Ray gives every node
MOST_WHY = 120  # characters of Ray's reason for a loss
POLL_S = 1.0
HEAD_TIMEOUT_S = 5.0  # for a connection to it; Ray itself aborts a driver after a minute without its head


@contextmanager
def ray_cluster(plan: Plan, folder: RunFolder, observer: Observer) -> Iterator["Cluster"]:
    """The cluster that a sweep file names, while a run uses it. Raises UsageError if it is not there."""
    assert plan.sweep.ray is not None
    ray = _connected(plan.sweep.ray.address)
    try:
        yield Cluster(ray, plan, folder, observer)
    finally:
        ray.shutdown()


class Cluster:
    """The Source of Lanes on a Ray cluster."""

    def __init__(self, ray: Any, plan: Plan, folder: RunFolder, observer: Observer) -> None:
        assert plan.sweep.ray is not None
        self.ray, self.folder, self.observer = ray, folder, observer
        self.board = Board(folder)
        self._order, self._section = order_of(plan), plan.sweep.ray
        self._needs = needs_of(self._section, gpus_of(plan))
        host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
        self._head = host.strip("[]"), int(port)
        self._refused: dict[str, str] = {}  # why a node measures nothing, by Ray's id of it
        self.is_lost = False  # the head: Ray's calls would wait for it, and then abort this process

    @property
    def lanes(self) -> int:
        """How many fit into the cluster. Raises UsageError if none does, unless the file names a number."""
        if self._section.servers is not None:
            return self._section.servers
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        count = groups([lanes_on(n, self._needs, self._section.labels) for n in nodes], self._section.nodes)
        if not count:
            raise UsageError(too_small(nodes, self._needs, self._section))
        return count

    def open(self, wanted: Callable[[], bool]) -> "RayLane | None":
        while wanted():
            hold = self._hold()
            lane = self._lane_of(hold, wanted)
            if lane is not None:
                return lane
            self.release(hold)
        return None

    def release(self, hold: "Hold") -> None:
        """Give back what a server had. With a lost head nothing can be asked: it ends by itself."""
        if not self.is_lost:
            hold.release()

    def check_head(self) -> None:
        """Raises MeasurementInvalid if the head does not answer: nothing can be measured any more."""
        for _ in range(2):
            try:
                socket.create_connection(self._head, HEAD_TIMEOUT_S).close()
                return
            except OSError as error:
                why = error.strerror or str(error)
                time.sleep(POLL_S)
        self.is_lost = True
        raise MeasurementInvalid(
            Reason.CLUSTER_LOST,
            f"the head of the Ray cluster at {self._head[0]}:{self._head[1]} is gone ({why}); what was"
            " recorded is kept: start the cluster again, then the same command",
        )

    def _hold(self) -> "Hold":
        """One more server's share, on whatever nodes have room and were not refused."""
        labels = dict(self._section.labels)
        if self._refused:
            labels[NODE_ID] = f"!in({','.join(self._refused)})"
        placement = reserved(self._needs, self._section.nodes, labels)
        actor = self.ray.remote(RayWorker).options(**in_bundle(placement, 0)).remote(self._order, placement)
        return Hold(self.ray, placement, actor)

    def _lane_of(self, hold: "Hold", wanted: Callable[[], bool]) -> "RayLane | None":
        """The Lane as soon as there are nodes for it; None if they are no good, or not wanted any more."""
        asked = hold.actor.look.remote()
        try:
            while not self.ray.wait([asked], timeout=POLL_S)[0]:
                self.check_head()
                if not wanted():
                    return None
            seat, host = self.ray.get(asked)
        except (self.ray.exceptions.RayActorError, LaneLost) as error:
            self.check_head()
            raise_if_not_installed(error)
            return None  # a node is lost: the next one is another
        name = self._name(seat.node_id)
        if isinstance(host, Environment):
            return RayLane(self, hold, name, seat.gpus, host)
        self._refuse(seat.node_id, f"{name}: {host}")
        return None

    def _name(self, node_id: str) -> str:
        """The host name of a node, with what tells it apart from another one there."""
        names = {node["NodeID"]: node["NodeManagerHostname"] for node in self.ray.nodes() if node["Alive"]}
        name = names.get(node_id, node_id)
        return name if [*names.values()].count(name) < 2 else f"{name}/{node_id[:8]}"

    def _refuse(self, node_id: str, why: str) -> None:
        if node_id not in self._refused:
            self._refused[node_id] = why
            self.observer.note(f"not measured on {why}")
        nodes = [n for n in self.ray.nodes() if n["Alive"] and n["NodeID"] not in self._refused]
        if not groups([lanes_on(n, self._needs, self._section.labels) for n in nodes], self._section.nodes):
            every = "\n".join(self._refused.values())
            raise UsageError(f"no node of the Ray cluster can measure this sweep:\n{every}")


@dataclass(frozen=True, slots=True)
class Hold:
    """What Ray keeps for one server, until it is given back."""

    ray: Any
    placement: Any
    actor: Any  # a RayWorker, on the node of rank 0

    def release(self) -> None:
        """End the actor, its servers and what else is below it."""
        self.ray.kill(self.actor)
        self.ray.util.remove_placement_group(self.placement)


@dataclass(frozen=True, slots=True)
class Seat:
    """Where Ray put an actor."""

    node_id: str
    gpus: tuple[str, ...]


class RayWorker(Worker):
    """A Worker that Ray puts on a node."""

    def __init__(self, order: Order, placement: Any) -> None:
        context = _imported().get_runtime_context()
        self._seat = Seat(context.get_node_id(), tuple(context.get_accelerator_ids().get("GPU", ())))
        self._placement = placement
        super().__init__(order, self._seat.gpus)

    def look(self) -> tuple[Seat, Environment | str]:
        """Where it is; what is there, or which node is no good and why. Raises LaneLost."""
        if nodes_of(self._order.sweep) > 1:
            try:
                self._group = ray_group(self._order, self._placement)
            except NodeRefused as refused:
                return Seat(refused.node_id, ()), str(refused)
        return self._seat, self.fingerprint()


class RayLane:
    """One actor on one node, and the further nodes of its servers if they have any."""

    def __init__(
        self, cluster: Cluster, hold: Hold, node: str, gpus: tuple[str, ...], host: Environment
    ) -> None:
        self.name, self._gpus = node, gpus
        self._cluster, self._hold = cluster, hold
        self._seat = cluster.board.comes(node, gpus, asdict(host))
        self._why = ""  # it was lost

    def measure(
        self, number: int, points: Sequence[Point], phase: Phase, baseline: Point, *, alone: bool
    ) -> Block:
        cluster = self._cluster
        cluster.board.begins(self._seat, number, phase, [*points] if alone else [baseline, *points])
        for point in points or (baseline,):
            cluster.observer.arm(phase, point)
        asked = self._hold.actor.measure.remote(number, points, phase, baseline, alone=alone)
        try:
            while not cluster.ray.wait([asked], timeout=POLL_S)[0]:
                cluster.check_head()
            delivery = cluster.ray.get(asked)
        except cluster.ray.exceptions.RayTaskError as error:
            raise error.cause from None  # what was raised there, without Ray's own traceback in its message
        except cluster.ray.exceptions.RayActorError as error:
            cluster.check_head()
            self._why = why_lost(str(error))
            raise LaneLost(self._why) from error
        cluster.board.ends(self._seat)
        return replace(unpacked(delivery, cluster.folder), node=self.name, gpus=self._gpus)

    def close(self) -> None:
        self._cluster.release(self._hold)
        self._cluster.board.goes(self._seat, self._why)


def raise_if_not_installed(error: Exception) -> None:
    """An actor that cannot even be made will not be on another node either."""
    text = str(error)
    if "ModuleNotFoundError" in text or "ImportError" in text:
        line = next(
            line for line in text.splitlines() if "ModuleNotFoundError" in line or "ImportError" in line
        )
        raise UsageError(
            f"tuner cannot be imported on a node of the Ray cluster ({line.strip()}): pip install"
            " '.[ray]' there, from the same state of its folder"
        ) from None


def why_lost(message: str) -> str:
    """What Ray says of an actor that is gone, without its ids: the reason comes last, then advice (2.60)."""
    last = [line.strip() for line in message.splitlines() if line.strip()][-1]
    return re.sub(r"^[Tt]he actor( [0-9a-f]{16,})?", "its actor", last.split(". ")[0]).rstrip(".")[:MOST_WHY]


def first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _imported() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing of a user's cluster is told to others
    try:
        import ray
    except ImportError:
        raise UsageError(
            "launcher: ray needs the package ray: pip install -e '.[ray]' in the folder of tuner"
        ) from None
    return ray


def _connected(address: str) -> Any:
    """Ray, connected as a driver. Raises UsageError."""
    ray = _imported()
    if address != "auto":
        _check_reachable(address)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False, namespace="tuner")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _unreachable(address, first_line(error)) from error
    signal.signal(signal.SIGTERM, handler)  # Ray has put its own there
    _keep_quiet()
    return ray


def _keep_quiet() -> None:
    """Ray prints what its daemons say to stdout, whatever it is told: the state of a lost node, for pages.

    Ray 2.60, ray/_private/worker.py, listen_error_messages. Where that is another one, it stays as it is.
    """
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda data, ignore_prefix: None


def _check_reachable(address: str) -> None:
    """Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if address.startswith("ray://"):
        raise UsageError(
            f"ray.address {address}: Ray Client (ray://) is not supported: start tuner on a host of the"
            " cluster, with auto or HOST:PORT of its head"
        )
    if not host or not port.isdigit():
        raise UsageError(f"ray.address {address}: write auto, or HOST:PORT of the head of a cluster")
    try:
        socket.create_connection((host.strip("[]"), int(port)), HEAD_TIMEOUT_S).close()
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from error


def _unreachable(address: str, why: str) -> UsageError:
    return UsageError(
        f"ray.address {address}: no Ray cluster answers there ({why}): start one with `ray start --head`,"
        " or name its head as HOST:PORT"
    )
