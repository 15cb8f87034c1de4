"""Processes as servers: exit codes, logs, and that nothing is left whatever ends first."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from launchers.launcher import Launch, Launcher
from launchers.leftovers import reap
from launchers.port import free_port, is_free, listener_pid
from launchers.process import ProcessLauncher
from tests.contracts.launcher_contract import LauncherContract
from tests.waiting import wait_for

LISTEN = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
SLEEP = "print('up', flush=True); time.sleep(600)"
# A child in a session of its own, whose parent ends: it leaves group and family.
ESCAPE = "import os; 0 if os.fork() else (os.setsid(), os.fork() and os._exit(0)); "
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "


def python(code: str, port: int, log_path: Path) -> Launch:
    return Launch((sys.executable, "-S", "-c", code, str(port)), port, log_path)


class TestProcessLauncher(LauncherContract):
    @pytest.fixture
    def launcher(self, tmp_path: Path) -> Launcher:
        return ProcessLauncher(tmp_path)

    @pytest.fixture
    def launch(self, tmp_path: Path) -> Callable[[int], Launch]:
        return lambda port: python(LISTEN + SLEEP, port, tmp_path / f"{port}.log")


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("raise SystemExit(3)", 3),
        ("pass", 0),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_exit_code_reaches_the_tool(tmp_path: Path, code: str, exit_code: int) -> None:
    with ProcessLauncher(tmp_path).start(python(code, free_port(), tmp_path / "log")) as endpoint:
        wait_for(lambda: endpoint.exit_code() is not None)
        assert endpoint.exit_code() == exit_code
    assert endpoint.exit_code() == exit_code


def test_log_has_both_streams_from_the_first_line(tmp_path: Path) -> None:
    code = "import sys; print('to stdout', flush=True); print('to stderr', file=sys.stderr)"
    launch = python(code, free_port(), tmp_path / "logs" / "server.log")
    with ProcessLauncher(tmp_path).start(launch) as endpoint:
        wait_for(lambda: endpoint.exit_code() is not None)
    assert launch.log_path.read_text() == "to stdout\nto stderr\n"


def test_environment_is_added(tmp_path: Path) -> None:
    code = "import os; print(os.environ['ADDED'], 'PATH' in os.environ)"
    launch = python(code, free_port(), tmp_path / "log")
    launch = Launch(launch.argv, launch.port, launch.log_path, {"ADDED": "yes"})
    with ProcessLauncher(tmp_path).start(launch) as endpoint:
        wait_for(lambda: endpoint.exit_code() is not None)
    assert launch.log_path.read_text() == "yes True\n"


def test_a_process_that_left_the_group_is_ended_too(tmp_path: Path) -> None:
    port = free_port()
    launch = python(ESCAPE + LISTEN + SLEEP, port, tmp_path / "log")
    with ProcessLauncher(tmp_path).start(launch) as endpoint:
        wait_for(lambda: not is_free(port))
        assert endpoint.owns_port()
        pids = endpoint.pids()
    assert pids
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert is_free(port)


def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launchers.process.GRACE_S", 0.2)
    port = free_port()
    launch = python(STUBBORN + LISTEN + SLEEP, port, tmp_path / "log")
    with ProcessLauncher(tmp_path).start(launch) as endpoint:
        wait_for(lambda: not is_free(port))
    assert endpoint.exit_code() == -signal.SIGKILL


def test_every_server_is_noted_with_its_end(tmp_path: Path) -> None:
    port = free_port()
    with ProcessLauncher(tmp_path).start(python(LISTEN + SLEEP, port, tmp_path / "log")) as endpoint:
        (started,) = noted(tmp_path)
        assert started["event"] == "started"
        assert started["pid"] == endpoint.pid
        assert started["port"] == port
        assert started["tool_pid"] == os.getpid()
    assert [note["event"] for note in noted(tmp_path)] == ["started", "ended"]
    assert noted(tmp_path)[1]["exit_code"] == -signal.SIGTERM


def noted(run_dir: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run_dir / "servers.jsonl").read_text().splitlines()]


# The tool in a process of its own, so that it can be killed

TOOL = """
import sys, time
from pathlib import Path
from launchers.launcher import Launch
from launchers.process import ProcessLauncher
run_dir, code, port = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
launch = Launch((sys.executable, "-S", "-c", code, port), int(port), run_dir / "log")
with ProcessLauncher(run_dir).start(launch):
    time.sleep(600)
"""


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def tool(tmp_path: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A tool that drives a server on `port`."""
    process = subprocess.Popen([sys.executable, "-c", TOOL, str(tmp_path), LISTEN + SLEEP, str(port)])
    wait_for(lambda: not is_free(port) or process.poll() is not None)
    yield process
    process.kill()
    process.wait()
    wait_for(lambda: is_free(port))


def test_killing_the_tool_leaves_no_server(port: int, tool: subprocess.Popen[bytes]) -> None:
    tool.kill()
    tool.wait()
    wait_for(lambda: is_free(port))


def test_killing_the_tool_ends_the_guard_as_well(tool: subprocess.Popen[bytes]) -> None:
    below = psutil.Process(tool.pid).children(recursive=True)
    assert len(below) == 2  # guard and server
    tool.kill()
    tool.wait()
    wait_for(lambda: not any(process.is_running() for process in below))


def test_a_server_of_a_living_tool_is_not_a_leftover(
    tmp_path: Path, port: int, tool: subprocess.Popen[bytes]
) -> None:
    assert reap(tmp_path, end=True) == []
    assert not is_free(port)


def test_a_server_does_not_outlive_tool_and_guard(
    tmp_path: Path, port: int, tool: subprocess.Popen[bytes]
) -> None:
    (guard,) = psutil.Process(tool.pid).children()
    guard.kill()
    tool.kill()
    tool.wait()
    wait_for(lambda: is_free(port))
    assert reap(tmp_path, end=True) == []


def test_a_pid_that_was_reused_is_not_touched(
    tmp_path: Path, port: int, tool: subprocess.Popen[bytes]
) -> None:
    (note,) = noted(tmp_path)
    other_tool = {**note, "tool_pid": note["tool_pid"], "tool_created_at": 1.0}  # that tool is dead
    earlier = {**other_tool, "created_at": float(str(note["created_at"])) - 1000}
    another_boot = {**other_tool, "boot": "another"}
    for changed in (earlier, another_boot):
        (tmp_path / "servers.jsonl").write_text(json.dumps(changed) + '\n{"event": "sta')
        assert reap(tmp_path, end=True) == []
    assert not is_free(port)
    (tmp_path / "servers.jsonl").write_text(json.dumps(other_tool) + "\n")
    (leftover,) = reap(tmp_path, end=False)  # the same note, unchanged but for the dead tool
    assert (leftover.pid, leftover.port) == (listener_pid(port), port)
    assert reap(tmp_path, end=True) == [leftover]
    assert is_free(port)
    assert reap(tmp_path, end=True) == []


def test_no_run_folder_no_leftovers(tmp_path: Path) -> None:
    assert reap(tmp_path / "none", end=True) == []
