"""The section `container` of the sweep file."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictInt, field_validator, model_validator

from launchers.containers.options import DEFAULT_ULIMITS, ContainerOptions
from results.errors import UsageError
from sweeps.values import MOST, NO_SWITCH, Section

MOST_GPUS = 1024  # of one machine
GpuCount = Annotated[StrictInt, Field(ge=1, le=MOST_GPUS)]
Cores = Annotated[float, Field(gt=0, le=MOST), NO_SWITCH]


class Container(Section):
    """How the containers of `launcher: docker` are made, for both arms alike."""

    image: str = Field(
        default="",
        description="image to start, by tag or digest; pulled if it is not here, recorded by digest",
    )
    gpus: Literal["all"] | GpuCount | list[StrictInt | str] | None = Field(
        default=None, description="all, a count, or a list of ids or UUIDs; none by default"
    )
    ipc: Literal["private", "host"] = Field(
        default="private", description="host: the shared memory of the machine itself"
    )
    shm_size: str = Field(
        default="16g", description="size of /dev/shm, which NCCL and workers use; not with ipc: host"
    )
    ulimits: dict[str, StrictInt | str] = Field(
        default=dict(DEFAULT_ULIMITS), description="limits by name: a number, soft:hard, or -1 for none"
    )
    network: str = Field(
        default="host",
        description="host: no proxy in the path of what is measured, the server listens on 127.0.0.1;"
        " bridge, or a network's name: its port is published on 127.0.0.1 only",
    )
    volumes: list[str] = Field(
        default=[],
        description="source:target, read-only unless :rw is said; model and draft are mounted by themselves",
    )
    user: str | None = Field(default=None, description="user or user:group; the image's own by default")
    memory: str | None = Field(default=None, description="limit of memory, e.g. 64g; no swap beyond it")
    cpus: Cores | None = Field(default=None, description="limit of CPU time, in cores")
    cpuset: str | None = Field(default=None, description="cores to run on, e.g. 0-15")
    privileged: bool = Field(default=False, description="give up all separation; never needed for GPUs")
    pass_env: list[str] = Field(
        default=[],
        description="variables taken from where tuner runs, e.g. HF_TOKEN; their values are never written",
    )
    options: dict[str, Any] = Field(
        default={}, description="further options by the docker SDK's names, e.g. cap_add: [SYS_NICE]"
    )

    @field_validator("gpus", mode="before")
    @classmethod
    def _gpus(cls, gpus: object) -> object:
        """One sentence, where each form of the value would report a problem of its own."""
        is_count = isinstance(gpus, int) and not isinstance(gpus, bool) and 0 < gpus <= MOST_GPUS
        if gpus is None or gpus == "all" or is_count or (gpus and isinstance(gpus, list)):
            return gpus
        raise ValueError(f"{gpus!r} is neither all, nor a count, nor a list of ids or UUIDs")

    @field_validator("shm_size", "memory", mode="before")
    @classmethod
    def _size(cls, size: object) -> object:
        """A bare number would be bytes, which nobody means who writes 32."""
        if isinstance(size, int | float):
            raise ValueError(f"{size} has no unit: write it like 16g, 512m or 64k")
        return size

    @model_validator(mode="after")
    def _possible(self) -> Self:
        try:
            self.to_options()
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self

    def to_options(self) -> ContainerOptions:
        """Raises UsageError for what no container can have."""
        content = self.model_dump()
        if isinstance(self.gpus, list):
            content["gpus"] = tuple(map(str, self.gpus))
        lists = {name: tuple(content[name]) for name in ("volumes", "pass_env")}
        return ContainerOptions(**{**content, **lists})

    @property
    def gpu_ids(self) -> tuple[str, ...]:
        """The GPUs that a container is given: indexes, UUIDs, or "all"."""
        if isinstance(self.gpus, int):
            return tuple(map(str, range(self.gpus)))  # a count takes the first ones
        return (self.gpus,) if isinstance(self.gpus, str) else tuple(map(str, self.gpus or ()))
