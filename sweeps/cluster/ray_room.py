"""What one server takes of a Ray cluster, and how many of them fit."""

from collections.abc import Mapping, Sequence
from typing import Any

from results.records import BASELINE
from sweeps.cluster.sections import Ray
from sweeps.prepare import Plan

Needs = Mapping[str, float]  # resources of one Lane on a node, by Ray's names


def gpus_of(plan: Plan) -> int:
    """GPUs of one Lane on each node: of a server, by the file or one for each rank; of two for duets."""
    assert plan.sweep.ray is not None
    servers = 2 if plan.sweep.pairing == "duet" else 1
    if plan.sweep.ray.gpus is not None:
        return servers * plan.sweep.ray.gpus
    if plan.engine.device(BASELINE) != "cuda":
        return 0
    return servers * plan.engine.ranks(BASELINE, plan.served) // plan.sweep.ray.nodes


def needs_of(section: Ray, gpus: int) -> Needs:
    """What one Lane takes of a node."""
    return {"CPU": section.cpus, **({"GPU": gpus} if gpus else {}), **section.resources}


def lanes_on(node: Mapping[str, Any], needs: Needs, labels: Mapping[str, str]) -> int:
    """How many Lanes a node of `ray.nodes()` holds while nobody else uses it."""
    if any(node["Labels"].get(name) != value for name, value in labels.items()):
        return 0
    shares = [node["Resources"].get(name, 0.0) / need for name, need in needs.items() if need]
    return int(min(shares, default=1))


def groups(room: Sequence[int], nodes: int) -> int:
    """How many servers fit at once that each take room on so many different nodes."""
    most = sum(room) // nodes
    return next((n for n in range(most, 0, -1) if sum(min(own, n) for own in room) >= n * nodes), 0)


def too_small(nodes: Sequence[Mapping[str, Any]], needs: Needs, section: Ray) -> str:
    """Why no Lane fits, and what there is."""
    wanted = ", ".join(f"{need:g} {name}" for name, need in needs.items() if need)
    wanted += f" on each of {section.nodes} nodes" if section.nodes > 1 else ""
    labelled = f" and the labels {dict(section.labels)}" if section.labels else ""
    have = "; ".join(f"{n['NodeManagerHostname']}: {_shown(n['Resources'])}" for n in nodes) or "none"
    return (
        f"ray: a server takes {wanted}{labelled}, and the cluster does not have that ({have}): lower gpus,"
        " cpus or resources, or set ray.servers to wait for nodes"
    )


def _shown(resources: Mapping[str, float]) -> str:
    own = {k: v for k, v in resources.items() if ":" not in k and not k.endswith("memory")}
    return ", ".join(f"{count:g} {name}" for name, count in sorted(own.items())) or "nothing"
