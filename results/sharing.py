"""What all who work on one run agree on: who measures what, and which number comes next."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from results.records import Block, Trial


class Sharing(Protocol):
    """One driver's view of a run. Its threads share one; drivers have one each.

    Whatever a driver claimed and did not record before it died is free again after a while.
    """

    poll_s: float  # how long to wait before asking again what others have done

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nobody else claims or records meanwhile. A thread may enter again."""

    def next_block(self) -> int:
        """A number that no Block of the run has, and none will get."""

    def claim(self, what: str) -> bool:
        """Whether it is ours from now on; False if another driver has it, or had it and recorded it."""

    def release(self, what: str) -> None:
        """Give back what was claimed: it is recorded, or nobody will."""

    def held_by_others(self, kind: str) -> int:
        """Claims that begin with `kind` of other drivers that live."""

    def news(self) -> tuple[Sequence[Trial], Sequence[Block]]:
        """What other drivers have recorded since this was last asked."""


@dataclass(frozen=True, slots=True)
class StudyPlace:
    """Where drivers of one run keep the study of its search together."""

    address: str = field(repr=False)  # of the database; it may hold a password
    name: str
    driver: str  # this one
    living: Callable[[], frozenset[str]]  # drivers that are at work now
    patiently: Callable[..., Any]  # (work, *errors): done again while the server is away


class Alone:
    """The Sharing of a run that one driver has for itself; its lock is that of the run folder."""

    poll_s = 0.05

    def __init__(self, next_block: int) -> None:
        """`next_block`: the first number that is free."""
        self._lock = threading.RLock()
        self._next = next_block
        self._claimed: set[str] = set()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._lock:
            yield

    def next_block(self) -> int:
        with self._lock:
            number, self._next = self._next, self._next + 1
        return number

    def claim(self, what: str) -> bool:
        with self._lock:
            is_free = what not in self._claimed
            self._claimed.add(what)
        return is_free

    def release(self, what: str) -> None:
        with self._lock:
            self._claimed.discard(what)

    def held_by_others(self, kind: str) -> int:
        return 0

    def news(self) -> tuple[Sequence[Trial], Sequence[Block]]:
        return (), ()


def alone(blocks: Sequence[Block]) -> Alone:
    """Of a run that has these Blocks."""
    return Alone(max((b.number for b in blocks), default=-1) + 1)
