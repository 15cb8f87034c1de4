"""The sections of a sweep file that say where in a cluster its servers run."""

from typing import Literal

from pydantic import Field

from sweeps.values import Count, CountOrNone, Name, Number, Section


class Ray(Section):
    """With `launcher: ray`: what one server takes of the cluster."""

    address: str = Field(
        default="auto",
        description="auto: the cluster that this machine belongs to; or HOST:PORT of its head",
    )
    launcher: Literal["process", "docker"] = Field(
        default="process", description="how a node starts a server; docker: see `container`"
    )
    nodes: Count = Field(
        default=1,
        description="nodes that one server runs over, all of them different; more than 1 needs an engine that"
        " can (sglang, vllm) and ranks that divide over them",
    )
    gpus: CountOrNone | None = Field(
        default=None,
        description="GPUs of one server on each node; by default one for each rank of an engine that computes"
        " on GPUs, else 0, which hides them",
    )
    cpus: Number = Field(default=1, description="CPUs of one server, as Ray counts them")
    resources: dict[Name, Number] = Field(
        default={}, description="custom resources of one server, e.g. rack_a: 1"
    )
    labels: dict[str, str] = Field(
        default={}, description="labels that a node must have, e.g. ray.io/accelerator-type: H200"
    )
    servers: Count | None = Field(
        default=None, description="Blocks at once, at most; by default as many as the cluster holds"
    )
