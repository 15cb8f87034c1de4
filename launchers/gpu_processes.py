"""Whose the processes on a GPU are: of a server of this run, of someone else, or not to be known."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import psutil

from launchers.nvml import Device, Refusal
from results.records import GpuProcess

MAX_PID = 2**31 - 1  # the driver's are unsigned
SERVES_MANY = "nvidia-cuda-mps-server"  # stands beside every process that uses it


class GpuProcesses:
    """Remembers every process that was seen on the GPUs, with the most memory it had."""

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self._pids = pids
        self._seen: dict[str, dict[int, GpuProcess]] = {}  # by UUID and pid
        self.server = frozenset(pids())

    def look(self, device: Device) -> Refusal | None:
        """Note who is on this GPU now."""
        found = device.processes()
        if isinstance(found, Refusal):
            return found
        seen = self._seen.setdefault(device.uuid, {})
        for pid, memory_bytes in found.items():
            known = seen.get(pid) or self._found(device, pid)
            most = [m for m in (known.memory_bytes, memory_bytes) if m is not None]
            seen[pid] = replace(known, memory_bytes=max(most, default=None))
        return None

    def on(self, device: Device) -> tuple[GpuProcess, ...]:
        """All that were seen on this GPU; whose the others are is known only if one of the server's was."""
        found = self._seen.get(device.uuid, {}).values()
        blind = not any(pid in self.server for seen in self._seen.values() for pid in seen)
        return tuple(replace(p, ours=None) if blind and not p.ours else p for p in found)

    def _found(self, device: Device, pid: int) -> GpuProcess:
        if pid not in self.server:
            self.server |= frozenset(self._pids())  # it may have started since
        name = _name(pid)
        if pid in self.server or _is_below_the_tool(pid):
            return GpuProcess(pid, None, True, name)
        shares_by_design = name == SERVES_MANY or bool(device.known("mig"))
        return GpuProcess(pid, None, None if shares_by_design else False, name)


def are_of_this_namespace(pids: frozenset[int]) -> bool:
    """Whether the driver counts processes as this system does: all that it lists exist here."""
    return bool(pids) and all(pid <= MAX_PID and psutil.pid_exists(pid) for pid in pids)


def _is_below_the_tool(pid: int) -> bool:
    """A server of another arm."""
    with suppress(psutil.Error):
        return any(parent.pid == os.getpid() for parent in psutil.Process(pid).parents())
    return False


def _name(pid: int) -> str:
    with suppress(psutil.Error):
        return str(psutil.Process(pid).name())
    return ""
