"""The sections of a sweep file that say where in a cluster its servers run."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from results.records import KnobValue
from sweeps.values import Amount, Count, CountOrNone, Name, Positive, Section

# Options of sbatch that a job of tuner hangs on, and what to write instead where there is something.
OWN_OPTIONS = {
    **dict.fromkeys(("array", "error", "job-name", "nodes", "ntasks", "ntasks-per-node", "open-mode"), ""),
    **dict.fromkeys(("output", "requeue", "signal"), ""),
    **{name: name for name in ("partition", "account", "qos", "constraint", "gres", "mem", "time")},
    "cpus-per-task": "cpus",
    "gpus-per-node": "gpus",
}


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
    cpus: Amount = Field(default=1, description="CPUs of one server, as Ray counts them")
    resources: dict[Name, Positive] = Field(
        default={}, description="custom resources of one server, e.g. rack_a: 1"
    )
    labels: dict[str, str] = Field(
        default={}, description="labels that a node must have, e.g. ray.io/accelerator-type: H200"
    )
    servers: Count | None = Field(
        default=None, description="Blocks at once, at most; by default as many as the cluster holds"
    )

    @model_validator(mode="after")
    def _takes_something(self) -> "Ray":
        if not (self.cpus or self.gpus or self.resources):
            raise ValueError("a server must take something of a node: set cpus, gpus or resources above 0")
        return self


class Slurm(Section):
    """With `launcher: slurm`: the jobs that Blocks are measured in, each on one node."""

    launcher: Literal["process", "docker"] = Field(
        default="process", description="how a job starts a server; docker: see `container`"
    )
    partition: str | None = Field(default=None, description="partition; Slurm's default otherwise")
    account: str | None = Field(default=None, description="account that is charged")
    qos: str | None = Field(default=None, description="quality of service")
    constraint: str | None = Field(default=None, description="features that a node must have, e.g. h200")
    gpus: CountOrNone | None = Field(
        default=None,
        description="GPUs of a job; by default one for each rank of an engine that computes on GPUs, else 0",
    )
    gres: str | None = Field(default=None, description="in place of `gpus`, e.g. gpu:h200:2")
    cpus: Count | None = Field(default=None, description="CPUs of a job; Slurm's default otherwise")
    mem: str | None = Field(default=None, description="memory of a job, e.g. 64G; Slurm's default otherwise")
    time: Count = Field(
        default=240, description="minutes after which a job ends; it measures many Blocks until then"
    )
    sbatch: dict[str, KnobValue] = Field(
        default={}, description="further options of sbatch by their long names, e.g. exclusive: true"
    )
    servers: Count = Field(default=4, description="jobs at once, at most: so many Blocks at once")
    folder: Path | None = Field(
        default=None,
        description="folder that the nodes see by the same path, for the files of jobs; by default in the run"
        " folder",
    )

    @field_validator("sbatch")
    @classmethod
    def _long_names(cls, options: dict[str, KnobValue]) -> dict[str, KnobValue]:
        named = {name.lstrip("-").replace("_", "-"): value for name, value in options.items()}
        for name in named.keys() & OWN_OPTIONS.keys():
            own = OWN_OPTIONS[name]
            raise ValueError(f"{name}: write slurm.{own}" if own else f"{name} is set by tuner: remove it")
        return named

    @model_validator(mode="after")
    def _gpus_once(self) -> "Slurm":
        if self.gres is not None and self.gpus is not None:
            raise ValueError("gpus and gres are both given: keep one")
        return self
