"""What every Launcher offers: start a server, know whether it lives, end it."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start: a command for a server that will listen on a loopback port."""

    argv: tuple[str, ...]
    port: int
    log_path: Path
    env: Mapping[str, str | None] = field(default_factory=dict)  # set for the server; None = taken away
    reads: tuple[Path, ...] = ()  # files and folders of this machine that it must see
    image: str | None = None  # of a container, in place of the launcher's own
    writes: tuple[Path, ...] = ()  # folders of this machine that it may write into
    cores: tuple[int, ...] = ()  # it may run on; () = all. Of a process: a container has its own setting
    others: tuple["Launch", ...] = ()  # of a server over several nodes: what rank 1, 2 ... is, on its node


class Endpoint(Protocol):
    """A running server with its address."""

    base_url: str  # http://127.0.0.1:PORT

    @property
    def log_path(self) -> Path:
        """The file with all that the server has written so far."""

    def exit_code(self) -> int | None:
        """None while the server lives; negative = signal."""

    def owns_port(self) -> bool:
        """Whether the listener on the port belongs to this launch."""

    def pids(self) -> tuple[int, ...]:
        """Every process of this launch, for telemetry; empty if it cannot be known."""

    def environment(self) -> Mapping[str, str] | None:
        """The environment of the server's first process as the system shows it; None if it does not."""

    def killed_for_memory(self) -> str | None:
        """The sentence that says so, if the system ended the server for lack of memory."""

    def ended_from_outside(self) -> str | None:
        """The sentence that says so, if what the server ran in went away, and the server with it."""

    def part_ended(self) -> str:
        """Which rank of a server over several nodes ended, for people; "" = it is one, or lives."""


class Launcher(Protocol):
    """How a server comes to be. Leaving the context ends the server and all its processes."""

    def start(self, launch: Launch) -> AbstractContextManager[Endpoint]:
        """Start without waiting for readiness.

        Raises LaunchFailed (the command cannot be run) or UsageError (the port is taken).
        """
