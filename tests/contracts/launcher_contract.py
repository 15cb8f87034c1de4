"""What every Launcher must do, whatever it starts. Subclass it and provide the fixtures."""

import socket
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from launchers.launcher import Launch, Launcher
from launchers.port import free_port, is_free
from results.errors import LaunchFailed, UsageError
from tests.waiting import wait_for


class AnyLauncherContract:
    """Also of a launcher that starts nothing itself."""

    @pytest.fixture
    def launcher(self, tmp_path: Path) -> Launcher:
        raise NotImplementedError

    def test_a_command_that_cannot_run_is_a_failed_launch(self, launcher: Launcher, tmp_path: Path) -> None:
        launch = Launch(("/no/such/server",), free_port(), tmp_path / "log")
        with pytest.raises(LaunchFailed, match="/no/such/server"):
            launcher.start(launch).__enter__()


class LauncherContract(AnyLauncherContract):
    @pytest.fixture
    def launch(self, tmp_path: Path) -> Callable[[int], Launch]:
        """Port -> a Launch that comes to listen on it."""
        raise NotImplementedError

    def test_serves_its_own_port_and_frees_it(
        self, launcher: Launcher, launch: Callable[[int], Launch]
    ) -> None:
        port = free_port()
        with launcher.start(launch(port)) as endpoint:
            wait_for(lambda: not is_free(port))
            assert endpoint.exit_code() is None
            assert endpoint.owns_port()
            assert endpoint.base_url == f"http://127.0.0.1:{port}"
            assert endpoint.log_path.exists()
            pids = endpoint.pids()
        assert is_free(port)
        assert not any(psutil.pid_exists(pid) for pid in pids)

    def test_taken_port_is_a_usage_error_that_names_the_holder(
        self, launcher: Launcher, launch: Callable[[int], Launch]
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as holder:
            port = holder.getsockname()[1]
            with pytest.raises(UsageError, match=rf"port {port} is taken by pid \d+ \("):
                launcher.start(launch(port)).__enter__()

    def test_two_servers_are_told_apart(self, launcher: Launcher, launch: Callable[[int], Launch]) -> None:
        ports = free_port(), free_port()
        with launcher.start(launch(ports[0])) as one, launcher.start(launch(ports[1])) as two:
            wait_for(lambda: not any(map(is_free, ports)))
            assert one.owns_port()
            assert two.owns_port()
            assert not set(one.pids()) & set(two.pids())

    def test_error_inside_still_ends_the_server(
        self, launcher: Launcher, launch: Callable[[int], Launch]
    ) -> None:
        port = free_port()
        with pytest.raises(KeyboardInterrupt), launcher.start(launch(port)):
            wait_for(lambda: not is_free(port))
            raise KeyboardInterrupt
        assert is_free(port)
