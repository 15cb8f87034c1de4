"""Servers in containers: started, followed, told apart by how they ended, removed with the tool's context."""

import re
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from launchers.containers import leftovers
from launchers.containers.command import DOCKER, create_arguments, without_secrets
from launchers.containers.daemon import daemon_errors, explained
from launchers.containers.follow import LogFollower
from launchers.containers.image import Image, remove
from launchers.containers.memory import oom_kills
from launchers.containers.options import ContainerOptions
from launchers.launcher import Launch
from launchers.port import LOOPBACK, listens, refuse_if_taken
from results.errors import LaunchFailed
from results.reasons import Reason

if TYPE_CHECKING:
    from docker import DockerClient

GRACE_S = 5  # between SIGTERM and SIGKILL
LAST_LINES_S = 10.0  # for the log of a container that has ended
DAEMON_BACK_S = 30.0  # for a daemon that is being restarted
DAEMON_LEAVES_S = 3.0  # between the end of its containers and its own
STOPPED = (0, -signal.SIGTERM, -signal.SIGKILL)  # how a server ends that was told to
SIGNALS = {int(number) for number in signal.valid_signals()}


class ContainerEndpoint:
    """A server in a container. No method raises if the daemon goes away."""

    def __init__(self, container: Any, launch: Launch, options: ContainerOptions, tool: str) -> None:
        self.base_url = f"http://{LOOPBACK}:{launch.port}"
        self._port = launch.port
        self._log_path = launch.log_path
        self._options = options
        self._tool = tool
        self._container = container
        self._state: Mapping[str, Any] = {}  # as last seen
        self._unanswered_at_s: float | None = None  # when the daemon last did not answer
        self._ended_at_s = 0.0
        self._exit_code: int | None = None
        self._refresh()
        self._pid = int(self._state.get("Pid") or 0)  # of the container's first process, on this machine
        self._log = LogFollower(container, launch.log_path, self._is_over)

    @property
    def log_path(self) -> Path:
        """With every line that the server wrote before this was asked."""
        self._log.settle()
        return self._log_path

    def exit_code(self) -> int | None:
        if self._exit_code is None and not self._is_seen_alive() and self._is_over():
            self._log.join(LAST_LINES_S)
            self._ended_at_s = time.monotonic()
            self._exit_code = self._code()
        return self._exit_code

    def _code(self) -> int:
        if self._is_running():  # as it was when the daemon last answered
            return -signal.SIGKILL
        code = int(self._state.get("ExitCode") or 0)
        return 128 - code if code - 128 in SIGNALS else code

    def _is_over(self) -> bool:
        """Whether the server has ended; a daemon that does not answer takes its containers along."""
        return not self._is_running() if self._refresh() else not self._is_seen_alive()

    def _is_running(self) -> bool:
        return self._state.get("Status") in ("created", "running", "paused", "restarting")

    def _refresh(self) -> bool:
        """Ask for the container's state; False if the daemon does not answer."""
        from docker.errors import NotFound

        try:
            self._container.reload()
        except NotFound:  # removed by somebody
            self._state = {**self._state, "Status": "removed", "ExitCode": 128 + signal.SIGKILL}
        except daemon_errors():
            self._unanswered_at_s = time.monotonic()
            return False
        else:
            self._state = self._container.attrs["State"]
        return True

    def _is_seen_alive(self) -> bool:
        return bool(self._pid) and is_of_container(self._pid, self._container.id)

    def owns_port(self) -> bool:
        if self._options.is_on_host_network:
            return any(listens(pid, self._port) for pid in self.pids())
        self._refresh()
        ports = self._container.attrs["NetworkSettings"]["Ports"] or {}
        mine = ports.get(f"{self._port}/tcp") or []
        return self._is_running() and {"HostIp": LOOPBACK, "HostPort": str(self._port)} in mine

    def pids(self) -> tuple[int, ...]:
        """Numbers of this machine; all processes of a container descend from its first."""
        if not self._is_seen_alive():
            return ()
        with suppress(psutil.Error):
            first = psutil.Process(self._pid)
            return (first.pid, *(process.pid for process in first.children(recursive=True)))
        return ()

    def environment(self) -> dict[str, str] | None:
        """Of the server itself: the first child of the container's init, if it has one."""
        at = 1 if self._has_init() else 0
        with suppress(psutil.Error, OSError):
            if found := [psutil.Process(pid).environ() for pid in self.pids()[at : at + 1]]:
                return found[0]
        return self._environment_inside()

    def _has_init(self) -> bool:
        return self._options.options.get("init", True) is True

    def _environment_inside(self) -> dict[str, str] | None:
        """As a process of the container may read it, where this one may not."""
        of_init = "cat /proc/$(cut -d' ' -f1 /proc/1/task/1/children)/environ"
        command = ["sh", "-c", of_init] if self._has_init() else ["cat", "/proc/1/environ"]
        try:
            exit_code, output = self._container.exec_run(command)
        except daemon_errors():
            return None
        words = output.decode("utf-8", "replace").split("\0")
        pairs = [word.partition("=")[::2] for word in words if "=" in word]
        return dict(pairs) if exit_code == 0 and pairs else None

    def killed_for_memory(self) -> str | None:
        self._refresh()
        limit = (
            f"its limit is {self._options.memory}" if self._options.memory else "it has no limit of its own"
        )
        if self._state.get("OOMKilled"):
            return f"the kernel killed a process of the container for lack of memory ({limit})"
        kills = oom_kills(self._pid) if self._is_seen_alive() else 0
        return (
            f"the kernel killed {kills} processes of the container for lack of memory ({limit})"
            if kills
            else None
        )

    def ended_from_outside(self) -> str | None:
        if self._exit_code not in STOPPED or not (self._had_outage() or self._daemon_goes_away()):
            return None
        return (
            f"{self._tool}'s daemon went away while the server ran, and its containers with it"
            " (it was stopped or restarted; with live-restore they would go on)"
        )

    def part_ended(self) -> str:
        return ""

    def _had_outage(self) -> bool:
        """A daemon that was killed ends its containers when it is back."""
        return self._unanswered_at_s is not None and self._ended_at_s - self._unanswered_at_s < DAEMON_BACK_S

    def _daemon_goes_away(self) -> bool:
        """A daemon that is being stopped first ends its containers, and answers a moment longer."""
        for _ in range(round(DAEMON_LEAVES_S / 0.1)):
            if not self._refresh():
                return True
            time.sleep(0.1)
        return False

    def end(self) -> None:
        """Stop and remove the container, also a paused one; a daemon that restarts is waited for."""
        deadline = time.monotonic() + DAEMON_BACK_S
        while not self._stopped() and time.monotonic() < deadline:
            time.sleep(0.2)
        self.exit_code()
        self._log.quit()
        remove(self._container)

    def _stopped(self) -> bool:
        from docker.errors import APIError, NotFound

        try:
            if self._refresh() and self._state.get("Paused"):
                with suppress(APIError):  # it has just ended
                    self._container.unpause()
            if self._is_running():
                self._container.stop(timeout=GRACE_S)
        except NotFound:
            return True
        except daemon_errors():
            return False
        return self._refresh()


def is_of_container(pid: int, container_id: str) -> bool:
    """Whether this process of this machine is in the container: a daemon's pids may be another machine's."""
    try:
        return container_id in Path(f"/proc/{pid}/cgroup").read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return False


class DockerLauncher:
    """Starts servers in containers that carry the run's identity as labels (see `tuner reap`)."""

    def __init__(
        self,
        run_dir: Path,
        client: "DockerClient",
        options: ContainerOptions,
        images: Callable[[str | None], Image],
        tool: str = DOCKER,
    ) -> None:
        """`images` by the name that a Launch has; None = the options' own."""
        self._run_dir = run_dir
        self._client = client
        self._options = options
        self._images = images
        self._tool = tool

    @contextmanager
    def start(self, launch: Launch) -> Iterator[ContainerEndpoint]:
        refuse_if_taken(launch.port)
        with self._created(launch) as container:
            with self._explained(launch):
                self._check_program(container, launch)
                container.start()
            endpoint = ContainerEndpoint(container, launch, self._options, self._tool)
            try:
                yield endpoint
            finally:
                endpoint.end()

    @contextmanager
    def _created(self, launch: Launch) -> Iterator[Any]:
        image, run = self._images(launch.image), leftovers.run_label(self._run_dir)
        labels = leftovers.labels(run, image.image, launch.log_path.stem, launch.port)
        pinned = replace(launch, image=image.id)
        arguments = create_arguments(self._options, pinned, labels, self._tool, image.variables)
        with self._explained(launch):
            container = self._client.containers.create(**arguments, name=self._name(launch))
        try:
            yield container
        finally:
            remove(container)

    def _name(self, launch: Launch) -> str:
        words = f"tuner-{self._run_dir.resolve().name}-{launch.log_path.stem}-{secrets.token_hex(3)}"
        return re.sub(r"[^a-zA-Z0-9_.-]+", "-", words)

    def _check_program(self, container: Any, launch: Launch) -> None:
        """The init would start all the same, and end with 127."""
        from docker.errors import NotFound

        if self._tool != DOCKER or not launch.argv[0].startswith("/"):
            return
        try:
            chunks, _ = container.get_archive(launch.argv[0])
            chunks.close()
        except NotFound:
            image = launch.image or self._options.image
            raise LaunchFailed(
                Reason.START_FAILED, f"cannot run {launch.argv[0]}: {image} has no such file"
            ) from None

    def _explained(self, launch: Launch) -> Any:
        return explained(
            tool=self._tool,
            image=launch.image or self._options.image,
            program=launch.argv[0],
            hide=lambda text: without_secrets(text, self._options, launch),
        )
