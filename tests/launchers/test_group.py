"""Servers of several processes on this machine: they start, live and end together."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from launchers.engines import launch_of
from launchers.fake import FakeEngine, FakeLauncher
from launchers.group import LOG_BYTES, Group, GroupLauncher, LaunchedPart, LocalMember, last_of
from launchers.launcher import Launch, Launcher
from launchers.port import free_port, is_free, listener_pid
from launchers.process import ProcessLauncher
from results.errors import LaunchFailed, UsageError
from results.reasons import Reason
from results.records import BASELINE
from tests.contracts.launcher_contract import LauncherContract
from tests.waiting import wait_for

LISTEN = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
SLEEP = "print('up', flush=True); time.sleep(600)"


def python(code: str, log_path: Path, others: Sequence[Launch] = ()) -> Launch:
    port = free_port()
    return Launch((sys.executable, "-S", "-c", code, str(port)), port, log_path, others=tuple(others))


def group(tmp_path: Path, count: int = 1) -> GroupLauncher:
    members = [LocalMember(f"node-{rank}", ProcessLauncher(tmp_path)) for rank in range(1, count + 1)]
    return GroupLauncher(ProcessLauncher(tmp_path), members)


class TestGroupLauncher(LauncherContract):
    @pytest.fixture
    def launcher(self, tmp_path: Path) -> Launcher:
        return group(tmp_path)

    @pytest.fixture
    def launch(self, tmp_path: Path) -> Callable[[int], Launch]:
        def made(port: int) -> Launch:
            other = python(LISTEN + SLEEP, tmp_path / f"{port}.rank1.log")
            argv = (sys.executable, "-S", "-c", LISTEN + SLEEP, str(port))
            return Launch(argv, port, tmp_path / f"{port}.log", others=(other,))

        return made


def test_all_ranks_end_with_the_context(tmp_path: Path) -> None:
    others = [python(LISTEN + SLEEP, tmp_path / f"log.rank{rank}.log") for rank in (1, 2)]
    launch = python(LISTEN + SLEEP, tmp_path / "log", others)
    ports = [launch.port, *(other.port for other in others)]
    with group(tmp_path, 2).start(launch) as endpoint:
        wait_for(lambda: not any(map(is_free, ports)))
        assert endpoint.exit_code() is None
        assert endpoint.part_ended() == ""
        assert endpoint.log_path == launch.log_path
    assert all(map(is_free, ports))


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_one_that_is_killed_ends_the_server_and_is_named(tmp_path: Path, rank: int) -> None:
    others = [python(LISTEN + SLEEP, tmp_path / f"log.rank{other}.log") for other in (1, 2)]
    launch = python(LISTEN + SLEEP, tmp_path / "log", others)
    ports = [launch.port, *(other.port for other in others)]
    with group(tmp_path, 2).start(launch) as endpoint:
        wait_for(lambda: not any(map(is_free, ports)))
        pid = listener_pid(ports[rank])
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: endpoint.exit_code() is not None)
        assert endpoint.exit_code() == -signal.SIGKILL
        assert endpoint.part_ended() == f"rank {rank} on {'node-' + str(rank) if rank else 'this node'}"
        assert endpoint.log_path == (launch.log_path if rank == 0 else others[rank - 1].log_path)
    assert all(map(is_free, ports))


def test_a_rank_that_misses_another_is_not_the_cause(tmp_path: Path) -> None:
    """Rank 0 notices the end of rank 1 before the process of rank 1 is over."""
    first = "print('RuntimeError: [gloo/pair.cc:525] Connection closed by peer [10.0.0.2]:6131')"
    cause = "import time; print('CUDA out of memory', flush=True); time.sleep(1); raise SystemExit(7)"
    other = python(cause, tmp_path / "log.rank1.log")
    with group(tmp_path).start(python(first, tmp_path / "log", [other])) as endpoint:
        wait_for(lambda: endpoint.exit_code() is not None)
        assert (endpoint.exit_code(), endpoint.part_ended()) == (7, "rank 1 on node-1")
        assert "out of memory" in endpoint.log_path.read_text()


def test_where_each_only_misses_another_the_first_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launchers.group.SETTLE_S", 0.1)
    code = "print('ncclRemoteError: A call failed possibly due to a network error'); raise SystemExit(3)"
    other = python(LISTEN + SLEEP, tmp_path / "log.rank1.log")
    with group(tmp_path).start(python(code, tmp_path / "log", [other])) as endpoint:
        wait_for(lambda: endpoint.exit_code() is not None)
        assert (endpoint.exit_code(), endpoint.part_ended()) == (3, "rank 0 on this node")


def test_a_rank_that_cannot_start_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    fine = python(LISTEN + SLEEP, tmp_path / "log.rank1.log")
    missing = Launch(("/no/such/server",), free_port(), tmp_path / "log.rank2.log")
    launch = python(LISTEN + SLEEP, tmp_path / "log", [fine, missing])
    with pytest.raises(LaunchFailed, match="rank 2 on node-2: cannot run /no/such/server") as failed:
        group(tmp_path, 2).start(launch).__enter__()
    assert failed.value.reason is Reason.START_FAILED
    assert is_free(fine.port)
    assert not [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def test_a_port_that_is_taken_ends_the_other_ranks(tmp_path: Path) -> None:
    other = python(LISTEN + SLEEP, tmp_path / "log.rank1.log")
    taken = python(LISTEN + SLEEP, tmp_path / "taken")
    with ProcessLauncher(tmp_path).start(taken):
        wait_for(lambda: not is_free(taken.port))
        with pytest.raises(UsageError, match=f"port {taken.port} is taken"):
            group(tmp_path).start(
                Launch(taken.argv, taken.port, tmp_path / "log", others=(other,))
            ).__enter__()
    assert is_free(other.port)


class FarMember(LocalMember):
    """A member whose disk is another one."""

    def start(self, launch: Launch) -> LaunchedPart:
        far = launch.log_path.parent / "far" / "log"
        return super().start(Launch(launch.argv, launch.port, far))


def test_the_log_of_another_node_comes_here(tmp_path: Path) -> None:
    launcher = GroupLauncher(ProcessLauncher(tmp_path), [FarMember("far", ProcessLauncher(tmp_path))])
    other = python(LISTEN + SLEEP, tmp_path / "log.rank1.log")
    with launcher.start(python(LISTEN + SLEEP, tmp_path / "log", [other])):
        wait_for(lambda: not is_free(other.port))
        wait_for(lambda: "up" in (tmp_path / "far" / "log").read_text())
        assert not other.log_path.exists()
    assert other.log_path.read_text() == "up\n"


def test_of_a_long_log_the_end_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a" * LOG_BYTES + "the end")
    assert len(last_of(log)) == LOG_BYTES
    assert last_of(log).endswith("the end")
    assert last_of(tmp_path / "none") == ""


def test_a_launch_over_nodes_has_a_command_for_each(tmp_path: Path) -> None:
    engine = FakeEngine()
    members = [LocalMember(f"node-{rank}", ProcessLauncher(tmp_path)) for rank in (1, 2)]
    served = engine.resolve("m", None, {}, {"NCCL_DEBUG": "WARN"})
    launch = launch_of(engine, served, BASELINE, 1234, tmp_path / "b0.log", Group("127.0.0.1", members))
    assert launch.argv[:5] == ("fake-server", BASELINE.key, "1234", "0", "3")
    meeting = launch.argv[5]
    assert [other.argv[-3:] for other in launch.others] == [("1", "3", meeting), ("2", "3", meeting)]
    assert [other.log_path.name for other in launch.others] == ["b0.rank1.log", "b0.rank2.log"]
    assert len({launch.port, *(other.port for other in launch.others)}) == 3
    assert all(other.env == {"NCCL_DEBUG": "WARN"} for other in launch.others)
    with GroupLauncher(FakeLauncher(engine), members).start(launch) as endpoint:
        assert engine.is_ready(endpoint)
        wait_for(lambda: "fake rank 2 of 3" in launch.others[1].log_path.read_text())
