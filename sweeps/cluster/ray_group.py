"""The further nodes of servers over several nodes, as actors of Ray that rank 0's actor owns.

Ray ends an actor with its owner and with its node, and the processes below it end with the actor's own
(see launchers.guard): whatever part of a group is lost, nothing of it stays on a GPU.
"""

import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from launchers.group import Ended, Group, LaunchedPart
from launchers.launcher import Launch
from launchers.port import free_port
from results.errors import LaunchFailed, UsageError
from results.records import Failure
from sweeps.blocks import LaneLost
from sweeps.cluster.worker import Order, Worker

STRATEGY = "STRICT_SPREAD"
# Else Ray kills the children of an actor that it ends: the guards, before they can end their servers.
KEEP_GUARDS = {"RAY_kill_child_processes_on_worker_exit": "0"}


class NodeRefused(UsageError):
    """A node of the group cannot measure for this run."""

    def __init__(self, node_id: str, why: str) -> None:
        super().__init__(why)
        self.node_id = node_id  # Ray's


def reserved(needs: Mapping[str, float], nodes: int, labels: Mapping[str, str]) -> Any:
    """A placement group: what a server takes of each of so many different nodes. Not yet granted.

    Rank 0 belongs into bundle 0. `ray.util.remove_placement_group` ends all actors in it.
    """
    from ray.util import placement_group

    selector = {"bundle_label_selector": [dict(labels)] * nodes} if labels else {}
    return placement_group([dict(needs)] * nodes, strategy=STRATEGY, **selector)


def in_bundle(group: Any, bundle: int) -> Mapping[str, Any]:
    """Options of an actor that has all of one bundle."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    needs = dict(group.bundle_specs[bundle])
    return {
        "num_cpus": needs.pop("CPU", 0),
        "num_gpus": needs.pop("GPU", 0),
        "resources": needs or None,
        "runtime_env": {"env_vars": KEEP_GUARDS},
        "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle),
    }


def ray_group(order: Order, placement: Any) -> Group:
    """The nodes of a granted placement group, asked for by the actor in its bundle 0, which owns the others.

    Raises NodeRefused if one of them cannot measure for this run, LaneLost if one went away.
    """
    ray = _ray()
    kind = ray.remote(MemberWorker)
    bundles = range(1, len(placement.bundle_specs))
    members = [RayMember(kind.options(**in_bundle(placement, b)).remote(order)) for b in bundles]
    return Group(ray.util.get_node_ip_address(), members)


def _ray() -> Any:
    import ray

    return ray


class MemberWorker(Worker):
    """What runs on a further node: processes of ranks above 0, by number."""

    def __init__(self, order: Order) -> None:
        accelerators = _ray().get_runtime_context().get_accelerator_ids()
        super().__init__(order, tuple(accelerators.get("GPU", ())))
        self._parts: list[LaunchedPart] = []

    def look(self) -> tuple[str, str, str]:
        """(Ray's id of the node, its name for people, why nothing can be measured there or "")."""
        found = self.fingerprint()
        why = found if isinstance(found, str) else ""
        return _ray().get_runtime_context().get_node_id(), platform.node(), why

    def free_port(self) -> int:
        return free_port()

    def start(self, launch: Launch) -> int | Failure | str:
        """Number of the process; or how its launch failed, or what the user must do: errors travel badly."""
        here = replace(launch, log_path=self._setup.folder.logs / launch.log_path.name)
        try:
            self._parts.append(LaunchedPart(self._setup.launcher, here))
        except LaunchFailed as error:
            return Failure(error.reason, error.evidence)
        except UsageError as error:
            return str(error)
        return len(self._parts) - 1

    def ended(self, number: int) -> Ended | None:
        return self._parts[number].ended()

    def log(self, number: int) -> str:
        return self._parts[number].log()

    def end(self, number: int) -> None:
        self._parts[number].end()


class RayMember:
    """A Member on a node of a Ray cluster."""

    def __init__(self, actor: Any) -> None:
        """Waits for its actor. Raises as `ray_group`."""
        self._actor = actor
        self.node = "another node"
        node_id, self.node, why = self.ask("look")
        if why:
            raise NodeRefused(node_id, f"{self.node}: {why}")

    def free_port(self) -> int:
        return int(self.ask("free_port"))

    def start(self, launch: Launch) -> "RayPart":
        """Raises LaunchFailed, UsageError, LaneLost."""
        told = self.ask("start", launch)
        if isinstance(told, Failure):
            raise LaunchFailed(told.reason, told.evidence)
        if isinstance(told, str):
            raise UsageError(f"{self.node}: {told}")
        return RayPart(self, told)

    def ask(self, what: str, *arguments: object) -> Any:
        """Raises LaneLost if the actor is gone: the node, and with it the group."""
        ray = _ray()
        try:
            return ray.get(getattr(self._actor, what).remote(*arguments))
        except ray.exceptions.RayActorError as error:
            raise LaneLost(f"{self.node}, which had a rank of its servers, is gone") from error


class RayPart:
    """A Part on a node of a Ray cluster."""

    def __init__(self, member: RayMember, number: int) -> None:
        self._member, self._number = member, number

    def ended(self) -> Ended | None:
        """Raises LaneLost."""
        found: Ended | None = self._member.ask("ended", self._number)
        return found

    def log(self) -> str:
        """ "" of a node that is gone."""
        with suppress(LaneLost):
            return str(self._member.ask("log", self._number))
        return ""

    def end(self) -> None:
        with suppress(LaneLost):  # it ended with its actor
            self._member.ask("end", self._number)
