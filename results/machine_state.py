"""What stands on a machine: engine processes, shared memory, GPU memory. Facts alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    SERVER = "server"  # the command that somebody started
    WORKER = "worker"  # what an engine started below it, known by its title
    TRACKER = "resource tracker"  # Python's own, which removes shared memory when its processes end


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """A process of an engine. A string is empty, and a figure None, where the system does not tell."""

    pid: int
    role: Role
    title: str  # `sglang::detokenizer`; of a server its command, secrets hidden
    engine: str  # "SGLang", "vLLM", "llama.cpp"; "" of a tracker
    started_at: float  # Unix time
    parent: int
    session: int
    is_own: bool  # of the user of this tool
    is_here: bool = True  # False: in another PID namespace, e.g. a container
    owner: int | None = (
        None  # what keeps it: the nearest live server, or other process of its session, above it
    )
    is_leader_dead: bool = False  # the process that its session, or its group, is named after has ended
    exe: str = ""
    cwd: str = ""
    memory_bytes: int | None = None  # resident
    ports: tuple[int, ...] = ()  # it listens on
    port: int | None = None  # that a server was told to listen on, or its engine's default

    @property
    def is_orphan(self) -> bool:
        """An engine's worker that nobody keeps, and whose session or group has lost its leader.

        That its parent is the first process proves nothing: a server in a container has that too.
        """
        return self.role is Role.WORKER and self.owner is None and self.is_leader_dead


@dataclass(frozen=True, slots=True)
class Listener:
    """Who listens on a port; pid None = a process that this user may not see."""

    port: int
    pid: int | None
    name: str = ""


@dataclass(frozen=True, slots=True)
class SharedSegment:
    """A file in shared memory of a kind that engines leave behind."""

    path: str
    memory_bytes: int
    is_own: bool
    changed_at: float  # Unix time
    users: tuple[int, ...] = ()  # processes that have it open or mapped
    is_all_seen: bool = True  # False: what some process of that user has open could not be read


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A process that the driver lists on a GPU."""

    pid: int
    memory_bytes: int | None
    exists: bool  # as a process of this system
    name: str = ""


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU. None = the driver does not tell; `refused` says what, and its name for why."""

    index: int
    uuid: str
    name: str
    used_bytes: int | None = None
    total_bytes: int | None = None
    holders: tuple[GpuHolder, ...] | None = None
    ecc_errors: int | None = None  # uncorrected, since the driver was loaded
    throttled: tuple[str, ...] = ()
    persistence: bool | None = None
    mig: bool | None = None
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DriverState:
    version: str | None = None
    cuda: str | None = None
    absent: str = ""  # why there is none
    gpus: tuple[GpuState, ...] = ()
    counts_as_here: bool | None = None  # whether its pids are those of this system; None = it lists none


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A server of a run of this tool whose tool is dead: `tuner reap` ends it."""

    pid: int
    run: str  # folder


@dataclass(frozen=True, slots=True)
class MachineState:
    """All of it at one moment."""

    seen_at: float  # Unix time
    processes: Sequence[EngineProcess] = ()
    listeners: Sequence[Listener] = ()
    segments: Sequence[SharedSegment] = ()
    driver: DriverState = DriverState()
    left_behind: Sequence[OwnServer] = ()
    sees_all: bool = True  # False: from inside a container, where other processes cannot be seen
    tool_servers: Sequence[int] = ()  # servers that a live tool of this kind keeps
