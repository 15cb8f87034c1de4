"""All that the forms need of one exported configuration."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from launchers.containers.options import ContainerOptions, bytes_of
from launchers.port import LOOPBACK
from results.errors import UsageError
from sweeps.cluster.nodes import nodes_of
from sweeps.export.about import about, engine_version, gpus_used, last_run
from sweeps.export.choice import Choice
from sweeps.export.server import Server, recorded, without

OVER_NODES = ("command", "json")  # forms of a server over several nodes
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Deployable:
    """A server to start, at its address, and what to say of it."""

    choice: Choice
    server: Server
    about: tuple[str, ...]  # lines for a head of comments
    engine_version: str
    gpus: int  # that the server was on; 0 = none
    start_s: float  # that it took to be ready
    image: str = ""  # digest of the container image it ran in; "" = a process

    @property
    def nodes(self) -> int:
        """That a server takes: as many commands, of which `server` is rank 0's."""
        return nodes_of(self.choice.sweep)

    @property
    def name(self) -> str:
        return self.choice.report.name

    @property
    def options(self) -> ContainerOptions | None:
        return self.server.container.options if self.server.container else None

    @property
    def shm_bytes(self) -> int | None:
        """Shared memory of its own that it had; None = it had that of the machine."""
        if self.options is None or self.options.ipc == "host":
            return None
        return bytes_of("container.shm_size", self.options.shm_size)


def deployable(choice: Choice, host: str | None, port: int | None) -> Deployable:
    """Raises UsageError if no server of it was started by tuner."""
    server = recorded(choice.point, choice.sweep, choice.report.blocks)
    if server is None:
        raise UsageError(f"no server of {choice.point.label} was started in this run: nothing to export")
    check_names(server)
    server = without(server, server.engine.for_measuring)
    run = last_run(choice)
    return Deployable(
        choice,
        server.at(host or LOOPBACK, port or server.engine.port),
        about(choice),
        engine_version(choice),
        _gpus(gpus_used(run), server),
        run.start_s if run else 0.0,
        run.image if run else "",
    )


def check_one_node(form: str, nodes: int) -> None:
    """Raises UsageError for a form that holds one command, of a server that is several."""
    if nodes > 1:
        raise UsageError(
            f"--as {form}: a server of this run is {nodes} commands, one a node, which"
            f" {' and '.join(OVER_NODES)} can say"
        )


def _gpus(seen: int, server: Server) -> int:
    """As many as were seen at work; else as many as its container was given."""
    asked = server.container.options.gpus if server.container else None
    return seen or (asked if isinstance(asked, int) else len(asked) if isinstance(asked, tuple) else 0)


def check_names(server: Server) -> None:
    """Raises UsageError for a variable that a shell cannot set."""
    for name in server.env:
        if VARIABLE.fullmatch(name) is None:
            raise UsageError(f"env: {name!r} is no name that a shell or a container file can set: rename it")


def commented(lines: Sequence[str]) -> str:
    """A head of comments."""
    return "".join(f"# {line}\n" for line in lines)
