"""Waiting in tests: for a condition, with a cap that only a failure reaches."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], bool], cap_s: float = 60) -> None:
    deadline = time.monotonic() + cap_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
