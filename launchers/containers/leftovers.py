"""Containers of a tool that is gone: known by the labels they were made with, never by name or image."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launchers.leftovers import Leftover, boot, created_at, is_alive
from results.errors import UsageError

if TYPE_CHECKING:
    from docker import DockerClient

RUN, IMAGE, LAUNCH, PORT = "tuner.run", "tuner.image", "tuner.launch", "tuner.port"
TOOL_PID, TOOL_CREATED_AT, BOOT = "tuner.tool-pid", "tuner.tool-created-at", "tuner.boot"
ASKING = "asking"  # in place of a run: a container that answers questions about its image


def labels(run: str, image: str, launch: str = "", port: int = 0) -> dict[str, str]:
    """Of a container that this process makes for a run."""
    return {
        RUN: run,
        IMAGE: image,
        LAUNCH: launch,
        PORT: str(port),
        TOOL_PID: str(os.getpid()),
        TOOL_CREATED_AT: repr(created_at(os.getpid())),
        BOOT: boot(),
    }


def run_label(run_dir: Path) -> str:
    """Names a run folder, however it is written."""
    return str(run_dir.resolve())


def reap_containers(run_dir: Path, *, end: bool) -> list[Leftover]:
    """Containers of a run whose tool is dead; with `end` they are removed. None without a daemon here."""
    client = _daemon_if_any()
    return [] if client is None else _reap(client, run_label(run_dir), end=end)


def remove_forgotten(client: "DockerClient") -> None:
    """Remove what a dead tool left of its questions."""
    _reap(client, ASKING, end=True)


def _daemon_if_any() -> "DockerClient | None":
    from launchers.containers.daemon import connect, daemon_address

    try:
        address = daemon_address()
    except ImportError:  # no docker package, or a broken one
        return None
    if address.startswith("unix://") and not os.access(address.removeprefix("unix://"), os.R_OK | os.W_OK):
        return None  # no daemon, or none that this user could have used
    try:
        return connect()
    except UsageError:
        return None


def _reap(client: "DockerClient", run: str, *, end: bool) -> list[Leftover]:
    from launchers.containers.daemon import daemon_errors

    found = []
    try:
        for container in client.containers.list(
            all=True, filters={"label": f"{RUN}={run}"}, ignore_removed=True
        ):
            if not _has_living_tool(container.labels):
                found.append(_leftover(container))
                if end:
                    container.remove(force=True, v=True)
    except daemon_errors() as error:
        raise UsageError(f"cannot end the containers of {run}: {error}") from None
    return found


def _has_living_tool(of: Mapping[str, str]) -> bool:
    try:
        pid, since_at = int(of.get(TOOL_PID, "")), float(of.get(TOOL_CREATED_AT, ""))
    except ValueError:
        return True  # not as we label: not ours to touch
    return of.get(BOOT) == boot() and is_alive(pid, since_at)


def _leftover(container: Any) -> Leftover:
    import datetime

    state, port = container.attrs["State"], container.labels.get(PORT, "")
    created = datetime.datetime.fromisoformat(container.attrs["Created"][:19] + "+00:00")
    return Leftover(
        pid=int(state.get("Pid") or 0),
        what=f"container {container.name} ({container.labels.get(IMAGE)}, {state['Status']})",
        port=int(port) if port.isdigit() else 0,
        since_at=created.timestamp(),
    )
