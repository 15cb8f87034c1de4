"""What a driver and its jobs tell each other through files of a folder that both see."""

import errno
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from results.lines import replace

BEATS = 12  # in the time after which a driver that is not heard of counts as dead
GONE = (errno.ENOENT, errno.ESTALE)


def put(path: Path, what: object) -> None:
    """Leave something there for the other side, whole. Raises FileNotFoundError if the folder is gone."""
    replace(path, pickle.dumps(what))


def take(path: Path) -> Any | None:
    """What the other side left there, which is removed; None as long as there is nothing."""
    if not is_there(path.parent):
        return None
    try:
        content = path.read_bytes()
        path.unlink()
    except OSError as error:
        if error.errno in GONE:
            return None
        raise
    return pickle.loads(content)


def is_there(folder: Path) -> bool:
    """Whether a folder of ours exists, by what the file server says now and not by what NFS remembers."""
    try:
        folder.chmod(0o700)  # NFS asks its server anew about a folder that was changed from here
    except OSError as error:
        if error.errno in GONE:
            return False
        raise
    return True


@contextmanager
def beating(lease: Path, lease_s: float) -> Iterator[None]:
    """Let it be known that this process lives, for as long as it does."""
    over = threading.Event()

    def beat() -> None:
        for number in count():
            with suppress(OSError):  # a full disk now may have room at the next beat
                replace(lease, str(number).encode())
            if over.wait(lease_s / BEATS):
                return

    beats = threading.Thread(target=beat, daemon=True)
    beats.start()
    try:
        yield
    finally:
        over.set()
        beats.join()
        lease.unlink(missing_ok=True)


def wait_for_death(lease: Path, lease_s: float, then: Callable[[], None]) -> None:
    """Call `then` when the other side has not been heard of for so long, by this machine's clock alone."""
    seen, since = b"", time.monotonic()
    while time.monotonic() - since < lease_s:
        time.sleep(lease_s / BEATS)
        with suppress(OSError):
            is_there(lease.parent)
            if (now := lease.read_bytes()) != seen:
                seen, since = now, time.monotonic()
    then()


def end_on(*signals: signal.Signals, within_s: float) -> Callable[[], None]:
    """Let this process end in good order on these signals, and whatever it is at; returns what sends one."""

    def end(*_: object) -> None:
        for number in signals:
            signal.signal(number, lambda *_: None)  # once is enough
        killed = threading.Timer(within_s, os._exit, [1])
        killed.daemon = True
        killed.start()
        raise SystemExit(0)

    for number in signals:
        signal.signal(number, end)
    return lambda: os.kill(os.getpid(), signals[0])
