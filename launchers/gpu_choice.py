"""Which GPUs are a server's: by its processes where they can be seen, else by its environment.

An index is no identity: NVML counts along the PCI bus and ignores `CUDA_VISIBLE_DEVICES`; CUDA puts the
fastest card first unless `CUDA_DEVICE_ORDER=PCI_BUS_ID`; a container counts anew. So everything here is
by UUID.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from launchers.place import with_variables

GPU_MISMATCH = "GPU_MISMATCH"
ORDER, VISIBLE, CONTAINER = "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"
IDLE_FOR_S = 3.0  # the driver's own utilisation is a mean over up to a second: less of a window says nothing


@dataclass(frozen=True, slots=True)
class Shown:
    """A GPU as NVML shows it, with the pids of its compute processes and the UUIDs of its MIG instances."""

    index: int
    uuid: str
    name: str
    pids: frozenset[int] = frozenset()
    mig: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Visible:
    """The GPUs that an environment leaves to a server, in NVML's order; `named` = by a variable of it."""

    uuids: tuple[str, ...]
    named: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """The GPUs to watch. `seen` = a process of the server was seen on them."""

    uuids: tuple[str, ...]
    seen: bool
    mismatch: str = ""  # GPU_MISMATCH and why; "" = processes and environment agree


def choose(
    shown: Sequence[Shown],
    server_pids: Collection[int],
    visible: Visible,
    *,
    pids_are_ours: bool = False,
) -> Choice:
    """Where the server's processes are; if none is seen, where its environment lets it be.

    `pids_are_ours`: the pids that NVML lists are those of our own namespace, so that a server of which
    none is seen uses no GPU.
    """
    actual = on_gpus(shown, server_pids)
    if actual:
        return Choice(actual, True, _stray(actual, visible))
    if pids_are_ours and server_pids and not visible.named:
        return Choice((), False)
    return Choice(visible.uuids, False)


def mismatch(
    watched: Collection[str],
    shown: Sequence[Shown],
    server_pids: Collection[int],
    utilisation: Mapping[str, float | None],
    wall_s: float,
) -> str:
    """Why the GPUs that were watched are not the ones at work; "" = nothing says so.

    `utilisation` is the mean over the window by UUID, in which the server was under load.
    """
    actual = on_gpus(shown, server_pids)
    elsewhere = [uuid for uuid in actual if uuid not in watched]
    if elsewhere:
        return f"{GPU_MISMATCH}: the server is on {', '.join(elsewhere)}, not only on {_list(watched)}"
    idle = bool(watched) and all(utilisation.get(uuid) == 0 for uuid in watched)
    if idle and wall_s >= IDLE_FOR_S:
        where = "" if actual else ", and none of the server's processes is seen there"
        return f"{GPU_MISMATCH}: {_list(watched)} did nothing while the server was under load{where}"
    return ""


def on_gpus(shown: Sequence[Shown], server_pids: Collection[int]) -> tuple[str, ...]:
    """The GPUs with a process of the server."""
    return tuple(gpu.uuid for gpu in shown if gpu.pids & frozenset(server_pids))


def visible_gpus(
    shown: Sequence[Shown], environment: Mapping[str, str], container: Sequence[str] | None = None
) -> Visible:
    """What `CUDA_VISIBLE_DEVICES` leaves of the GPUs, which are those of its container if it has one.

    `container` names the GPUs given to it (indexes of NVML, UUIDs or prefixes, "all"); by default what
    NVIDIA_VISIBLE_DEVICES says. Where numbers count in CUDA's own order and the cards differ, none of
    them can be excluded.
    """
    given = environment.get(CONTAINER, "all").split(",") if container is None else container
    present = _in_container(shown, given)
    value = environment.get(VISIBLE)
    if value is None:
        return Visible(tuple(gpu.uuid for gpu in present), len(present) < len(shown))
    entries = [entry.strip() for entry in value.split(",")]
    if entries[0].startswith(("GPU-", "MIG-")):
        return Visible(_in_order(shown, _by_uuid(present, entries)), True)
    numbers = _numbers(entries, len(present))
    if numbers and len(numbers) < len(present) and not _counts_along_the_bus(present, environment):
        return Visible(tuple(gpu.uuid for gpu in present), True)
    return Visible(_in_order(shown, [present[n] for n in numbers]), True)


def server_environment(launched: Mapping[str, str | None]) -> dict[str, str]:
    """The environment of a server that inherits the tool's; None takes a variable away.

    The GPUs of the tool's own container are the only ones that NVML shows here: what names them counts
    otherwise than here.
    """
    return with_variables({CONTAINER: None, **launched})


def pinned(uuids: Sequence[str]) -> dict[str, str]:
    """The variables that give a server exactly these GPUs, whatever the order of counting."""
    return {ORDER: "PCI_BUS_ID", VISIBLE: ",".join(uuids)}


def _stray(actual: Sequence[str], visible: Visible) -> str:
    stray = [uuid for uuid in actual if uuid not in visible.uuids]
    if not stray:
        return ""
    remedy = " ".join(f"{name}={value}" for name, value in pinned(actual).items())
    return (
        f"{GPU_MISMATCH}: the environment leaves {_list(visible.uuids)} to the server, which is on"
        f" {_list(actual)} (to pin it: {remedy})"
    )


def _list(uuids: Collection[str]) -> str:
    return ", ".join(uuids) or "no GPU"


def _in_container(shown: Sequence[Shown], given: Sequence[str]) -> list[Shown]:
    wanted = [entry.strip() for entry in given]
    if "all" in wanted:
        return list(shown)
    return [g for g in shown if any(w == str(g.index) or (w and _is_named(g, w)) for w in wanted)]


def _is_named(gpu: Shown, name: str) -> bool:
    """By its UUID, the beginning of it, one of its MIG instances, or `INDEX:INSTANCE`."""
    index, colon, _ = name.partition(":")
    in_mig = any(uuid.startswith(name) for uuid in gpu.mig) or name.startswith(f"MIG-{gpu.uuid}/")
    by_uuid = name.startswith("GPU-") and gpu.uuid.startswith(name)
    return by_uuid or in_mig or (bool(colon) and index == str(gpu.index))


def _by_uuid(present: Sequence[Shown], entries: Sequence[str]) -> list[Shown]:
    """CUDA's rule: up to the first that names no GPU or more than one; a GPU named twice leaves none."""
    found: list[Shown] = []
    kind = entries[0][:4]
    for entry in entries:
        named = [gpu for gpu in present if entry.startswith(kind) and _is_named(gpu, entry)]
        if len(named) != 1:
            break
        if named[0] in found and kind == "GPU-":
            return []
        found += named
    return found


def _numbers(entries: Sequence[str], count: int) -> list[int]:
    """CUDA's rule: what each begins with as a number, up to the first that is none or out of range."""
    numbers: list[int] = []
    for entry in entries:
        found = re.match(r"[+-]?\d+", entry)
        number = int(found[0]) if found else -1
        if not 0 <= number < count:
            break
        if number in numbers:
            return []
        numbers.append(number)
    return numbers


def _counts_along_the_bus(present: Sequence[Shown], environment: Mapping[str, str]) -> bool:
    """Whether CUDA's numbers are NVML's: as ordered, or because all cards are alike."""
    return environment.get(ORDER) == "PCI_BUS_ID" or len({gpu.name for gpu in present}) == 1


def _in_order(shown: Sequence[Shown], chosen: Sequence[Shown]) -> tuple[str, ...]:
    return tuple(gpu.uuid for gpu in shown if gpu in chosen)
