"""Processes of engines on this machine, and who keeps them: facts alone, nothing is touched.

The titles that the engines give their workers (SGLang 0.5.23, vLLM 0.32.0): `sglang::scheduler_TP0`,
`VLLM::EngineCore`. Such a process has an empty environment, and its command line is its title.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from launchers.leftovers import START_TIME_TOLERANCE_S
from launchers.process import GUARD
from results.machine_state import EngineProcess, Listener, Role
from results.secrets import masked

TITLE = re.compile(r"^(sglang::|VLLM::)")
TRACKS = "multiprocessing.resource_tracker"
MODULES = {
    "sglang.launch_server": "SGLang",
    "vllm.entrypoints.openai.api_server": "vLLM",
    "vllm.entrypoints.api_server": "vLLM",
    "launchers.embedded": "llama.cpp",
}
PROGRAMS = {  # with the word `serve`
    "sglang": "SGLang",
    "sglang.cli.main": "SGLang",
    "vllm": "vLLM",
    "vllm.entrypoints.cli.main": "vLLM",
}
DEFAULT_PORTS = {"SGLang": 30000, "vLLM": 8000, "llama.cpp": 8080}
_PYTHON = re.compile(r"^(python|pypy)[\d.]*$")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")  # options of Python with a word of their own
_NAMESPACE = "/proc/{}/ns/pid"
FIRST_NAMESPACE = "pid:[4026531836]"  # Linux numbers the one of the machine itself so


@dataclass(frozen=True, slots=True)
class Row:
    """A live process as the system lists it."""

    pid: int
    parent: int
    name: str
    argv: tuple[str, ...]
    started_at: float
    session: int  # 0 = not of this PID namespace
    group: int
    is_own: bool
    is_here: bool = True

    @property
    def is_worker(self) -> bool:
        return any(TITLE.match(name) for name in (self.title, self.name))

    @property
    def title(self) -> str:
        """What it calls itself; the system's own name has 15 letters at most."""
        return self.argv[0] if self.argv and self.argv[0] else self.name


def process_table() -> dict[int, Row]:
    """All live processes by pid; those that have ended and were not collected are left out."""
    ours, found = _namespace(os.getpid()), {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError), process.oneshot():
            if process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = _row(process, ours)
    return found


def _row(process: psutil.Process, our_namespace: str) -> Row:
    pid, theirs = process.pid, _namespace(process.pid)
    return Row(
        pid,
        process.ppid(),
        process.name(),
        _argv(process),
        process.create_time(),
        os.getsid(pid),
        os.getpgid(pid),
        process.uids().effective == os.geteuid(),
        not theirs or theirs == our_namespace,
    )


def _argv(process: psutil.Process) -> tuple[str, ...]:
    try:
        return tuple(process.cmdline())
    except psutil.AccessDenied:
        return ()


def _namespace(pid: int) -> str:
    """Names the PID namespace of a process; "" where that cannot be read."""
    try:
        return str(Path(_NAMESPACE.format(pid)).readlink())
    except OSError:
        return ""


def is_first_namespace() -> bool:
    """Whether this tool sees the processes of the whole machine."""
    return _namespace(os.getpid()) == FIRST_NAMESPACE


def listeners() -> tuple[Listener, ...]:
    """Who listens on which TCP port, as far as this user may see."""
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.AccessDenied, OSError):
        return ()
    listening = {(c.laddr[1], c.pid) for c in connections if c.status == psutil.CONN_LISTEN and c.laddr}
    return tuple(Listener(port, pid, _name(pid)) for port, pid in sorted(listening, key=str))


def _name(pid: int | None) -> str:
    with suppress(psutil.Error):
        return "" if pid is None else str(psutil.Process(pid).name())
    return ""


def engine_processes(table: Mapping[int, Row], listening: Sequence[Listener]) -> tuple[EngineProcess, ...]:
    """Servers, their workers, and the resource trackers of their sessions, in the order of their pids."""
    engines = {pid: process for pid, row in table.items() if (process := _engine_process(row, table))}
    sessions = {process.session for process in engines.values() if process.session}
    trackers = {
        pid: _process(row, table, Role.TRACKER, "")
        for pid, row in table.items()
        if row.session in sessions and _is_tracker(row)
    }
    ports = {pid: tuple(li.port for li in listening if li.pid == pid) for pid in engines}
    found = {**engines, **trackers}
    return tuple(replace(found[pid], ports=ports.get(pid, ())) for pid in sorted(found))


def _engine_process(row: Row, table: Mapping[int, Row]) -> EngineProcess | None:
    if row.is_worker:
        engine = "SGLang" if "sglang::" in row.title + row.name else "vLLM"
        return _process(row, table, Role.WORKER, engine)
    engine = server_engine(row.argv)
    parent = table.get(row.parent)
    if not engine or (parent is not None and parent.argv == row.argv):  # forked, and not yet with a title
        return None
    return replace(_process(row, table, Role.SERVER, engine), port=_told_port(row.argv, engine))


def _process(row: Row, table: Mapping[int, Row], role: Role, engine: str) -> EngineProcess:
    title = row.title
    if role is Role.SERVER:
        title = " ".join((Path(row.argv[0]).name, *masked(row.argv)[1:]))
    return EngineProcess(
        row.pid,
        role,
        "resource_tracker" if role is Role.TRACKER else title.strip(),
        engine,
        row.started_at,
        row.parent,
        row.session,
        row.is_own,
        row.is_here,
        owner=_owner(row, table),
        is_leader_dead=_is_dead(row.session, row, table) or _is_dead(row.group, row, table),
    )


def server_engine(argv: Sequence[str]) -> str:
    """The engine whose server this command line starts; "" if it starts none."""
    if not argv:
        return ""
    program, rest = Path(argv[0]).name, tuple(argv[1:])
    if program == "llama-server":
        return "llama.cpp"
    if _PYTHON.match(program):
        program, rest = _run_by_python(rest)
    if program in MODULES:
        return MODULES[program]
    return PROGRAMS.get(program, "") if rest[:1] == ("serve",) else ""


def _run_by_python(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The module or script that Python runs, and the words that this one is given."""
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "-m" and left:
            return left[0], tuple(left[1:])
        if word == "-c":
            break
        if word in _WITH_VALUE:
            left = left[1:]
        elif not word.startswith("-"):
            return Path(word).name, tuple(left)
    return "", ()


def _told_port(argv: Sequence[str], engine: str) -> int:
    for word, following in zip(argv, (*argv[1:], ""), strict=True):
        value = following if word == "--port" else word.removeprefix("--port=")
        if word.startswith("--port") and value.isdigit():
            return int(value)
    return DEFAULT_PORTS[engine]


def _is_tracker(row: Row) -> bool:
    return any(TRACKS in word for word in row.argv)


def _owner(row: Row, table: Mapping[int, Row]) -> int | None:
    """The nearest live server among its ancestors, or what else of its session keeps it.

    Workers above it do not count: they may be orphans themselves. Nor does what took it over.
    """
    above, passed = table.get(row.parent), {row.pid}
    while above is not None and above.pid not in passed:
        passed.add(above.pid)
        is_of_session = row.session != 0 and above.session == row.session
        if not above.is_worker and (server_engine(above.argv) or is_of_session):
            return above.pid
        above = table.get(above.parent)
    return None


def _is_dead(leader: int, row: Row, table: Mapping[int, Row]) -> bool:
    """Whether the process that a session or group is named after has ended; its pid may be another's now."""
    found = table.get(leader)
    if leader == 0 or leader == row.pid:
        return False
    return found is None or found.started_at > row.started_at + START_TIME_TOLERANCE_S


def kept_by_a_tool(pid: int, table: Mapping[int, Row]) -> bool:
    """Whether a server runs below the guard of a tool that lives: that one ends it."""
    above, passed = table.get(pid), set[int]()
    while above is not None and above.pid not in passed:
        passed.add(above.pid)
        if any(Path(word).parts[-2:] == GUARD.parts[-2:] for word in above.argv):
            return True
        above = table.get(above.parent)
    return False


def with_details(processes: Sequence[EngineProcess]) -> tuple[EngineProcess, ...]:
    """The same with program, folder and memory, where this user may see them."""
    return tuple(replace(p, **dict(_details(p))) for p in processes)


def _details(process: EngineProcess) -> Iterator[tuple[str, Any]]:
    with suppress(psutil.Error):
        live = psutil.Process(process.pid)
        if abs(live.create_time() - process.started_at) > START_TIME_TOLERANCE_S:
            return
        for field, ask in (("exe", live.exe), ("cwd", live.cwd)):
            with suppress(psutil.AccessDenied):
                yield field, ask()
        yield "memory_bytes", live.memory_info().rss
