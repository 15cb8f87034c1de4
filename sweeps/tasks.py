"""Work that several Lanes take from, each piece once; what a lost Lane had is handed out again."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.sharing import Sharing
from sweeps.blocks import LaneLost, LaneOver

T = TypeVar("T")
MOST_LOSSES = 3  # of machines with the same Task: beyond, it is the Task


@dataclass(frozen=True, slots=True)
class Task(Generic[T]):
    """A piece of work and the name it is claimed by."""

    what: T
    claim: str


class Tasks(Generic[T]):
    """Hands out Tasks while there are any, or may be any again.

    A Lane that finds none waits as long as others are at work: one of them may be lost, and what is
    next may depend on what they find.
    """

    def __init__(
        self, kind: str, ask: Callable[[], Task[T] | None], sharing: Sharing, go_on: Callable[[], bool]
    ) -> None:
        """`ask` gives the next Task, None if there is none now; the claims of its Tasks begin with `kind`.

        Who has recorded what came of a Task releases its claim.
        """
        self._kind, self._ask, self._sharing, self._go_on = kind, ask, sharing, go_on
        self._lost: list[Task[T]] = []  # ours, and to be done again
        self._losses: Counter[str] = Counter()  # by claim
        self._elsewhere: list[Task[T]] = []  # another driver has them, and may die
        self._in_flight = 0
        self._is_over = False

    @property
    def in_flight(self) -> int:
        """Tasks that somebody is at work on, here or elsewhere."""
        return self._in_flight + self._sharing.held_by_others(self._kind)

    @contextmanager
    def one(self, before_waiting: Callable[[], None] = lambda: None) -> Iterator[Task[T] | None]:
        """The next Task while somebody is at work on it; None when all is done.

        `before_waiting` is called when there is none now: whoever keeps something back that others wait
        for records it then. What ends with LaneLost is handed out again, unless it does so every time
        (MeasurementInvalid); any other error ends all.
        """
        task = self._take(before_waiting)
        if task is None:
            yield None
            return
        try:
            yield task
        except LaneLost as lost:
            self._hand_out_again(task, lost)
            raise
        except BaseException:
            self._is_over = True
            raise
        finally:
            with self._sharing.exclusive():
                self._in_flight -= 1

    def _take(self, before_waiting: Callable[[], None]) -> Task[T] | None:
        while not self._is_over and self._go_on():
            with self._sharing.exclusive():
                task = self._lost.pop() if self._lost else self._unclaimed()
                if task is not None:
                    self._in_flight += 1
                    return task
                if not self.in_flight:
                    return None
            before_waiting()
            time.sleep(self._sharing.poll_s)
        return None

    def _unclaimed(self) -> Task[T] | None:
        """The next that no other driver has."""
        while (task := self._ask()) is not None:
            if self._sharing.claim(task.claim):
                return task
            self._elsewhere.append(task)
        for task in self._elsewhere:
            if self._sharing.claim(task.claim):
                self._elsewhere.remove(task)
                return task
        return None

    def _hand_out_again(self, task: Task[T], lost: LaneLost) -> None:
        """Raises MeasurementInvalid for a Task that takes every machine with it."""
        with self._sharing.exclusive():
            self._losses[task.claim] += not isinstance(lost, LaneOver)
            self._lost.append(task)
        if self._losses[task.claim] >= MOST_LOSSES:
            self._is_over = True
            raise MeasurementInvalid(
                Reason.CLUSTER_LOST,
                f"{task.claim} was lost with {MOST_LOSSES} machines, one after the other, at last: {lost}",
            ) from lost
