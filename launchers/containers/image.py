"""An image as a Place: its programs are asked in containers made like the servers' own, and removed after."""

import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launchers.containers import leftovers
from launchers.containers.command import DOCKER, create_arguments, without_secrets
from launchers.containers.daemon import daemon_errors, explained
from launchers.containers.options import ContainerOptions
from launchers.launcher import Launch
from launchers.place import Ran, Variables
from results.errors import UsageError

if TYPE_CHECKING:
    from docker import DockerClient

PROGRESS_PERIOD_S = 2.0
# Of a server's settings what a container without a network cannot have.
OF_A_NETWORK = ("ports", "mac_address", "extra_hosts", "dns", "dns_opt", "dns_search")
LOOK_UP = 'command -v -- "$1"'

Told = Callable[[str], None]


def silent(line: str) -> None:
    """Tell nobody."""


def ensure_image(client: "DockerClient", name: str, on_progress: Told = silent, tool: str = DOCKER) -> str:
    """The digest of an image, pulled first if it is not here; its id if it never was in a registry.

    `on_progress` gets a line now and then while it is pulled. Raises UsageError.
    """
    if not is_here(client, name, tool):
        _pull(client, name, on_progress)
    with explained(tool=tool, image=name):
        return _digest(client.images.get(name).attrs, name)


def is_here(client: "DockerClient", name: str, tool: str = DOCKER) -> bool:
    """Whether the daemon has the image. Raises UsageError."""
    from docker.errors import ImageNotFound

    with explained(tool=tool, image=name):
        try:
            client.images.get(name)
        except ImageNotFound:
            return False
    return True


def _digest(attrs: Mapping[str, Any], name: str) -> str:
    """`repository@sha256:...` of the repository that the name is of, else of any, else the id."""
    repository = re.split(r"@|:(?=[^/]*$)", name)[0]
    digests: list[str] = sorted(attrs.get("RepoDigests") or ())
    of_name = [d for d in digests if d.partition("@")[0].endswith(repository)]
    return str(next(iter([*of_name, *digests]), attrs["Id"]))


def _pull(client: "DockerClient", name: str, on_progress: Told) -> None:
    from docker.errors import APIError, ImageNotFound
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(name)
    on_progress(f"pulling {name}")
    layers = Layers()
    told_at = time.monotonic()
    try:
        for event in client.api.pull(repository, tag or "latest", stream=True, decode=True):
            if "error" in event:
                raise UsageError(f"cannot pull {name}: {event['error']}")
            layers.note(event)
            if time.monotonic() - told_at > PROGRESS_PERIOD_S:
                told_at = time.monotonic()
                on_progress(f"pulling {name}: {layers}")
    except (ImageNotFound, APIError) as error:
        why = getattr(error, "explanation", None) or error
        raise UsageError(f"the image {name} is not on this machine and cannot be pulled: {why}") from None
    on_progress(f"pulled {name}: {layers}")


class Layers:
    """How far a pull is, from the events of its layers."""

    def __init__(self) -> None:
        self._bytes: dict[str, tuple[int, int]] = {}  # layer -> (here, all)
        self._done: set[str] = set()

    def note(self, event: Mapping[str, Any]) -> None:
        layer, status = str(event.get("id", "")), str(event.get("status", ""))
        detail = event.get("progressDetail") or {}
        if status == "Downloading" and "total" in detail:
            self._bytes[layer] = (int(detail["current"]), int(detail["total"]))
        elif status in ("Download complete", "Pull complete") and layer in self._bytes:
            self._bytes[layer] = (self._bytes[layer][1],) * 2
        if status in ("Pull complete", "Already exists"):
            self._done.add(layer)

    def __str__(self) -> str:
        here, total = (sum(pair[i] for pair in self._bytes.values()) for i in (0, 1))
        return f"{here / 1e9:.2f} of {total / 1e9:.2f} GB, {len(self._done)} layers done"


class Image:
    """A Place: the programs of an image, asked without a network."""

    def __init__(
        self,
        client: "DockerClient",
        name: str,
        digest: str,
        options: ContainerOptions,
        reads: Sequence[Path] = (),
        tool: str = DOCKER,
    ) -> None:
        self.image = name
        self.name = f"the image {name}"
        self.host = options.listens_on
        self.identity = digest
        self.absent = ""
        self._client = client
        self._options = options
        self._reads = tuple(reads)
        self._tool = tool
        self.program = cache(self._program)

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names of the variables that the image itself sets."""
        with explained(tool=self._tool, image=self.image):
            config = self._client.images.get(self.id).attrs.get("Config") or {}
        return frozenset(word.partition("=")[0] for word in config.get("Env") or ())

    @property
    def shown(self) -> str:
        """For a command line: pinned to its digest if it came from a registry, else by its name."""
        return self.identity if "@" in self.identity else self.image

    @cached_property
    def id(self) -> str:
        """What containers are made from: never another image that got the name meanwhile."""
        with explained(tool=self._tool, image=self.image):
            return str(self._client.images.get(self.identity).id)

    def _program(self, name: str) -> str:
        found = self.run(["sh", "-c", LOOK_UP, "sh", name], {}, timeout_s=60)
        if found.exit_code != 0:
            raise UsageError(
                f"cannot run {name}: there is no such program in {self.name}; set `server` to one that is,"
                " or mount it with container.volumes"
            )
        return name

    def run(self, argv: Sequence[str], env: Variables, timeout_s: float) -> Ran:
        with self._container(argv, env) as container:
            container.start()
            deadline = time.monotonic() + timeout_s
            timer = threading.Timer(timeout_s, _kill, [container])
            timer.start()
            exit_code = int(container.wait(timeout=None)["StatusCode"])
            timer.cancel()
            in_time = time.monotonic() < deadline
            output, errors = (
                container.logs(stdout=out, stderr=not out).decode("utf-8", "replace") for out in (True, False)
            )
        return Ran(exit_code if in_time else None, output, errors)

    def converse(self, argv: Sequence[str], env: Variables) -> "ContainerConversation":
        made = self._container(argv, env, stdin_open=True)
        return ContainerConversation(made)

    @contextmanager
    def _container(self, argv: Sequence[str], env: Variables, **more: Any) -> Iterator[Any]:
        """One that is not started yet; it is removed with the context."""
        launch = Launch(tuple(argv), 0, Path(), env, self._reads, self.id)
        hide = self._hidden(launch)
        with explained(tool=self._tool, image=self.image, program=shlex.quote(argv[0]), hide=hide):
            labels = leftovers.labels(leftovers.ASKING, self.image)
            arguments = create_arguments(self._options, launch, labels, self._tool, self.variables)
            kept = {k: v for k, v in arguments.items() if k not in OF_A_NETWORK}
            container = self._client.containers.create(**{**kept, "network_mode": "none", **more})
            try:
                yield container
            finally:
                remove(container)

    def _hidden(self, launch: Launch) -> Callable[[str], str]:
        return lambda text: without_secrets(text, self._options, launch)


def remove(container: Any) -> None:
    """End and remove a container; one that is gone, or whose daemon is, counts as removed."""
    with suppress(*daemon_errors()):
        container.remove(force=True, v=True)


def _kill(container: Any) -> None:
    with suppress(*daemon_errors()):
        container.kill()


class ContainerConversation:
    """A Conversation with a program in a container, over the socket of its standard streams."""

    def __init__(self, made: AbstractContextManager[Any]) -> None:
        with ExitStack() as stack:
            self._container = stack.enter_context(made)
            streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            self._socket = self._container.attach_socket(params=streams)
            self._container.start()
            self._ending = stack.pop_all()
        self._unread = {1: b"", 2: b""}  # by stream: stdout, stderr

    def ask(self, line: str, timeout_s: float) -> str:
        timer = threading.Timer(timeout_s, _kill, [self._container])
        timer.start()
        try:
            self._socket._sock.sendall(f"{line}\n".encode())
            while b"\n" not in self._unread[1] and self._read():
                pass
        except OSError:  # it ended before it was asked
            return ""
        finally:
            timer.cancel()
        answer, newline, self._unread[1] = self._unread[1].partition(b"\n")
        return (answer + newline).decode("utf-8", "replace")

    def errors(self) -> str:
        with suppress(OSError):
            while self._read():
                pass
        told = self._unread[2].decode("utf-8", "replace").strip()
        return told or f"no answer (exit code {self._exit_code()})"

    def _exit_code(self) -> int:
        return int(self._container.wait()["StatusCode"])

    def _read(self) -> bool:
        """Take one piece of output; False at its end."""
        from docker.utils.socket import next_frame_header, read

        stream, length = next_frame_header(self._socket)
        if length <= 0:
            return bool(stream >= 0)
        while length > 0:
            piece = read(self._socket, length)
            if not piece:
                return False
            self._unread[stream] += piece
            length -= len(piece)
        return True

    def end(self) -> None:
        self._socket.close()
        self._ending.close()
