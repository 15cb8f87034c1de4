"""Servers over several nodes: one process a node, rank 0 on this one. They come, live and end together."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from launchers.launcher import Endpoint, Launch, Launcher
from launchers.port import free_port
from results.errors import LaunchFailed

LOG_BYTES = 4 << 20  # of a log that comes from another node: its last
SETTLE_S = 5.0  # between the end of a rank that lost another and the end of that one
POLL_S = 0.05
# What a rank says that ends because another did (gloo, NCCL, torch's store, ZeroMQ's sockets).
PEER_GONE = re.compile(
    r"[Cc]onnection (?:closed|reset) by peer|[Cc]onnection was likely closed|[Bb]roken pipe"
    r"|remote process exited|ncclRemoteError|failed to recv, got 0 bytes|store server has shut down"
    r"|collective operation timeout"
)


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that has ended, and what the system says of its end (see Endpoint)."""

    exit_code: int
    log: str  # its last LOG_BYTES
    killed_for_memory: str | None = None
    ended_from_outside: str | None = None


class Part(Protocol):
    """The process of one rank above 0, on its node."""

    def ended(self) -> Ended | None:
        """None while it lives."""

    def log(self) -> str:
        """The last LOG_BYTES of what it has written so far."""

    def end(self) -> None:
        """End it with all its processes, in whatever state it is."""


class Member(Protocol):
    """One further node of a group."""

    node: str  # for people

    def free_port(self) -> int:
        """A loopback port of that node that nobody listens on now."""

    def start(self, launch: Launch) -> Part:
        """Start without waiting for readiness. Raises what a Launcher does."""


@dataclass(frozen=True)
class Group:
    """The nodes that one server runs over."""

    host: str  # IP address of rank 0's node that the others reach
    members: Sequence[Member]  # of rank 1, 2 ...

    @property
    def nodes(self) -> int:
        return 1 + len(self.members)


class GroupLauncher:
    """Starts rank 0 on this node and each of `Launch.others` on a member; one without others runs here."""

    def __init__(self, here: Launcher, members: Sequence[Member]) -> None:
        self._here, self._members = here, members

    @contextmanager
    def start(self, launch: Launch) -> Iterator[Endpoint]:
        with ExitStack() as group:
            ranks = list(enumerate(zip(self._members, launch.others, strict=False), 1))
            parts = [group.enter_context(_started(r, member, part)) for r, (member, part) in ranks]
            first = group.enter_context(self._here.start(launch))  # ends first: some engines tell the others
            nodes = [member.node for _, (member, _) in ranks]
            yield GroupEndpoint(first, nodes, parts, launch) if parts else first


@contextmanager
def _started(rank: int, member: Member, launch: Launch) -> Iterator[Part]:
    """One rank on its node; its log is beside that of rank 0 in the end."""
    try:
        part = member.start(launch)
    except LaunchFailed as error:
        raise LaunchFailed(error.reason, f"rank {rank} on {member.node}: {error.evidence}") from None
    try:
        yield part
    finally:
        part.end()
        keep(part.log(), launch.log_path)


def keep(log: str, path: Path) -> None:
    """Write the log of another node to this one, unless it is here already."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(log, "utf-8")


class GroupEndpoint:
    """Rank 0 as the address of all. It has ended as soon as any rank has, and its log is then that rank's."""

    def __init__(self, first: Endpoint, nodes: Sequence[str], parts: Sequence[Part], launch: Launch) -> None:
        """`nodes` of the parts, for people."""
        self.base_url = first.base_url
        self._first, self._parts = first, parts
        self._nodes = ("this node", *nodes)
        self._logs = (launch.log_path, *(other.log_path for other in launch.others))
        self._root: tuple[int, Ended] | None = None  # the rank that ended for a reason of its own

    @property
    def log_path(self) -> Path:
        return self._first.log_path if self._root is None else self._logs[self._root[0]]

    def exit_code(self) -> int | None:
        if self._root is None:
            self._root = self._found_root()
        return None if self._root is None else self._root[1].exit_code

    def owns_port(self) -> bool:
        return self._first.owns_port()

    def pids(self) -> tuple[int, ...]:
        """Of rank 0: the others are of other machines."""
        return self._first.pids()

    def environment(self) -> Mapping[str, str] | None:
        return self._first.environment()

    def killed_for_memory(self) -> str | None:
        return self._first.killed_for_memory() if self._root is None else self._root[1].killed_for_memory

    def ended_from_outside(self) -> str | None:
        return self._first.ended_from_outside() if self._root is None else self._root[1].ended_from_outside

    def part_ended(self) -> str:
        if self._root is None:
            return ""
        rank = self._root[0]
        return f"rank {rank} on {self._nodes[rank]}"

    def _found_root(self) -> tuple[int, Ended] | None:
        """The first rank that ended and does not only miss another; it may end later than those that do."""
        ended = self._ended()
        deadline = time.monotonic() + SETTLE_S
        while ended and len(ended) < len(self._logs) and not _roots(ended) and time.monotonic() < deadline:
            time.sleep(POLL_S)
            ended = self._ended()
        if not ended:
            return None
        rank = (_roots(ended) or [*ended])[0]
        keep(ended[rank].log, self._logs[rank])
        return rank, ended[rank]

    def _ended(self) -> dict[int, Ended]:
        """Ranks that have ended."""
        looks = (ended_of(self._first), *(part.ended() for part in self._parts))
        return {rank: ended for rank, ended in enumerate(looks) if ended is not None}


def _roots(ended: Mapping[int, Ended]) -> list[int]:
    return [rank for rank, told in ended.items() if not PEER_GONE.search(told.log)]


def ended_of(endpoint: Endpoint) -> Ended | None:
    """How a server ended; None while it lives."""
    exit_code = endpoint.exit_code()
    if exit_code is None:
        return None
    told = endpoint.killed_for_memory(), endpoint.ended_from_outside()
    return Ended(exit_code, last_of(endpoint.log_path), *told)


def last_of(log: Path) -> str:
    """The last LOG_BYTES of a log; "" if there is none."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_BYTES))
        return file.read().decode("utf-8", "replace")


class LaunchedPart:
    """A Part that a Launcher of this node started."""

    def __init__(self, launcher: Launcher, launch: Launch) -> None:
        """Raises what the launcher does."""
        self._log = launch.log_path
        with ExitStack() as server:
            self._endpoint = server.enter_context(launcher.start(launch))
            self._server = server.pop_all()

    def ended(self) -> Ended | None:
        return ended_of(self._endpoint)

    def log(self) -> str:
        return last_of(self._log)

    def end(self) -> None:
        self._server.close()


class LocalMember:
    """A Member that is this machine: a group of several processes here."""

    def __init__(self, node: str, launcher: Launcher) -> None:
        self.node, self._launcher = node, launcher

    def free_port(self) -> int:
        return free_port()

    def start(self, launch: Launch) -> LaunchedPart:
        return LaunchedPart(self._launcher, launch)
