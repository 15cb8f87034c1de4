"""Servers that somebody else runs, at a URL: nothing is started here, and nothing is ended."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import psutil

from launchers.launcher import Launch
from launchers.port import listener_pid
from results.errors import LaunchFailed, UsageError
from results.reasons import Reason

# Programs that listen for a server which runs elsewhere, or whose processes are not below them.
FORWARDERS = ("docker-proxy", "rootlessport", "slirp4netns", "pasta", "ssh", "sshd", "kubectl", "socat")
CONNECT_S = 10.0


def server_url(text: str) -> str:
    """The address of a server as it is recorded: without `/v1` and without a slash at the end.

    Raises UsageError if it is none, or holds credentials.
    """
    if "@" in text.partition("//")[2].partition("/")[0]:  # before any message that quotes it
        raise UsageError("an address with credentials in it would be recorded: use api_key_env")
    try:
        url = urlsplit(text.strip())
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"{text!r} is no address of a server: write http://HOST:PORT or https://HOST")
    if url.query or url.fragment:
        shown = SplitResult(url.scheme, url.netloc, url.path, "", "").geturl()  # a key may follow it
        raise UsageError(f"{shown}: leave out what follows the path")
    path = url.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return SplitResult(url.scheme, url.netloc, path, "", "").geturl()


def is_on_this_machine(url: str) -> bool:
    """Whether the host of a URL is loopback."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class AttachedEndpoint:
    """A server at a URL. Whether it is gone shows only in its answers."""

    def __init__(self, base_url: str, log_path: Path) -> None:
        self.base_url = base_url
        self.log_path = log_path  # stays absent: the log is somebody else's

    def exit_code(self) -> int | None:
        return None

    def owns_port(self) -> bool:
        return True  # there is no launch that it could belong to

    def pids(self) -> tuple[int, ...]:
        """The listener and all below it, where this user may see them."""
        if self._listener is None:
            return ()
        try:
            return (self._listener.pid, *(p.pid for p in self._listener.children(recursive=True)))
        except psutil.Error:
            return ()

    @cached_property
    def _listener(self) -> psutil.Process | None:
        """Looked for once: it reads what every process of the machine has open."""
        url = urlsplit(self.base_url)
        pid = None
        if is_on_this_machine(self.base_url):
            pid = listener_pid(url.port or (443 if url.scheme == "https" else 80))
        try:
            found = psutil.Process(pid) if pid is not None else None
            return None if found is None or found.name() in FORWARDERS else found
        except psutil.Error:
            return None

    def environment(self) -> Mapping[str, str] | None:
        return None

    def killed_for_memory(self) -> str | None:
        return None

    def ended_from_outside(self) -> str | None:
        return None

    def part_ended(self) -> str:
        return ""


class AttachLauncher:
    """Launcher of what runs already. The command of such a Launch is the URL alone; its port is not used."""

    @contextmanager
    def start(self, launch: Launch) -> Iterator[AttachedEndpoint]:
        try:
            url = server_url(launch.argv[0])
        except UsageError as error:
            raise LaunchFailed(Reason.START_FAILED, str(error)) from None
        _refuse_if_gone(url)
        yield AttachedEndpoint(url, launch.log_path)


def _refuse_if_gone(url: str) -> None:
    """A server that was up at the beginning and is gone is not waited for: nobody here starts it again."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname, port), CONNECT_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise LaunchFailed(Reason.SERVER_DIED, f"{url} does not answer any more ({reason})") from None
