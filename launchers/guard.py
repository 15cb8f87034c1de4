"""Runs one server and ends it, with every process it started, when the tool goes away.

Started by `launchers.process` as `python -S -E guard.py GRACE_S LOG CORES ARGV...`; standard library
only, so that it is up in milliseconds. CORES (`0,1`; empty = all) are those that the server and all it
starts may run on. Its stdin is the lifeline: the tool never writes to it, and when it
closes (the tool left the context, or was killed) the server's processes get SIGTERM, then SIGKILL
after GRACE_S seconds. Its stdout tells the tool, one line each: `started PID` or `failed WHY`, then
`exited CODE` (negative = signal).
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

LIFELINE_FD = 0
STATUS_FD = 1
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> None:
    grace_s, log_path, cores, argv = float(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    if cores:
        os.sched_setaffinity(0, map(int, cores.split(",")))  # children inherit it
    adopt_orphans()
    wake_fd = wake_on_child_exit()
    server_pid = start(argv, log_path)
    if server_pid is not None:
        watch(server_pid, wake_fd)
        end_all(server_pid, grace_s)


def adopt_orphans() -> None:
    """Make processes whose parent died our children, so that none escapes."""
    control(PR_SET_CHILD_SUBREAPER, 1)


def die_with_guard() -> None:
    """Called in the server: it is killed with a guard that is killed, and so can end nothing any more."""
    control(PR_SET_PDEATHSIG, signal.SIGKILL)


def control(option: int, value: int) -> None:
    """Of Linux alone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def wake_on_child_exit() -> int:
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read_fd


def tell(line: str) -> None:
    with contextlib.suppress(OSError):  # the tool may be gone
        os.write(STATUS_FD, f"{line}\n".encode())


def start(argv: list[str], log_path: str) -> int | None:
    """The server in a session and process group of its own, its output in the log from the start."""
    try:
        with Path(log_path).open("wb") as log:
            server = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_guard,
            )
    except OSError as error:
        tell(f"failed {error.strerror}")
        return None
    server.returncode = 0  # collected by collect_exits, not by subprocess
    tell(f"started {server.pid}")
    return server.pid


def watch(server_pid: int, wake_fd: int) -> None:
    """Report the server's exit; return when the lifeline closes."""
    while True:
        ready, _, _ = select.select([LIFELINE_FD, wake_fd], [], [])
        if wake_fd in ready:
            os.read(wake_fd, 4096)
            collect_exits(server_pid)
        if LIFELINE_FD in ready and not os.read(LIFELINE_FD, 4096):
            return


def collect_exits(server_pid: int) -> bool:
    """Take the exit statuses that are there; False when no child is left."""
    try:
        while (exited := os.waitpid(-1, os.WNOHANG))[0]:
            if exited[0] == server_pid:
                tell(f"exited {os.waitstatus_to_exitcode(exited[1])}")
    except ChildProcessError:
        return False
    return True


def end_all(server_pid: int, grace_s: float) -> None:
    """SIGTERM to the group and to whatever left it, SIGKILL to what remains after the grace."""
    send(signal.SIGTERM, server_pid)
    deadline = time.monotonic() + grace_s
    while collect_exits(server_pid):
        if time.monotonic() > deadline:
            send(signal.SIGKILL, server_pid)
        time.sleep(0.02)


def send(signal_number: int, server_pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server_pid, signal_number)
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) != server_pid:
                os.kill(pid, signal_number)


def descendants(root: int) -> set[int]:
    """Every process below `root`, from /proc; empty where there is none."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name in parentheses may itself contain spaces and parentheses.
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    level = {root}
    while level := {pid for pid, parent in parents.items() if parent in level} - found:
        found |= level
    return found


if __name__ == "__main__":
    main()
