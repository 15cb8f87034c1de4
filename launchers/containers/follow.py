"""The log of a container, followed into a file from its first line to its last."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launchers.containers.daemon import daemon_errors

QUIET_S = 0.05  # nothing new for so long: all that was written before has arrived
SETTLE_CAP_S = 1.0
RETRY_S = 0.2


class LogFollower:
    """A thread that writes both streams of a container to `path`, without Docker's timestamps.

    If the daemon goes away while the container lives on, it goes on where it stopped. `is_over` says
    whether the container has ended; it is asked when the stream ends.
    """

    def __init__(self, container: Any, path: Path, is_over: Callable[[], bool]) -> None:
        self._container = container
        self._path = path
        self._is_over = is_over
        self._written = 0  # bytes
        self._quit = threading.Event()
        self._arrived = threading.Event()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Wait until nothing more arrives: the daemon hands lines on a moment after they were written."""
        for _ in range(round(SETTLE_CAP_S / QUIET_S)):
            self._arrived.clear()
            if not self._thread.is_alive() or not self._arrived.wait(QUIET_S):
                return

    def join(self, timeout_s: float) -> None:
        """Wait for the last line of a container that has ended."""
        self._thread.join(timeout_s)

    def quit(self) -> None:
        """Come to an end although the container does not."""
        self._quit.set()

    def _follow(self) -> None:
        ended = self._is_over()
        while not self._quit.is_set():
            if self._copied() and ended:
                return
            ended = self._is_over()  # asked at once: a daemon that was killed does not answer now
            if not ended:
                self._quit.wait(RETRY_S)

    def _copied(self) -> bool:
        """Write what is new until the stream ends; False if the daemon went away or is not there."""
        from docker.errors import NotFound

        to_skip = self._written  # a log is always sent from its beginning
        try:
            for piece in self._container.logs(stream=True, follow=True):
                new, to_skip = piece[to_skip:], max(0, to_skip - len(piece))
                self._write(new)
        except NotFound:
            self._quit.set()
        except daemon_errors():
            return False
        return True

    def _write(self, piece: bytes) -> None:
        if piece:
            with self._path.open("ab") as file:
                file.write(piece)
            self._written += len(piece)
            self._arrived.set()
