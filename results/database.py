"""Databases that machines share: SQLite, or PostgreSQL with the extra `postgres`.

Loads SQLAlchemy: import it where it is used.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine, Pool, create_engine, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from results.errors import UsageError

T = TypeVar("T")

# Scheme -> SQLAlchemy's name of driver and dialect, and what it is told unless the URL says otherwise.
_SCHEMES = {
    "sqlite": ("sqlite", {"timeout": "60"}),  # s, for other writers
    "postgresql": ("postgresql+psycopg", {"connect_timeout": "10"}),  # s
}
_SCHEMES["postgres"] = _SCHEMES["postgresql+psycopg"] = _SCHEMES["postgresql"]
PATIENCE_S = 600.0  # that a server which has answered before may be away
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 10.0  # between two tries


def is_database(address: str) -> bool:
    """Whether an address is one of a database, usable or not."""
    return address.partition(":")[0] in _SCHEMES and ":" in address


def url_of(address: str, option: str, forms: str) -> URL:
    """Raises a UsageError that shows no password. A user names it with `option`, as one of `forms`."""
    scheme = address.partition(":")[0]
    if scheme not in _SCHEMES:
        raise UsageError(f"{option} {scheme}://... is not known: {forms}")
    driver, settings = _SCHEMES[scheme]
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):  # their messages repeat the address
        raise UsageError(f"{option} {scheme}:... is no address of a database: {forms}") from None
    if "@" in (url.host or ""):  # the rest of a password would be taken for the host, and shown
        raise UsageError(f"{option} {scheme}://...: an @ in a name or password is written %40")
    if scheme == "sqlite" and url.database in (None, "", ":memory:"):
        raise UsageError(f"{option} {scheme}://... names no file, and would be forgotten: {forms}")
    return url.set(drivername=driver, query={**settings, **url.query})


def engine_of(url: URL, option: str, forms: str, pool: type[Pool]) -> Engine:
    """Nothing is connected to yet. Raises a UsageError that shows no password."""
    try:
        return create_engine(url, poolclass=pool, hide_parameters=True)
    except ImportError:
        raise UsageError(
            f"{option} {shown(url)} needs the driver psycopg: pip install -e '.[postgres]' in the folder of"
            " tuner"
        ) from None
    except ArgumentError:
        raise UsageError(f"{option} {shown(url)} is no address of a database: {forms}") from None


def shown(url: URL) -> str:
    """Without any secret: the query may hold a password as well."""
    return url.set(drivername=url.get_backend_name(), query={}).render_as_string(hide_password=True)


def said(error: DBAPIError) -> str:
    """What the driver said: no statement, no parameters."""
    return "; ".join(filter(None, map(str.strip, str(error.orig).splitlines())))


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Any error of the database becomes a UsageError."""
    try:
        yield
    except DBAPIError as error:
        raise UsageError(f"cannot use {what}: {said(error)}") from error


class Database:
    """Transactions, each done again while the server is away."""

    def __init__(self, engine: Engine, shown: str, patience_s: float = PATIENCE_S) -> None:
        """`shown` is its address without secrets."""
        self.engine, self.shown, self._patience_s = engine, shown, patience_s
        self.note: Callable[[str], None] = lambda text: None  # called when it has to wait
        self._has_answered = False  # before that, waiting cures nothing

    def __repr__(self) -> str:
        return f"Database({self.shown!r})"

    def do(self, work: Callable[[Connection], T]) -> T:
        """In a transaction of its own. `work` may be done again: twice must be the same as once.

        Raises UsageError when the server stays away, or refuses.
        """
        return self.patiently(lambda: self._once(work), OperationalError)

    def patiently(self, work: Callable[[], T], *errors: type[Exception]) -> T:
        """Do it again while it raises one of the `errors`, as long as a server may be away."""
        began, pause_s = time.monotonic(), FIRST_PAUSE_S
        with explained(self.shown):
            while True:
                try:
                    return work()
                except errors as error:
                    if not self._has_answered or time.monotonic() - began > self._patience_s:
                        self._has_answered = False  # and nobody after this one waits as long again
                        raise UsageError(f"cannot use {self.shown}: {_why(error)}") from error
                    if pause_s == FIRST_PAUSE_S:
                        self.note(f"{self.shown} does not answer: {_why(error)}; tried again and again")
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _once(self, work: Callable[[Connection], T]) -> T:
        with self.engine.begin() as connection:
            if connection.dialect.name == "sqlite":  # else two that read before they write block each other
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            done = work(connection)
        self._has_answered = True
        return done


def _why(error: Exception) -> str:
    return said(error) if isinstance(error, DBAPIError) else type(error).__name__


def clock(connection: Connection) -> tuple[float, float]:
    """Unix time by the database, and since when it serves: the clocks of machines may differ."""
    if connection.dialect.name != "postgresql":
        return time.time(), 0.0
    asked = "SELECT extract(epoch FROM clock_timestamp()), extract(epoch FROM pg_postmaster_start_time())"
    now_at, up_at = connection.execute(text(asked)).one()
    return float(now_at), float(up_at)
