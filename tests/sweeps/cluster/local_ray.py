"""A real Ray cluster of several nodes on this machine, each with one slot for a server."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
