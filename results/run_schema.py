"""Tables of runs in a database, made with the first run and brought up to date by whoever is newer.

A run is in them as it is in a folder: lines of records, and files.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    insert,
    inspect,
    select,
    text,
    update,
)

from results.errors import UsageError

VERSION = 2
TABLES = MetaData()

SCHEMA = Table("tuner_schema", TABLES, Column("version", Integer, nullable=False))  # one row
RUNS = Table(
    "tuner_runs",
    TABLES,
    Column("name", Text, primary_key=True),
    Column("serial", BigInteger, nullable=False),  # of the last record
    Column("next_block", BigInteger, nullable=False),
    Column("holder", Text),  # the driver that may claim and record now
)
RECORDS = Table(
    "tuner_records",
    TABLES,
    Column("run", Text, primary_key=True),
    Column("serial", BigInteger, primary_key=True, autoincrement=False),
    Column("file", Text, nullable=False),  # of a run folder, whose line it would be
    Column("id", Text, nullable=False),  # so that what is sent again is there once
    Column("driver", Text, nullable=False),  # who recorded it
    Column("line", Text, nullable=False),  # JSON
    UniqueConstraint("run", "id"),
)
FILES = Table(
    "tuner_files",
    TABLES,
    Column("run", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("mark", Text, nullable=False),  # another one for another content
    Column("content", LargeBinary, nullable=False),
)
CLAIMS = Table(
    "tuner_claims",
    TABLES,
    Column("run", Text, primary_key=True),
    Column("what", Text, primary_key=True),
    Column("driver", Text, nullable=False),
    Column("done_serial", BigInteger),  # when it was given back; NULL = somebody is at work on it
)
DRIVERS = Table(
    "tuner_drivers",
    TABLES,
    Column("id", Text, primary_key=True),
    Column("run", Text, nullable=False),
    Column("beat_at", Double, nullable=False),  # Unix time of the last sign of life
    Column("lease_s", Double, nullable=False),  # silent for longer, it counts as dead
    Column("joined_serial", BigInteger, nullable=False),  # of the last record when it came
    Column("alone", Boolean, nullable=False, server_default=false()),  # it works beside nobody
)

# What brings the tables of the version before to this one.
STEPS = {2: ("ALTER TABLE tuner_drivers ADD COLUMN alone BOOLEAN DEFAULT false NOT NULL",)}
_LOCK = 0x74756E6572  # "tuner": two that make the tables at once wait for each other


def version_of(connection: Connection) -> int:
    """Version of the tables; 0 = there are none. Raises UsageError if a newer tool made them."""
    if not inspect(connection).has_table(SCHEMA.name):
        return 0
    version = connection.execute(select(SCHEMA.c.version)).scalar_one()
    if version > VERSION:
        raise UsageError(f"its tables were made by a newer tuner (version {version}): update this one")
    return int(version)


def make(connection: Connection) -> None:
    """Make the tables, or bring them up to date. Whoever finds them so needs no right to make tables."""
    if version_of(connection) == VERSION:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    version = version_of(connection)  # another one was quicker, perhaps
    if version == 0:
        TABLES.create_all(connection)
        connection.execute(insert(SCHEMA).values(version=VERSION))
        return
    for step in range(version + 1, VERSION + 1):
        for statement in STEPS[step]:
            connection.execute(text(statement))
        connection.execute(update(SCHEMA).values(version=step))
