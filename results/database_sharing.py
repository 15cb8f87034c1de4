"""What drivers of a run in a database agree on."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection, func, insert, select, update

from results.lines import decoded
from results.records import Block, Trial
from results.run_schema import CLAIMS, DRIVERS, RUNS
from results.store import BLOCKS, TRIALS

if TYPE_CHECKING:
    from results.run_database import RunDatabase

T = TypeVar("T", Trial, Block)
TURN_S = 0.05  # between two looks whether it is our turn


class DatabaseSharing:
    """The Sharing of one driver; see `RunDatabase.held` for how long that lives.

    Its turn (`exclusive`) is a mark in the row of the run, not a lock of a connection: it outlives a
    server that is started anew. Nobody takes it from a driver that lives.
    """

    poll_s = 1.0

    def __init__(self, store: "RunDatabase", received: Callable[[str, bytes], None]) -> None:
        self._store, self._received = store, received
        self._do, self._me, self._run = store.database.do, store.driver(), store.run
        self._threads, self._depth = RLock(), 0

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._threads:
            if self._depth == 0:
                while not self._do(self._takes_turn):
                    time.sleep(TURN_S)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._do(self._ends_turn)

    def next_block(self) -> int:
        def taken(connection: Connection) -> int:
            self._store.lock(connection)
            numbered = update(RUNS).where(RUNS.c.name == self._run).values(next_block=RUNS.c.next_block + 1)
            number: int = connection.execute(numbered.returning(RUNS.c.next_block)).scalar_one()
            return number - 1

        return self._do(taken)

    def claim(self, what: str) -> bool:
        return self._do(lambda c: self._claimed(c, what))

    def release(self, what: str) -> None:
        def released(connection: Connection) -> None:
            serial = self._store.lock(connection) + 1  # later than whatever others knew when they came
            connection.execute(update(RUNS).where(RUNS.c.name == self._run).values(serial=serial))
            connection.execute(
                update(CLAIMS)
                .where(CLAIMS.c.run == self._run, CLAIMS.c.what == what, CLAIMS.c.driver == self._me)
                .values(done_serial=serial)
            )

        self._do(released)

    def held_by_others(self, kind: str) -> int:
        def held(connection: Connection) -> int:
            others = self._store.living_in(connection) - {self._me}
            asked = select(func.count()).where(
                CLAIMS.c.run == self._run,
                CLAIMS.c.what.startswith(kind, autoescape=True),
                CLAIMS.c.driver.in_(others),
                CLAIMS.c.done_serial.is_(None),
            )
            number: int = connection.execute(asked).scalar_one()
            return number

        return self._do(held)

    def news(self) -> tuple[Sequence[Trial], Sequence[Block]]:
        with self._threads:
            return self._fresh(TRIALS, Trial), self._fresh(BLOCKS, Block)

    def _fresh(self, name: str, kind: type[T]) -> list[T]:
        lines = self._store.fresh(name)
        for line in lines:
            self._received(name, line)
        return [decoded(line, kind, f"{self._store.shown}, {name}") for line in lines]

    def _takes_turn(self, connection: Connection) -> bool:
        self._store.lock(connection)
        mine = select(RUNS.c.holder).where(RUNS.c.name == self._run)
        holder = connection.execute(mine).scalar_one()
        is_free = holder in (None, self._me) or holder not in self._store.living_in(connection)
        if is_free:
            connection.execute(update(RUNS).where(RUNS.c.name == self._run).values(holder=self._me))
        return is_free

    def _ends_turn(self, connection: Connection) -> None:
        mine = [RUNS.c.name == self._run, RUNS.c.holder == self._me]
        connection.execute(update(RUNS).where(*mine).values(holder=None))

    def _claimed(self, connection: Connection, what: str) -> bool:
        self._store.lock(connection)
        this = [CLAIMS.c.run == self._run, CLAIMS.c.what == what]
        known = connection.execute(select(CLAIMS).where(*this)).one_or_none()
        if known is None:
            connection.execute(insert(CLAIMS).values(run=self._run, what=what, driver=self._me))
            return True
        if known.driver != self._me and not self._is_free(connection, known.driver, known.done_serial):
            return False
        connection.execute(update(CLAIMS).where(*this).values(driver=self._me, done_serial=None))
        return True

    def _is_free(self, connection: Connection, driver: str, done_serial: int | None) -> bool:
        """What was recorded before this driver came, it knows; what it was at work on died with a driver."""
        if done_serial is None:
            return driver not in self._store.living_in(connection)
        joined = select(DRIVERS.c.joined_serial).where(DRIVERS.c.id == self._me)
        return done_serial <= int(connection.execute(joined).scalar_one_or_none() or 0)
