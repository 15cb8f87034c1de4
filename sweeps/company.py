"""Two arms of a Block at once: they begin every window together, and none is measured alone.

An arm that is through its window first goes on under load, unmeasured, until the other is through:
else the slower arm would have the machine for itself at the end, and look better than it is.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from itertools import cycle, islice
from typing import TypeVar

from sweeps.arm import Arm
from sweeps.load import drive
from sweeps.pace import Closed
from sweeps.setup import Setup
from sweeps.windows import Window

T = TypeVar("T")
JOIN_S = 0.5
FILL_TOKENS = 32  # of an answer that only fills the time: the other arm waits for the last of them


class Company:
    """What the threads of two arms tell each other."""

    def __init__(self, begins: Callable[[], None]) -> None:
        """`begins` is called before each window, while nothing is under load."""
        self._begins = begins
        self._arms: dict[int, Arm] = {}
        self._through = (threading.Event(), threading.Event())
        self._barrier = threading.Barrier(2, self._open)

    def meet(self, who: int, arm: Arm) -> bool:
        """Wait until the other arm is there too; False if it left."""
        self._arms[who] = arm
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            return False
        return True

    def through(self, who: int) -> None:
        """An arm is through its window."""
        self._through[who].set()

    def other_is_measured(self, who: int) -> bool:
        return not self._through[1 - who].is_set() and not self._barrier.broken

    def leave(self) -> None:
        """There is nothing more to begin together: nobody waits for this arm any more."""
        self._barrier.abort()

    def _open(self) -> None:
        for who, arm in self._arms.items():
            other = self._arms[1 - who].endpoint
            arm.beside = other.pids if other is not None else tuple
            self._through[who].clear()
        self._begins()


def keep_busy(setup: Setup, arm: Arm, window: Window, wanted: Callable[[], bool]) -> None:
    """Load like that of the window while it is `wanted`, from the prompts of the warm-up; nothing is kept.

    An open loop ends when its times are over, whatever the server does: there is nothing to fill. What
    goes wrong shows in the next window.
    """
    streams = window.pace.concurrency
    if arm.endpoint is None or streams is None:
        return
    tokens = min(FILL_TOKENS, setup.sweep.workload.max_tokens)
    jobs = [setup.job(prompt, tokens) for prompt in islice(cycle(setup.warm_up), streams)]
    stall_timeout_s = setup.sweep.patience.stall_timeout_s
    while wanted():
        result = drive(setup.target(arm.endpoint), jobs, Closed(streams), stall_timeout_s=stall_timeout_s)
        if any(request.error is not None for request in result.requests):
            return
    setup.engine.reset_cache(arm.endpoint)


def share_clients(arms: Sequence[Arm]) -> None:
    """Count the load clients of both arms for each of them: they are threads of one process."""
    one, other = arms
    for cell in one.turns.keys() & other.turns.keys():
        together = list(zip(one.turns[cell], other.turns[cell], strict=False))
        for i, turns in enumerate(together):
            cores = sum(turn.host.client_cores or 0.0 for turn in turns)
            for arm, turn in zip(arms, turns, strict=True):
                arm.turns[cell][i] = replace(turn, host=replace(turn.host, client_cores=cores))


def at_once(works: Sequence[Callable[[], T]]) -> list[T]:
    """Do all in threads of their own; what they return, or what the first of them raises.

    The threads die with the tool (and their servers with them): an interrupt waits for none of them.
    """
    found: list[Future[T]] = [Future() for _ in works]
    pairs = zip(works, found, strict=True)
    threads = [threading.Thread(target=_fulfil, args=pair, daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(JOIN_S)  # a signal is heard in between
    return [future.result() for future in found]


def _fulfil(work: Callable[[], T], found: "Future[T]") -> None:
    """What goes wrong is raised in the thread that waits, not here."""

    def hand_over(kind: object, error: BaseException | None, trace: object) -> bool:
        if error is not None:
            found.set_exception(error)
        return True

    with ExitStack() as stack:
        stack.push(hand_over)
        found.set_result(work())
