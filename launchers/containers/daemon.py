"""The daemon that runs containers: found, asked, and its errors in one sentence that says what to do."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launchers.containers.command import DOCKER, PODMAN
from results.errors import LaunchFailed, UsageError
from results.reasons import Reason

if TYPE_CHECKING:
    from docker import DockerClient

SOCKET = Path("/var/run/docker.sock")
TIMEOUT_S = 60
LOCAL_TCP = re.compile(r"(tcp|http|https)://(127\.[\d.]+|localhost|\[::1\])(:|/|$)")

# What a daemon's message looks like, and what to say; {image} and {tool} are filled in.
_SENTENCES = (
    (
        r"could not select device driver|nvidia-container-cli|unknown runtime.*nvidia|unresolvable CDI",
        "{tool} cannot give containers a GPU: install the NVIDIA Container Toolkit and restart the daemon"
        " (`nvidia-ctk runtime configure`), or leave out container.gpus",
    ),
    (
        r"no such image|image not known|manifest unknown|not found: manifest|pull access denied"
        r"|repository does not exist",
        "the image {image} is not on this machine: {tool} pull {image}",
    ),
    (
        r"no space left on device",
        "no space left where {tool} keeps containers: {tool} system prune, or make room",
    ),
    (
        r"port is already allocated|address already in use",
        "the server's port was taken by another program meanwhile: run the same command again",
    ),
    (
        r"is already in use by container|name is already in use",
        "{tool} has a container of this name: {message}",
    ),
    (
        r"setting rlimit",
        "{tool} may not raise the limits of container.ulimits ({message}): set that to what it can"
        " give, or to {{}}; a rootless daemon cannot go above its own",
    ),
    (
        r"docker-init|init binary|catatonit",
        "{tool} has no init program: install the package tini (or catatonit), or set"
        " container.options.init to false",
    ),
)
_NO_SUCH_PROGRAM = re.compile(
    r'exec: \\?"(?P<program>[^"\\]+)\\?"|executable file `?(?P<other>[^`]+)`? not found'
)


def connect() -> "DockerClient":
    """The daemon of this machine. Raises UsageError: no docker package, no daemon, no permission, remote."""
    try:
        import docker
    except ImportError:
        raise UsageError("containers need the package docker: pip install docker") from None
    address = daemon_address()
    if not is_local(address):
        raise UsageError(
            f"the container daemon at {_without_password(address)} is on another machine: its ports are"
            " not on this machine's loopback; run tuner there"
        )
    with explained(tool=PODMAN if "podman" in address else DOCKER, address=address):
        client = docker.DockerClient(base_url=address, version="auto", timeout=TIMEOUT_S)
        client.ping()
    return client


def daemon_address() -> str:
    """$DOCKER_HOST, else Docker's context in use, else its usual socket, else Podman's."""
    if address := os.environ.get("DOCKER_HOST"):
        return address
    if (chosen := _context_address()) is not None:
        return chosen
    podman = [Path("/run/podman/podman.sock")]
    if folder := os.environ.get("XDG_RUNTIME_DIR"):
        podman.insert(0, Path(folder) / "podman" / "podman.sock")
    found = next((path for path in (SOCKET, *podman) if _is_there(path)), SOCKET)
    return f"unix://{found}"


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return False


def _context_address() -> str | None:
    """Of `docker context use`, if it is another than the default."""
    from docker.context import ContextAPI
    from docker.errors import DockerException

    try:
        context = ContextAPI.get_current_context()
    except (DockerException, OSError, ValueError):
        return None
    return None if context is None or context.Name == "default" else str(context.Host)


def is_local(address: str) -> bool:
    """Whether the daemon's loopback is this machine's."""
    return address.startswith(("unix://", "http+unix://", "npipe://")) or LOCAL_TCP.match(address) is not None


def _without_password(address: str) -> str:
    return re.sub(r"//[^/@]*@", "//", address)


def tool_of(client: "DockerClient") -> str:
    """`docker` or `podman`: the command that talks to this daemon."""
    version = client.version()
    names = [str(part.get("Name", "")) for part in version.get("Components") or ()]
    return PODMAN if any("podman" in name.lower() for name in names) else DOCKER


@contextmanager
def explained(
    *, tool: str = DOCKER, image: str = "", address: str = "", program: str = "", hide: Any = str
) -> Iterator[None]:
    """Errors of the SDK as UsageError; a program that is not in the image as LaunchFailed.

    `hide` takes the secrets out of a daemon's message.
    """
    try:
        yield
    except daemon_errors() as error:
        raise _explanation(error, tool, image, address, program, hide) from None


def _explanation(
    error: BaseException, tool: str, image: str, address: str, program: str, hide: Any
) -> UsageError | LaunchFailed:
    message = hide(_message(error))
    if (no_daemon := _no_daemon(message, tool, address)) is not None:
        return UsageError(no_daemon)
    for pattern, sentence in _SENTENCES:
        if re.search(pattern, message, re.IGNORECASE):
            return UsageError(sentence.format(tool=tool, image=image, message=message))
    if program and (_NO_SUCH_PROGRAM.search(message) or "OCI runtime" in message):
        return LaunchFailed(Reason.START_FAILED, f"cannot run {program} in {image}: {message}")
    return UsageError(f"{tool} refuses: {message}")


def _message(error: BaseException) -> str:
    text = str(getattr(error, "explanation", None) or error)
    return " ".join(text.split())


def _no_daemon(message: str, tool: str, address: str) -> str | None:
    if "PermissionError" in message or ("Permission denied" in message and "onnect" in message):
        group = " (be in the group docker, or use a rootless daemon)" if tool == DOCKER else ""
        return f"no permission to talk to {tool} at {_without_password(address) or 'its socket'}{group}"
    lost = (
        "FileNotFoundError",
        "Connection refused",
        "ConnectionRefused",
        "Connection aborted",
        "Error while fetching",
    )
    if any(sign in message for sign in lost):
        where = _without_password(address) or daemon_address()
        start = "systemctl start docker" if tool == DOCKER else "systemctl start podman.socket"
        return f"no container daemon answers at {where}: start it ({start}), or set DOCKER_HOST"
    return None


def daemon_errors() -> tuple[type[Exception], ...]:
    """What the SDK raises when a daemon refuses, goes away, or is not there."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    return (DockerException, RequestException, HTTPError, OSError)
