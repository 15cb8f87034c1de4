"""Two equal parts of one machine, so that two servers can run at once without meeting on a GPU or a core."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from launchers.gpu_choice import VISIBLE, Shown, pinned, visible_gpus
from launchers.launcher import Launch
from results.errors import UsageError


@dataclass(frozen=True, slots=True)
class HardwareSet:
    """What one server gets: GPUs, CPU cores, or both; () = whatever it finds."""

    gpus: tuple[str, ...] = ()  # UUIDs; indexes along the PCI bus where no driver tells UUIDs
    cores: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        gpus = f"GPU {', '.join(self.gpus)}" if self.gpus else ""
        cores = f"core {', '.join(map(str, self.cores))}" if self.cores else ""
        return "; ".join(filter(None, (gpus, cores)))


T = TypeVar("T")
Sets = tuple[HardwareSet, HardwareSet]


def on_hardware(launch: Launch, hardware: HardwareSet) -> Launch:
    """The same launch, given this hardware and no more. A container sees its GPUs by the same variables."""
    variables = pinned(hardware.gpus) if hardware.gpus else {}
    return replace(launch, env={**launch.env, **variables}, cores=hardware.cores)


def core_sets(named: Sequence[Sequence[int]]) -> Sets:
    """The two sets of cores that a user names. Raises UsageError."""
    first, second = _two_alike("cores", named)
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    for core in (*first, *second):
        if core not in usable:
            raise UsageError(f"duet.cores: this process may not run on core {core}")
    return HardwareSet(cores=tuple(first)), HardwareSet(cores=tuple(second))


def gpu_sets(
    shown: Sequence[Shown],
    environment: Mapping[str, str],
    named: Sequence[Sequence[int | str]] | None = None,
    container: Sequence[str] | None = None,
) -> Sets:
    """Two sets of like GPUs: those `named` (indexes along the PCI bus, UUIDs), else the halves of ours.

    `shown` is what NVML shows, () where there is none; `environment` (and `container`, see visible_gpus) say
    which of them are ours. Raises UsageError.
    """
    ours = _ours(shown, environment, container)
    if named is None:
        first, second = _halves(ours)
    else:
        first, second = ([_uuid(shown, gpu) for gpu in one] for one in _two_alike("gpus", named))
        _check_ours((*first, *second), ours)
    cards = {gpu.uuid: gpu.name for gpu in shown}
    names = [sorted(cards.get(gpu, "") for gpu in one) for one in (first, second)]
    if len(set(first) | set(second)) < len(first) + len(second):
        raise UsageError("duet.gpus: a GPU is in both sets, or named twice")
    if names[0] != names[1]:
        raise UsageError(f"duet.gpus: the sets differ: {', '.join(names[0])} and {', '.join(names[1])}")
    return HardwareSet(gpus=tuple(first)), HardwareSet(gpus=tuple(second))


def _ours(
    shown: Sequence[Shown], environment: Mapping[str, str], container: Sequence[str] | None
) -> Sequence[str]:
    if shown:
        return visible_gpus(shown, environment, container).uuids
    return [gpu.strip() for gpu in environment.get(VISIBLE, "").split(",") if gpu.strip()]


def _halves(gpus: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Neighbours on the PCI bus stay together: they share a switch and a NUMA node more often than others."""
    if not gpus or len(gpus) % 2:
        raise UsageError(
            f"pairing: duet needs two equal sets, and there are {len(gpus)} GPUs: name the sets as"
            " duet: {gpus: [[0, 1], [2, 3]]}, or of a CPU engine as duet: {cores: [[0, 1], [2, 3]]}"
        )
    half = len(gpus) // 2
    return gpus[:half], gpus[half:]


def _two_alike(key: str, named: Sequence[Sequence[T]]) -> Sequence[Sequence[T]]:
    sizes = [len(one) for one in named]
    if len(sizes) != 2 or sizes[0] != sizes[1] or not sizes[0]:
        raise UsageError(f"duet.{key}: two sets of the same size are needed, e.g. [[0, 1], [2, 3]]")
    every = [entry for one in named for entry in one]
    if len(set(every)) < len(every):
        raise UsageError(f"duet.{key}: {every} names one twice")
    return named


def _uuid(shown: Sequence[Shown], named: int | str) -> str:
    """Of the GPU that is named; as it is named where nothing shows GPUs."""
    if not shown:
        return str(named)
    found = [g for g in shown if str(g.index) == str(named) or _begins(g, str(named))]
    if len(found) != 1:
        there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in shown)
        raise UsageError(
            f"duet.gpus: {named} names {len(found) or 'no'} GPU of this machine, which has {there}"
        )
    return found[0].uuid


def _begins(gpu: Shown, named: str) -> bool:
    return named.startswith("GPU-") and gpu.uuid.startswith(named)


def _check_ours(gpus: Sequence[str], ours: Sequence[str]) -> None:
    stray = [gpu for gpu in gpus if ours and gpu not in ours]
    if stray:
        raise UsageError(
            f"duet.gpus: {', '.join(stray)} is not among the GPUs that this run was given: {', '.join(ours)}"
        )
