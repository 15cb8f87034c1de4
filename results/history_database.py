"""A history in a database, for machines that share one: SQLite, or PostgreSQL with the extra `postgres`.

Loads SQLAlchemy: import it where it is used.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    URL,
    Column,
    Double,
    Engine,
    MetaData,
    Row,
    Select,
    Table,
    Text,
    create_engine,
    insert,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.pool import NullPool

from results.errors import UsageError
from results.history import OPTION, encoded, in_order
from results.lines import decoded
from results.nights import Night

# Scheme -> SQLAlchemy's name of driver and dialect, and what it is told unless the URL says otherwise.
_SCHEMES = {
    "sqlite": ("sqlite", {"timeout": "60"}),  # s, for other writers
    "postgresql": ("postgresql+psycopg", {"connect_timeout": "10"}),  # s
}
_SCHEMES["postgres"] = _SCHEMES["postgresql+psycopg"] = _SCHEMES["postgresql"]
_FORMS = "sqlite:///FILE, postgresql://USER:PASSWORD@HOST/DATABASE, or a folder"

NIGHTS = Table(
    "tuner_nights",
    MetaData(),
    Column("id", Text, primary_key=True),
    Column("pin", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("began_at", Double, nullable=False),  # Unix time
    Column("record", Text, nullable=False),  # the Night as JSON: what is read back
)


def open_database(address: str) -> "HistoryDatabase":
    """Nothing is connected to yet. An address that cannot be used is a UsageError that shows no password."""
    url = _url(address)
    try:
        return HistoryDatabase(create_engine(url, poolclass=NullPool), _shown(url))
    except ImportError:
        raise UsageError(
            f"{OPTION} {_shown(url)} needs the driver psycopg: pip install 'tuner[postgres]'"
        ) from None
    except ArgumentError:
        raise UsageError(f"{OPTION} {_shown(url)} is no address of a database: {_FORMS}") from None


def _url(address: str) -> URL:
    scheme = address.partition(":")[0]
    if scheme not in _SCHEMES:
        raise UsageError(f"{OPTION} {scheme}://... is not known: {_FORMS}")
    driver, settings = _SCHEMES[scheme]
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):  # their messages repeat the address
        raise UsageError(f"{OPTION} {scheme}:... is no address of a database: {_FORMS}") from None
    if "@" in (url.host or ""):  # the rest of a password would be taken for the host, and shown
        raise UsageError(f"{OPTION} {scheme}://...: an @ in a name or password is written %40")
    if scheme == "sqlite" and url.database in (None, "", ":memory:"):
        raise UsageError(f"{OPTION} {scheme}://... names no file, and would be forgotten: {_FORMS}")
    return url.set(drivername=driver, query={**settings, **url.query})


def _shown(url: URL) -> str:
    """Without any secret: the query may hold a password as well."""
    return url.set(drivername=url.get_backend_name(), query={}).render_as_string(hide_password=True)


@dataclass(frozen=True, slots=True)
class HistoryDatabase:
    """One table, made with the first night."""

    engine: Engine = field(repr=False)  # its address shows what the query holds
    shown: str  # the address without secrets

    def nights(self, pin: str | None = None) -> list[Night]:
        asked = select(NIGHTS.c.id, NIGHTS.c.record)
        if pin is not None:
            asked = asked.where(NIGHTS.c.pin == pin)
        return in_order(
            decoded(row.record.encode(), Night, f"{self.shown}, night {row.id}") for row in self._read(asked)
        )

    def add(self, night: Night) -> None:
        row = {
            "id": night.id,
            "pin": night.pin,
            "machine": night.machine,
            "began_at": night.began_at,
            "record": encoded(night).decode(),
        }
        with self._explained():
            self._make_table()
            with suppress(IntegrityError), self.engine.begin() as connection:  # that id is there
                connection.execute(insert(NIGHTS).values(row))

    def pins(self) -> list[str]:
        return sorted(row.pin for row in self._read(select(NIGHTS.c.pin).distinct()))

    def _read(self, asked: Select[Any]) -> Sequence[Row[Any]]:
        """Its rows; none before the first night, which is when the table is made."""
        with self._explained(), self.engine.connect() as connection:
            return connection.execute(asked).all() if inspect(connection).has_table(NIGHTS.name) else ()

    def _make_table(self) -> None:
        """Unless it is there: whoever may add nights need not be allowed to make tables."""
        try:
            NIGHTS.create(self.engine, checkfirst=True)
        except DBAPIError:
            if not inspect(self.engine).has_table(NIGHTS.name):  # else another process was quicker
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:  # `orig` is what the driver said: no statement, no parameters
            said = "; ".join(filter(None, map(str.strip, str(error.orig).splitlines())))
            raise UsageError(f"cannot use the history {self.shown}: {said}") from error
