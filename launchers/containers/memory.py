"""Kills for lack of memory, as a process's control group counts them."""

import re
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def oom_kills(pid: int, proc: Path = Path("/proc"), cgroups: Path = CGROUPS) -> int:
    """Processes of this one's group that the kernel killed for lack of memory; 0 if it does not tell."""
    return max(map(_counted, _files(pid, proc, cgroups)), default=0)


def _files(pid: int, proc: Path, cgroups: Path) -> Iterator[Path]:
    """Of the unified hierarchy (version 2), or of the memory controller's own (version 1)."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield cgroups / path.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            yield cgroups / "memory" / path.lstrip("/") / "memory.oom_control"


def _counted(file: Path) -> int:
    try:
        found = re.search(r"^oom_kill (\d+)$", file.read_text("ascii"), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
