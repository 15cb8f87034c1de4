"""Servers as processes of this machine, ended with the tool whatever happens to it."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from launchers.launcher import Launch
from launchers.leftovers import ServerLog
from launchers.place import with_variables
from launchers.port import LOOPBACK, listens, refuse_if_taken
from results.errors import LaunchFailed
from results.reasons import Reason

GUARD = Path(__file__).with_name("guard.py")
GRACE_S = 5.0  # between SIGTERM and SIGKILL


class ProcessEndpoint:
    """A server that runs below a guard; see `launchers/guard.py` for what they tell each other."""

    def __init__(self, launch: Launch, guard: subprocess.Popen[bytes]) -> None:
        self.base_url = f"http://{LOOPBACK}:{launch.port}"
        self.log_path = launch.log_path
        self.pid = _server_pid(guard, launch)
        self._port = launch.port
        self._guard = guard
        self._exit_code: int | None = None

    def exit_code(self) -> int | None:
        assert self._guard.stdout is not None
        if self._exit_code is None and _is_readable(self._guard.stdout.fileno()):
            word, _, code = self._guard.stdout.readline().decode().partition(" ")
            # Nothing but end-of-file: the guard itself was killed, and the server with it or not.
            self._exit_code = int(code) if word == "exited" else -signal.SIGKILL
        return self._exit_code

    def owns_port(self) -> bool:
        return any(listens(pid, self._port) for pid in self.pids())

    def pids(self) -> tuple[int, ...]:
        try:
            below = psutil.Process(self._guard.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return ()
        return tuple(process.pid for process in below)

    def environment(self) -> dict[str, str] | None:
        try:
            return psutil.Process(self.pid).environ()
        except (psutil.Error, OSError):
            return None

    def killed_for_memory(self) -> str | None:
        return None  # the kernel does not tell the parent who sent the signal

    def ended_from_outside(self) -> str | None:
        return None

    def part_ended(self) -> str:
        return ""

    def end(self) -> None:
        """Close the lifeline: the guard ends every process of the server, then itself."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        try:
            self._guard.wait(GRACE_S + 10)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        if self._guard.returncode != 0:  # killed before it could end the server
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


class ProcessLauncher:
    """Starts servers on this machine and notes them in `<run_dir>/servers.jsonl` (see `reap`)."""

    def __init__(self, run_dir: Path) -> None:
        self._servers = ServerLog(run_dir)

    @contextmanager
    def start(self, launch: Launch) -> Iterator[ProcessEndpoint]:
        refuse_if_taken(launch.port)
        with _guard(launch) as guard:
            endpoint = ProcessEndpoint(launch, guard)
            started = self._servers.started(endpoint.pid, " ".join(launch.argv[:3]), launch.port)
            try:
                yield endpoint
            finally:
                endpoint.end()
                self._servers.ended(started, endpoint.exit_code())


def _is_readable(fd: int) -> bool:
    poll = select.poll()  # select() refuses descriptors above 1023, which a load client reaches
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _guard(launch: Launch) -> subprocess.Popen[bytes]:
    launch.log_path.parent.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        [
            *(sys.executable, "-S", "-E", str(GUARD), str(GRACE_S), str(launch.log_path)),
            ",".join(map(str, launch.cores)),
            *launch.argv,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env=with_variables(launch.env),
        start_new_session=True,  # Ctrl-C reaches the tool alone, which then ends the server in order
    )


def _server_pid(guard: subprocess.Popen[bytes], launch: Launch) -> int:
    assert guard.stdout is not None
    word, _, rest = guard.stdout.readline().decode().strip().partition(" ")
    if word != "started":
        guard.wait()
        raise LaunchFailed(Reason.START_FAILED, f"cannot run {launch.argv[0]}: {rest or 'guard ended'}")
    return int(rest)
