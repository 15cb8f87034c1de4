"""A history in a database, for machines that share one: SQLite, or PostgreSQL with the extra `postgres`.

Loads SQLAlchemy: import it where it is used.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    Column,
    Double,
    Engine,
    MetaData,
    Row,
    Select,
    Table,
    Text,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.pool import NullPool

from results.database import engine_of, explained, shown, url_of
from results.history import OPTION, encoded, in_order
from results.lines import decoded
from results.nights import Night

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
    url = url_of(address, OPTION, _FORMS)
    return HistoryDatabase(engine_of(url, OPTION, _FORMS, NullPool), shown(url))


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
        with explained(f"the history {self.shown}"):
            yield
