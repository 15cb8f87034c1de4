"""The section of a sweep file that names the two sets of hardware of a duet."""

import os
from typing import Annotated

from pydantic import Field, model_validator

from launchers.gpu import shown_gpus
from launchers.hardware_sets import Sets, core_sets, gpu_sets
from sweeps.container import Container
from sweeps.values import CountOrNone, Section

TwoSets = Annotated[list[list[CountOrNone | str]], Field(min_length=2, max_length=2)]
TwoCoreSets = Annotated[list[list[CountOrNone]], Field(min_length=2, max_length=2)]


class Duet(Section):
    """With `pairing: duet`: what each of the two servers that run at once gets."""

    gpus: TwoSets | None = Field(
        default=None,
        description="two equal sets of GPUs, by index along the PCI bus or UUID: [[0, 1], [2, 3]]",
    )
    cores: TwoCoreSets | None = Field(
        default=None,
        description="of an engine on the CPU: two equal sets of its cores, e.g. [[0, 1], [2, 3]]",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> "Duet":
        if (self.gpus is None) is (self.cores is None):
            raise ValueError("name `gpus` or `cores`: two sets, e.g. gpus: [[0, 1], [2, 3]]")
        return self


def sets_of(duet: Duet | None, container: Container | None) -> Sets:
    """The two sets on this machine. Raises UsageError."""
    if duet is not None and duet.cores is not None:
        return core_sets(duet.cores)
    named = duet.gpus if duet is not None else None
    return gpu_sets(shown_gpus(), os.environ, named, container.gpu_ids if container is not None else None)
