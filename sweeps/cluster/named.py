"""Which cluster a sweep file means."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from results.store import RunFolder
from sweeps.lanes import Source
from sweeps.observer import Observer
from sweeps.prepare import Plan


class Cluster(Source, Protocol):
    """A Source that knows how many Lanes it has."""

    @property
    def lanes(self) -> int:
        """So many at once at most. Raises UsageError if there can be none."""


Opened = Callable[[Plan, RunFolder, Observer], AbstractContextManager[Cluster]]


def cluster_named(launcher: str) -> Opened:
    """How the cluster of a launcher is used by a run."""
    if launcher == "ray":
        from sweeps.cluster.ray_lanes import ray_cluster

        return ray_cluster
    from sweeps.cluster.slurm_lanes import slurm_cluster

    return slurm_cluster
