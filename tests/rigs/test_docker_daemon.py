"""The daemon goes away in the middle: what is told, and that nothing is left when it is back."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchers.containers.images import Images
from launchers.containers.launcher import DockerLauncher
from launchers.containers.options import ContainerOptions
from launchers.launcher import Launch
from launchers.leftovers import reap
from launchers.port import free_port, is_free
from tests.rigs.docker import image
from tests.rigs.needed import needed_image
from tests.rigs.private_daemon import PrivateDaemon, private_daemon
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.rig,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("dockerd") is None, reason="needs root and dockerd"),
]
LISTEN = (
    "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
    "for i in range(100000): print(i, flush=True); time.sleep(0.01)"
)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateDaemon]:
    needed_image()
    with private_daemon() as found:
        monkeypatch.setenv("DOCKER_HOST", found.address)
        yield found


def launcher(run_dir: Path) -> DockerLauncher:
    return Images(ContainerOptions(image.NAME, shm_size="64m", ulimits={})).launcher(run_dir)


def launch(folder: Path) -> Launch:
    port = free_port()
    return Launch(("python3", "-c", LISTEN, str(port)), port, folder / "server.log")


def test_a_daemon_that_is_stopped_takes_the_server_along(daemon: PrivateDaemon, tmp_path: Path) -> None:
    what = launch(tmp_path)
    with launcher(tmp_path).start(what) as endpoint:
        wait_for(lambda: not is_free(what.port))
        daemon.end()
        wait_for(lambda: endpoint.exit_code() is not None)
        assert "docker's daemon went away" in str(endpoint.ended_from_outside())
        assert endpoint.killed_for_memory() is None
        assert endpoint.environment() is None
        assert not endpoint.owns_port()
        assert endpoint.pids() == ()
        daemon.start()
    assert reap(tmp_path, end=False) == []  # removed, though its daemon was another in between
    assert endpoint.exit_code() in (-signal.SIGTERM, -signal.SIGKILL)  # the last may have gone unseen


def test_a_daemon_that_is_killed_leaves_the_server_until_it_is_back(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    what = launch(tmp_path)
    with launcher(tmp_path).start(what) as endpoint:
        wait_for(lambda: not is_free(what.port))
        daemon.end(signal.SIGKILL)
        assert endpoint.exit_code() is None
        assert endpoint.owns_port()
        daemon.start()
        wait_for(lambda: endpoint.exit_code() is not None)
        assert "docker's daemon went away" in str(endpoint.ended_from_outside())
    assert reap(tmp_path, end=False) == []


def test_with_live_restore_server_and_log_go_on(daemon: PrivateDaemon, tmp_path: Path) -> None:
    daemon.end()
    daemon.start("--live-restore")
    what = launch(tmp_path)
    with launcher(tmp_path).start(what) as endpoint:
        wait_for(lambda: not is_free(what.port))
        daemon.end()
        assert endpoint.exit_code() is None
        daemon.start("--live-restore")
        before = len(what.log_path.read_bytes())
        wait_for(lambda: len(what.log_path.read_bytes()) > before + 100)
        assert endpoint.exit_code() is None
        assert endpoint.ended_from_outside() is None
    lines = what.log_path.read_text().splitlines()
    assert lines == [str(i) for i in range(len(lines))]  # none lost, none twice
    assert reap(tmp_path, end=False) == []
