"""What the state of a machine means for a server, and what may be stopped: proposed, never done."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from analysis.wiring.gpu_state import driver_lines, gpu_lines, size
from analysis.words import count, listed, long_time, moment
from results.machine_state import EngineProcess, MachineState, Role, SharedSegment

SHOWN_COMMAND = 100  # characters
SHOWN_PORTS = 3
WORTH_REMOVING_BYTES = 2**20  # a smaller file is not worth the risk
SETTLED_S = 60.0  # a younger file may be on its way from one process to another
REMOVABLE = ("psm_", "torch_", "nccl-")


def checked(state: MachineState) -> Iterator[str]:
    """What was looked at."""
    yield "engine processes, what keeps them, and the ports they listen on"
    yield "left-over shared memory"
    yield "driver, GPUs and who holds their memory"


def seen(state: MachineState) -> Iterator[str]:
    """What stands there, without a judgement."""
    if not state.processes:
        yield "no process of an engine"
    yield from (_process_line(p, state) for p in state.processes)
    if state.segments:
        kinds = Counter(re.split(r"[_.-]", PurePath(s.path).name)[0] for s in state.segments)
        amount = size(sum(s.memory_bytes for s in state.segments))
        names = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        unused = sum(not s.users for s in state.segments)
        files = count(len(state.segments), "file")
        yield f"shared memory: {files} ({names}), {amount}; {unused} of them open nowhere"
    yield from driver_lines(state)


def follows(state: MachineState) -> Iterator[str]:
    """What may be in the way of a measurement, and the exact command against it where that is safe."""
    found = [
        *_ports(state),
        *_left_behind(state),
        *_orphans(state),
        *_unowned(state),
        *_segments(state),
        *gpu_lines(state),
    ]
    yield from found or ["nothing on this machine is in the way"]


def _process_line(process: EngineProcess, state: MachineState) -> str:
    title = process.title if len(process.title) <= SHOWN_COMMAND else process.title[:SHOWN_COMMAND] + "…"
    facts = [f"pid {process.pid}", f"since {moment(process.started_at)}"]
    if process.memory_bytes is not None:
        facts.append(size(process.memory_bytes))
    if process.ports:
        facts.append(f"listens on {_numbers(process.ports)}")
    if not process.is_own:
        facts.append("of another user")
    if not process.is_here:
        facts.append("in a container")
    if process.pid in state.tool_servers:
        facts.append("kept by a running tuner")
    return f"{process.role} {title} ({', '.join(facts)}{_kept(process)})"


def _kept(process: EngineProcess) -> str:
    if process.role is not Role.WORKER:
        return ""
    return f", kept by {process.owner}" if process.owner is not None else ", kept by nobody"


def _numbers(ports: Sequence[int]) -> str:
    """`8000, 8001 and 11 more`."""
    told = [str(port) for port in sorted(set(ports))]
    rest = len(told) - SHOWN_PORTS
    return listed([*told[:SHOWN_PORTS], f"{rest} more"] if rest > 1 else told)


def _servers(state: MachineState) -> Sequence[EngineProcess]:
    return [p for p in state.processes if p.role is Role.SERVER]


def _ports(state: MachineState) -> Iterator[str]:
    """Another process on the port of a server answers in its place."""
    for server in _servers(state):
        family = {server.pid, *(p.pid for p in state.processes if p.owner == server.pid)}
        on_port = [li for li in state.listeners if li.port == server.port] if server.is_here else []
        others = [li for li in on_port if li.pid not in family]
        if others:
            who = "a process that this user may not see"
            if others[0].pid is not None:
                who = f"{others[0].name or 'a process'} (pid {others[0].pid})"
            yield (
                f"port {server.port} of the server {server.pid} is listened on by {who}: "
                "whoever asks it may be answered by the other"
            )


def _left_behind(state: MachineState) -> Iterator[str]:
    for server in state.left_behind:
        yield f"tuner reap {server.run} --end    # ends the server {server.pid} that a dead run left behind"


def _orphans(state: MachineState) -> Iterator[str]:
    """By the whole signature; the topmost of a tree alone, the others end with it."""
    orphans = {p.pid: p for p in state.processes if p.is_orphan}
    by_reap = {server.pid for server in state.left_behind}
    for orphan in orphans.values():
        if orphan.parent in orphans or orphan.session in by_reap:
            continue
        yield from _orphan_lines(orphan, state)


def _orphan_lines(orphan: EngineProcess, state: MachineState) -> Iterator[str]:
    known = f"{orphan.title}, since {moment(orphan.started_at)}, {size(orphan.memory_bytes)}"
    why = f"{known}: {_gone(orphan, state)}"
    if not orphan.is_own:
        yield f"pid {orphan.pid} ({why}) is of another user: ask them to end it"
    elif not orphan.is_here:
        yield f"pid {orphan.pid} ({why}) is in a container: end it there, or restart the container"
    else:
        yield f"kill {orphan.pid}    # {why}"


def _gone(orphan: EngineProcess, state: MachineState) -> str:
    """Why it is thought to be left over, and what ends with it."""
    parts = ["its server is gone"]
    if orphan.ports:
        parts.append(f"it still listens on {_numbers(orphan.ports)}")
    parts += [
        f"older than the server {s.pid} by {long_time(s.started_at - orphan.started_at)}"
        for s in _servers(state)
        if s.started_at > orphan.started_at
    ]
    below = [
        p.pid for p in state.processes if p.session == orphan.session and p.is_orphan and p.pid != orphan.pid
    ]
    trackers = [
        p.pid
        for p in state.processes
        if p.role is Role.TRACKER and p.session == orphan.session and p.owner is None
    ]
    if below:
        parts.append(f"of the same start: {listed([str(pid) for pid in below])}")
    if trackers:
        parts.append(
            f"its resource tracker {listed([str(pid) for pid in trackers])} ends with it, after cleaning up"
        )
    return "; ".join(parts)


def _unowned(state: MachineState) -> Iterator[str]:
    """Half of the signature is no proof: shown, and left alone."""
    for process in state.processes:
        if process.role is Role.WORKER and process.owner is None and not process.is_orphan:
            known = f"{process.title} (pid {process.pid}, since {moment(process.started_at)})"
            yield (
                f"{known} has no server above it, but its session {process.session} lives: "
                "find out whose it is before you end it"
            )


def _segments(state: MachineState) -> Iterator[str]:
    unused = [s for s in state.segments if _is_removable(s, state.seen_at)]
    for segment in unused:
        facts = f"{size(segment.memory_bytes)}, changed {moment(segment.changed_at)}"
        where = "" if state.sees_all else " of this container"
        yield f"rm {segment.path}    # {facts}, open in no process{where}"
    if unused and not state.sees_all:
        yield "before those: if the container shares /dev/shm with its host, look there who has them open"


def _is_removable(segment: SharedSegment, now: float) -> bool:
    """Ours, of a kind that is never opened anew by name, large, settled, and provably open nowhere."""
    is_unused = segment.is_own and segment.is_all_seen and not segment.users
    is_old = now - segment.changed_at >= SETTLED_S
    is_kind = PurePath(segment.path).name.startswith(REMOVABLE)
    return is_unused and is_old and is_kind and segment.memory_bytes >= WORTH_REMOVING_BYTES
