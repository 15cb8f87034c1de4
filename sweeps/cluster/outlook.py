"""What a sweep would take of its cluster, asked without measuring anything."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from analysis import words
from results.errors import UsageError
from results.store import RunFolder
from sweeps.cluster.ray_lanes import ray_cluster
from sweeps.cluster.ray_room import gpus_of, needs_of
from sweeps.cluster.sections import Slurm
from sweeps.cluster.slurm_lanes import gpus_of as gpus_of_job
from sweeps.prepare import Plan
from sweeps.progress import PlainProgress


@dataclass(frozen=True, slots=True)
class Outlook:
    """For `--dry-run`."""

    lanes: int | None  # Blocks at once; None = the cluster cannot be asked
    said: str


def outlook(plan: Plan) -> Outlook | None:
    """What one server takes, and how many fit while nobody else is there; None without a cluster."""
    if plan.sweep.slurm is not None:
        return outlook_of_jobs(plan.sweep.slurm, plan)
    section = plan.sweep.ray
    if plan.sweep.launcher != "ray" or section is None:
        return None
    needs = needs_of(section, gpus_of(plan))
    takes = ", ".join(f"{need:g} {name}" for name, need in needs.items() if need) or "nothing"
    labels = "".join(f", {name}: {value}" for name, value in section.labels.items())
    said = f"One server takes {takes} of a node{labels}."
    try:
        lanes = _lanes(plan)
    except UsageError as error:
        return Outlook(None, f"{said} How many fit is not known: {error}")
    if section.servers is not None:
        return Outlook(lanes, f"{said} {words.count(lanes, 'Block')} at once, as ray.servers asks.")
    return Outlook(lanes, f"{said} {lanes} fit into the cluster: {words.count(lanes, 'Block')} at once.")


def outlook_of_jobs(section: Slurm, plan: Plan) -> Outlook:
    """Slurm is not asked: what it starts at once depends on everybody else."""
    takes = section.gres or words.count(gpus_of_job(section, plan), "GPU")
    said = f"One job takes {takes} of a node for {section.time} minutes at most."
    return Outlook(section.servers, f"{said} {words.count(section.servers, 'Block')} at once, at most.")


def _lanes(plan: Plan) -> int:
    silent = PlainProgress(lambda _: None, lambda: None)
    with (
        tempfile.TemporaryDirectory(prefix="tuner-") as scratch,
        ray_cluster(plan, RunFolder(Path(scratch)), silent) as cluster,
    ):
        return cluster.lanes
