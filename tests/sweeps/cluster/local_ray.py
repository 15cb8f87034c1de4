"""A real Ray cluster of several nodes on this machine, each with one slot for a server."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from results.store import RunFolder
from sweeps.cluster.board import NODES_FILE
from tests.waiting import wait_for

SLOT = "slot"  # stands for the GPUs of one server


@contextmanager
def ray_nodes(count: int) -> Iterator[tuple[Any, list[Any]]]:
    """The cluster and its nodes; the head has no slot."""
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=1, resources={SLOT: 1}) for _ in range(count)]
        yield cluster, nodes
    finally:
        cluster.shutdown()


def on(cluster: Any, **section: object) -> dict[str, Any]:
    """What a sweep file says to run there."""
    return {"launcher": "ray", "ray": {"address": cluster.address, "resources": {SLOT: 1}, **section}}


def seats(folder: RunFolder) -> list[dict[str, Any]]:
    return list(folder.read_json(NODES_FILE).get("seats", ()))


def kill_one_at_work(cluster: Any, nodes: list[Any], folder: RunFolder) -> str:
    """Kill a node that has just begun a Block, as a power cut would; returns its name.

    A Block takes seconds: that it is young leaves time for the kill. On a busy machine the nodes come one
    after another, so that no moment needs to exist at which every one of them measures.
    """
    begun: list[str] = []

    def has_begun() -> bool:
        now_at = time.time()
        begun[:] = [
            s["node"] for s in seats(folder) if s["block"] is not None and now_at - s["block_since_at"] < 1
        ]
        return bool(begun)

    wait_for(has_begun, 120)
    name: str = begun[0]
    cluster.remove_node(
        next(n for n in nodes if n.node_id.startswith(name.split("/")[1])), allow_graceful=False
    )
    return name
