"""A run in a database: records a row each, files whole; several drivers work on it at once.

Everything that changes something first changes the row of the run: so it happens one after the other,
and serial numbers become visible in their order.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

from sqlalchemy import URL, Connection, and_, delete, insert, select, true, update
from sqlalchemy.pool import QueuePool

from results.database import Database, clock, engine_of, shown, url_of
from results.errors import UsageError
from results.run_schema import CLAIMS, DRIVERS, FILES, RECORDS, RUNS, VERSION, make, version_of
from results.sharing import Sharing, StudyPlace
from results.store import LINES

LEASE_S = 120.0  # of a driver that gives no sign of life
BEATS = 6  # signs of life in that time
_OF_SQLITE = {"timeout"}
_OURS = ("run", "lease_s")  # of the query of an address: not for the database
_FORMS = "postgresql://USER@HOST/DATABASE?run=NAME, sqlite:///FILE?run=NAME, another URL, or a folder"


def run_in_database(address: str, option: str, name: str = "") -> "RunDatabase":
    """The run that the address names with `?run=`, else `name`. Raises UsageError, without any password."""
    url = url_of(address, option, _FORMS)
    run = _asked(url, "run") or name
    if not run:
        raise UsageError(f"{option} {shown(url)} names no run: add ?run=NAME")
    try:
        lease_s = float(_asked(url, "lease_s") or LEASE_S)
    except ValueError:
        lease_s = 0.0
    if not 1.0 <= lease_s < math.inf:
        raise UsageError(f"{option} {shown(url)}: lease_s is a number of seconds, 1 or more")
    url = url.difference_update_query(_OURS)
    unknown = url.query.keys() - _OF_SQLITE if url.get_backend_name() == "sqlite" else ()
    for key in sorted(unknown):
        raise UsageError(f"{option} {shown(url)}: unknown {key} after the ?: known are {', '.join(_OURS)}")
    database = Database(engine_of(url, option, _FORMS, QueuePool), shown(url))
    return RunDatabase(database, url, run, lease_s)


def _asked(url: URL, name: str) -> str:
    value = url.query.get(name, "")
    return value if isinstance(value, str) else value[-1]


class RunDatabase:
    """One run, and this driver of it."""

    is_shared = True

    def __init__(self, database: Database, url: URL, run: str, lease_s: float = LEASE_S) -> None:
        self.database, self.url, self.run, self.lease_s = database, url, run, lease_s
        self.shown = f"{database.shown}?run={run}"
        self._driver = uuid4().hex[:12]
        self._seen = dict.fromkeys(LINES, 0)  # the serial of the last line that was read here
        self._row: dict[str, object] = {}  # of this driver, once it has come
        self._is_made = False

    def __repr__(self) -> str:
        return f"RunDatabase({self.shown!r})"

    def driver(self) -> str:
        return self._driver

    def on_wait(self, note: Callable[[str], None]) -> None:
        self.database.note = note

    def create(self) -> None:
        def made(connection: Connection) -> None:
            make(connection)
            if connection.execute(select(RUNS.c.name).where(RUNS.c.name == self.run)).one_or_none() is None:
                begun = {"name": self.run, "serial": 0, "next_block": 0}
                connection.execute(_insert_once(connection, RUNS).values(begun))

        self.database.do(made)
        self._is_made = True

    def runs(self) -> list[str]:
        """The names of all runs in this database. Raises UsageError if it is a file that is not there."""
        if self._is_file_missing():
            raise UsageError(f"cannot use {self.database.shown}: there is no such file")
        if not self._exists():
            return []
        return self.database.do(lambda c: [*c.execute(select(RUNS.c.name).order_by(RUNS.c.name)).scalars()])

    def names(self) -> dict[str, str]:
        return self.database.do(self._names) if self._exists() else {}

    def read(self, name: str) -> bytes:
        if not self._exists():
            return b""
        if name in LINES:
            return b"".join(line + b"\n" for _, line in self._lines(name, 0))
        return self.database.do(lambda c: self._content(c, name))

    def write(self, name: str, content: bytes) -> str:
        self.database.do(lambda c: self._put(c, name, content))
        return _mark(content)

    def update(self, name: str, change: Callable[[bytes], bytes]) -> bytes:
        def changed(connection: Connection) -> bytes:
            self.lock(connection)
            content = change(self._content(connection, name))
            self._put(connection, name, content)
            return content

        return self.database.do(changed)

    def append(self, name: str, line: bytes) -> None:
        row = {
            "run": self.run,
            "file": name,
            "id": uuid4().hex,
            "driver": self._driver,
            "line": line.decode(),
        }

        def added(connection: Connection) -> None:
            serial = self.lock(connection) + 1
            known = select(RECORDS.c.id).where(RECORDS.c.run == self.run, RECORDS.c.id == row["id"])
            if connection.execute(known).one_or_none() is None:
                connection.execute(insert(RECORDS).values(**row, serial=serial))
                connection.execute(update(RUNS).where(RUNS.c.name == self.run).values(serial=serial))

        self.database.do(added)

    def remove(self, name: str) -> None:
        gone = delete(FILES).where(FILES.c.run == self.run, FILES.c.name == name)
        self.database.do(lambda c: c.execute(gone))

    def fresh(self, name: str) -> list[bytes]:
        """Lines that other drivers have added since this was last asked, or the file read."""
        return [line for driver, line in self._lines(name, self._seen[name]) if driver != self._driver]

    def living(self) -> frozenset[str]:
        return self.database.do(self.living_in) if self._exists() else frozenset()

    def living_in(self, connection: Connection) -> frozenset[str]:
        """While the server was away nobody could give a sign of life."""
        now_at, up_at = clock(connection)
        rows = connection.execute(select(DRIVERS).where(DRIVERS.c.run == self.run)).all()
        return frozenset(row.id for row in rows if now_at - max(row.beat_at, up_at) < row.lease_s)

    def lock(self, connection: Connection) -> int:
        """Nobody else changes the run until this transaction ends; returns the serial of its last record."""
        changed = update(RUNS).where(RUNS.c.name == self.run).values(serial=RUNS.c.serial)
        serial: int = connection.execute(changed.returning(RUNS.c.serial)).scalar_one()
        return serial

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        if not self._is_made:
            self.create()
        self.database.do(lambda c: self._come(c, alone=alone))
        ending = Event()
        beating = Thread(target=self._beat, args=(ending,), daemon=True)
        beating.start()
        try:
            yield
        finally:
            ending.set()
            beating.join()
            self.database.do(self._go)

    def study_place(self) -> StudyPlace | None:
        address = self.url.render_as_string(hide_password=False)
        return StudyPlace(address, self.run, self._driver, self.living, self.database.patiently)

    def sharing(self, received: Callable[[str, bytes], None]) -> Sharing:
        from results.database_sharing import DatabaseSharing

        return DatabaseSharing(self, received)

    def _exists(self) -> bool:
        """Whether there are tables to read: reading makes none, but brings older ones up to date."""
        if not self._is_made and not self._is_file_missing():
            version = self.database.do(version_of)
            if version in range(1, VERSION):
                self.database.do(make)
            self._is_made = version > 0
        return self._is_made

    def _is_file_missing(self) -> bool:
        """Of SQLite, which makes a file for whoever looks into it."""
        return self.url.get_backend_name() == "sqlite" and not Path(self.url.database or "").exists()

    def _names(self, connection: Connection) -> dict[str, str]:
        files = connection.execute(select(FILES.c.name, FILES.c.mark).where(FILES.c.run == self.run))
        lines = select(RECORDS.c.file, RECORDS.c.serial).where(RECORDS.c.run == self.run)
        last = {row.file: f"to {row.serial}" for row in connection.execute(lines.order_by(RECORDS.c.serial))}
        return {**{row.name: row.mark for row in files}, **last}

    def _lines(self, name: str, after: int) -> list[tuple[str, bytes]]:
        """Who added each line, and the line."""
        asked = (
            select(RECORDS.c.serial, RECORDS.c.driver, RECORDS.c.line)
            .where(RECORDS.c.run == self.run, RECORDS.c.file == name, RECORDS.c.serial > after)
            .order_by(RECORDS.c.serial)
        )
        rows = self.database.do(lambda c: c.execute(asked).all())
        self._seen[name] = max([self._seen[name], *(row.serial for row in rows)])
        return [(row.driver, row.line.encode()) for row in rows]

    def _content(self, connection: Connection, name: str) -> bytes:
        asked = select(FILES.c.content).where(FILES.c.run == self.run, FILES.c.name == name)
        return bytes(connection.execute(asked).scalar_one_or_none() or b"")

    def _put(self, connection: Connection, name: str, content: bytes) -> None:
        told = {"mark": _mark(content), "content": content}
        put = _insert_once(connection, FILES, update=told)
        connection.execute(put.values(run=self.run, name=name, **told))

    def _come(self, connection: Connection, *, alone: bool) -> None:
        serial, living = self.lock(connection), self.living_in(connection)
        others = select(DRIVERS.c.alone).where(DRIVERS.c.id.in_(living - {self._driver}))
        at_work = connection.execute(others).scalars().all()
        if at_work and (alone or any(at_work)):
            raise UsageError(f"another tuner is at work on {self.shown}: wait for it, or name another run")
        self._forget(connection, living - {self._driver})
        self._row = {"run": self.run, "lease_s": self.lease_s, "joined_serial": serial, "alone": alone}
        self._give_sign(connection)

    def _give_sign(self, connection: Connection) -> None:
        """Of life; also after others have taken this driver for dead."""
        now_at, _ = clock(connection)
        put = _insert_once(connection, DRIVERS, update={"beat_at": now_at})
        connection.execute(put.values(id=self._driver, beat_at=now_at, **self._row))

    def _forget(self, connection: Connection, living: frozenset[str]) -> None:
        """Drop dead drivers, what they were at work on, and what nobody needs to be told any more."""
        gone = [DRIVERS.c.run == self.run, DRIVERS.c.id.not_in(living)]
        connection.execute(delete(DRIVERS).where(*gone))
        unfinished = and_(CLAIMS.c.done_serial.is_(None), CLAIMS.c.driver.not_in(living))
        connection.execute(delete(CLAIMS).where(CLAIMS.c.run == self.run, unfinished if living else true()))
        holder = update(RUNS).where(RUNS.c.name == self.run, RUNS.c.holder.not_in(living))
        connection.execute(holder.values(holder=None))

    def _go(self, connection: Connection) -> None:
        self.lock(connection)
        self._forget(connection, self.living_in(connection) - {self._driver})

    def _beat(self, ending: Event) -> None:
        while not ending.wait(self.lease_s / BEATS):
            with suppress(UsageError):  # whoever needs an answer says so
                self.database.do(self._give_sign)


def _mark(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _insert_once(connection: Connection, table: Any, update: Mapping[str, object] | None = None) -> Any:
    """What is there stays, or is changed so."""
    from sqlalchemy.dialects import postgresql, sqlite

    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    put = dialect.insert(table)
    if update is None:
        return put.on_conflict_do_nothing()
    return put.on_conflict_do_update(index_elements=[*table.primary_key.columns], set_=dict(update))
