"""Whose engine processes are: from scripted tables, and from small processes that bear engines' names."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launchers.orphans import (
    Row,
    engine_processes,
    kept_by_a_tool,
    listeners,
    process_table,
    server_engine,
    with_details,
)
from results.machine_state import EngineProcess, Listener, Role
from results.secrets import HIDDEN
from tests.waiting import wait_for

SGLANG = ("/venv/bin/python", "-m", "sglang.launch_server", "--model-path", "m", "--port", "30001")
TRACKER = ("python", "-c", "from multiprocessing.resource_tracker import main;main(31)")


def row(pid: int, parent: int, *argv: str, session: int = 100, group: int = 0, started: float = 10.0) -> Row:
    return Row(pid, parent, argv[0][:15], argv, started, session, group or session, True)


def found(*rows: Row, listening: tuple[Listener, ...] = ()) -> dict[int, EngineProcess]:
    table = {r.pid: r for r in (row(1, 0, "/sbin/init", session=1, started=1.0), *rows)}
    return {p.pid: p for p in engine_processes(table, listening)}


def test_a_live_server_keeps_its_workers() -> None:
    """As a container shows it: the server's parent is the first process, which proves nothing."""
    processes = found(
        row(100, 1, *SGLANG),
        row(101, 100, *TRACKER),
        row(102, 100, "sglang::scheduler_TP0", started=12.0),
        row(103, 100, "sglang::detokenizer", started=12.0),
        listening=(Listener(30001, 100),),
    )
    assert {pid: (p.role, p.owner, p.is_orphan) for pid, p in processes.items()} == {
        100: (Role.SERVER, None, False),
        101: (Role.TRACKER, 100, False),
        102: (Role.WORKER, 100, False),
        103: (Role.WORKER, 100, False),
    }
    assert (processes[100].engine, processes[100].port, processes[100].ports) == ("SGLang", 30001, (30001,))
    assert processes[102].engine == "SGLang"


def test_the_whole_signature_makes_an_orphan() -> None:
    """The launcher, which its session is named after, is gone; the tracker of the session stays."""
    processes = found(row(101, 1, *TRACKER), row(103, 1, "sglang::detokenizer", started=12.0))
    assert processes[103].is_orphan
    assert (processes[101].role, processes[101].owner) == (Role.TRACKER, None)


def test_workers_below_an_orphan_are_orphans_too() -> None:
    processes = found(row(102, 1, "VLLM::EngineCore"), row(104, 102, "VLLM::Worker_TP0"))
    assert [processes[pid].is_orphan for pid in (102, 104)] == [True, True]
    assert processes[102].engine == "vLLM"


def test_the_first_process_as_parent_alone_proves_nothing() -> None:
    """Its session lives: somebody may look after it."""
    processes = found(row(100, 1, "bash", "run.sh"), row(103, 1, "sglang::detokenizer", started=12.0))
    assert processes[103].owner is None
    assert not processes[103].is_orphan


def test_a_script_that_uses_an_engine_keeps_its_workers() -> None:
    """An engine in a program of one's own has no server, and is no orphan."""
    processes = found(
        row(100, 1, "bash", started=5.0),
        row(101, 100, "python", "bench.py", group=101, started=8.0),
        row(102, 101, "sglang::scheduler", group=101, started=12.0),
    )
    assert processes[102].owner == 101


def test_a_job_of_a_live_shell_is_known_by_its_group() -> None:
    """The shell lives, and its session with it; the job, named after its launcher, has lost that one."""
    processes = found(
        row(100, 1, "bash", started=5.0),
        row(102, 1, "sglang::scheduler", group=101, started=12.0),
    )
    assert processes[102].is_orphan


def test_a_server_in_another_session_keeps_its_workers() -> None:
    processes = found(row(90, 1, *SGLANG, session=90), row(102, 90, "sglang::scheduler", session=102))
    assert processes[102].owner == 90


def test_a_pid_that_was_given_anew_is_no_leader() -> None:
    processes = found(
        row(100, 1, "vim", session=100, started=5000.0), row(103, 1, "sglang::detokenizer", started=12.0)
    )
    assert processes[103].is_orphan


def test_a_session_of_another_namespace_is_not_known_to_be_dead() -> None:
    processes = found(row(103, 0, "sglang::detokenizer", session=0))
    assert not processes[103].is_orphan


def test_a_child_that_was_forked_is_no_second_server() -> None:
    processes = found(row(100, 1, *SGLANG), row(101, 100, *SGLANG))
    assert list(processes) == [100]


def test_a_program_that_only_talks_of_an_engine_is_none() -> None:
    assert found(row(100, 1, "vim", "sglang::notes"), row(101, 1, "grep", "sglang.launch_server")) == {}


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        ("python3.11 -m sglang.launch_server --port 1", "SGLang"),
        ("/venv/bin/python -X dev -W ignore -u -m sglang.launch_server", "SGLang"),
        ("/usr/bin/python /venv/bin/sglang serve --model-path m", "SGLang"),
        ("/venv/bin/python /venv/bin/vllm serve m", "vLLM"),
        ("python -m vllm.entrypoints.openai.api_server --model m", "vLLM"),
        ("python -m vllm.entrypoints.cli.main serve m", "vLLM"),
        ("vllm serve m", "vLLM"),
        ("/opt/llama-server -m m.gguf", "llama.cpp"),
        ("python -P -m launchers.embedded --model m", "llama.cpp"),
        ("vllm bench serve", ""),
        ("python -m vllm.entrypoints.cli.main bench", ""),
        ("python -c sglang.launch_server", ""),
        ("bash -c sglang.launch_server", ""),
        ("python -m", ""),
        ("python", ""),
        ("", ""),
    ],
)
def test_servers_by_their_command(command: str, engine: str) -> None:
    assert server_engine(command.split()) == engine


@pytest.mark.parametrize(
    ("words", "port"), [(("--port", "1234"), 1234), (("--port=99",), 99), ((), 8000), (("--port", "x"), 8000)]
)
def test_the_port_that_a_server_was_told(words: tuple[str, ...], port: int) -> None:
    assert found(row(100, 1, "vllm", "serve", "m", *words))[100].port == port


def test_no_secret_of_a_command_is_kept() -> None:
    shown = found(row(100, 1, "vllm", "serve", "m", "--api-key", "very-secret"))[100].title
    assert shown == f"vllm serve m --api-key {HIDDEN}"


def test_a_server_below_a_guard_is_a_tools_own() -> None:
    guard = row(98, 1, "python", "-S", "-E", "/lib/launchers/guard.py", "5.0", session=98)
    table = {r.pid: r for r in (guard, row(100, 98, *SGLANG), row(200, 1, *SGLANG))}
    assert kept_by_a_tool(100, table)
    assert not kept_by_a_tool(200, table)


SLEEPS = "import sys, time; print(flush=True); time.sleep(600)"
# A leader of a session starts a child under an engine's name and tells its pid.
LEADS = """
import subprocess, sys
child = subprocess.Popen(["{title}", "-c", {sleeps!r}], executable=sys.executable, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""

Started = Callable[[str], tuple[subprocess.Popen[str], int]]


@pytest.fixture
def started() -> Iterator[Started]:
    """Starts a leader with a child of this title; both are ended by pid."""
    leaders: list[subprocess.Popen[str]] = []
    children: list[int] = []

    def start(title: str) -> tuple[subprocess.Popen[str], int]:
        code = LEADS.format(title=title, sleeps=SLEEPS)
        argv = [sys.executable, "-c", code]
        leader = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        leaders.append(leader)
        assert leader.stdout is not None
        children.append(int(leader.stdout.readline()))
        return leader, children[-1]

    yield start
    for leader in leaders:
        leader.kill()
        leader.communicate()
    for child in children:
        if child in process_table():
            os.kill(child, 9)


def test_a_real_process_is_kept_by_its_session_until_that_is_gone(started: Started) -> None:
    leader, child = started("sglang::scheduler_TP0")

    def looked_at() -> EngineProcess:
        return next(p for p in engine_processes(process_table(), ()) if p.pid == child)

    kept = looked_at()
    assert (kept.title, kept.owner, kept.is_orphan) == ("sglang::scheduler_TP0", leader.pid, False)
    leader.kill()
    leader.wait()
    wait_for(lambda: looked_at().owner is None)
    (orphan,) = with_details([looked_at()])
    assert orphan.is_orphan
    assert orphan.session == leader.pid
    assert (orphan.is_own, orphan.is_here) == (True, True)
    assert orphan.exe == os.path.realpath(sys.executable)
    assert orphan.cwd == str(Path.cwd())
    assert (orphan.memory_bytes or 0) > 2**20
    assert abs(time.time() - orphan.started_at) < 600


def test_a_killed_leader_that_nobody_collected_is_dead(started: Started) -> None:
    leader, child = started("VLLM::EngineCore")
    leader.kill()
    os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)  # dead, and still listed
    assert next(p for p in engine_processes(process_table(), ()) if p.pid == child).is_orphan


def test_details_are_of_the_process_that_was_seen(started: Started) -> None:
    """Its pid may be another's by now."""
    _, child = started("VLLM::Worker")
    seen = next(p for p in engine_processes(process_table(), ()) if p.pid == child)
    (other,) = with_details([EngineProcess(child, Role.WORKER, "VLLM::Worker", "vLLM", 1.0, 1, 1, True)])
    assert (other.exe, other.memory_bytes) == ("", None)
    assert with_details([seen])[0].exe


def test_who_listens(scripted_port: int) -> None:
    assert (scripted_port, os.getpid()) in {(li.port, li.pid) for li in listeners()}


@pytest.fixture
def scripted_port() -> Iterator[int]:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]
