"""The launcher of servers that somebody else runs: it starts nothing, ends nothing, and knows addresses."""

import os
from pathlib import Path

import psutil
import pytest
import requests

from launchers import attach
from launchers.attach import AttachedEndpoint, AttachLauncher, is_on_this_machine, server_url
from launchers.launcher import Launch, Launcher
from launchers.port import free_port
from results.errors import LaunchFailed, UsageError
from results.reasons import Reason
from tests.contracts.launcher_contract import AnyLauncherContract
from tests.launchers.http_server import canned


class TestAttachLauncher(AnyLauncherContract):
    @pytest.fixture
    def launcher(self, tmp_path: Path) -> Launcher:
        return AttachLauncher()


def test_the_server_is_there_before_and_after(tmp_path: Path) -> None:
    with canned({"/health": "ok"}, tmp_path / "its.log") as server:
        log_path = tmp_path / "ours.log"
        with AttachLauncher().start(Launch((server.base_url,), 0, log_path)) as endpoint:
            assert endpoint.base_url == server.base_url
            assert (endpoint.exit_code(), endpoint.owns_port()) == (None, True)
            assert (endpoint.environment(), endpoint.killed_for_memory()) == (None, None)
            assert not endpoint.log_path.exists()
        assert requests.get(f"{server.base_url}/health", timeout=5).ok


def test_a_server_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    """Nobody here starts it again, and the time that a start may take is long."""
    url = f"http://127.0.0.1:{free_port()}"
    launch = Launch((url,), 0, tmp_path / "none.log")
    with (
        pytest.raises(LaunchFailed, match="does not answer any more") as found,
        AttachLauncher().start(launch),
    ):
        pass
    assert found.value.reason is Reason.SERVER_DIED


def test_its_processes_are_those_of_the_listener(tmp_path: Path) -> None:
    with canned({}, tmp_path / "log") as server:
        assert os.getpid() in AttachedEndpoint(server.base_url, tmp_path / "x").pids()
    assert AttachedEndpoint("http://192.0.2.1:8000", tmp_path / "x").pids() == ()
    assert AttachedEndpoint("http://127.0.0.1:1", tmp_path / "x").pids() == ()


def test_a_forwarder_is_not_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "FORWARDERS", (psutil.Process().name(),))
    with canned({}, tmp_path / "log") as server:
        assert AttachedEndpoint(server.base_url, tmp_path / "x").pids() == ()


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("https://llm.example.org/team/v1", "https://llm.example.org/team"),
        (" http://[::1]:8000/v1 ", "http://[::1]:8000"),
    ],
)
def test_an_address_is_recorded_in_one_way(text: str, url: str) -> None:
    assert server_url(text) == url


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://127.0.0.1:8000", "no address of a server"),
        ("http://", "no address of a server"),
        ("http://host:99999", "no address of a server"),
        ("http://user:PLANTED@host:8000", "api_key_env"),
        ("http://user:PLANTED@host:99999", "api_key_env"),
        ("http://host:8000/v1?key=PLANTED", "leave out what follows the path"),
    ],
)
def test_what_is_no_address_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        server_url(text)
    assert "PLANTED" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:1", True),
        ("http://127.8.0.1:1", True),
        ("http://[::1]:1", True),
        ("http://10.0.0.1:1", False),
        ("https://llm.example.org", False),
    ],
)
def test_loopback_is_this_machine(url: str, here: bool) -> None:
    assert is_on_this_machine(url) is here
