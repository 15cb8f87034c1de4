"""A run in a database: its tables, drivers that die, a server that goes away, and no password anywhere."""

import itertools
import logging
import multiprocessing
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import create_engine, inspect, text

from results import run_schema
from results.errors import UsageError
from results.mirrored import MirroredRun
from results.open_run import known_run, open_run, runs_at
from results.records import BASELINE
from results.run_database import RunDatabase
from results.run_schema import VERSION
from tests import postgres
from tests.records import trial
from tests.waiting import wait_for

numbers = itertools.count()
LEASE_S = 1.0


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    postgres.needed_programs()
    with postgres.running() as server:
        yield server


@pytest.fixture
def address(server: postgres.Server) -> str:
    name = f"tables{next(numbers)}"
    postgres.run_sql(server.where, f"CREATE DATABASE {name}")
    return postgres.address(server.where, name)


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'runs.db'}"
    made: str = request.getfixturevalue("address")
    return made


def opened(where: str, run: str = "first") -> tuple[MirroredRun, RunDatabase]:
    folder = open_run(f"{where}?run={run}&lease_s={LEASE_S}")
    assert isinstance(folder, MirroredRun) and isinstance(folder.store, RunDatabase)
    return folder, folder.store


def dead(where: str) -> RunDatabase:
    """A driver that has come and gives no further sign of life."""
    folder, store = opened(where)
    folder.create()
    store.database.do(lambda connection: store._come(connection, alone=False))
    return store


# --- tables ---


def schema_of(where: str) -> dict[str, list[tuple[str, str, bool]]]:
    engine = create_engine(where.replace("postgresql:", "postgresql+psycopg:"))
    found = inspect(engine)
    tables = {
        table: [(c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(table)]
        for table in found.get_table_names()
    }
    engine.dispose()
    return tables


def as_version_1(where: str) -> None:
    """Tables as the first version made them, with a run in them."""
    folder, _ = opened(where)
    folder.create()
    folder.add_trial(trial(0, BASELINE, 0.0))
    engine = create_engine(where.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE tuner_drivers DROP COLUMN alone"))
        connection.execute(text("UPDATE tuner_schema SET version = 1"))
    engine.dispose()


def test_older_tables_are_brought_up_to_date_with_what_is_in_them(where: str, tmp_path: Path) -> None:
    as_version_1(where)
    reader, _ = opened(where)
    assert [t.number for t in reader.trials()] == [0]
    fresh = f"sqlite:///{tmp_path / 'fresh.db'}" if where.startswith("sqlite") else None
    if fresh is not None:
        opened(fresh)[0].create()
        assert schema_of(where) == schema_of(fresh)
    assert ("alone", "BOOLEAN", False) in schema_of(where)["tuner_drivers"]
    with reader.locked():
        pass


def test_tables_of_a_newer_tuner_are_left_alone(where: str) -> None:
    opened(where)[0].create()
    engine = create_engine(where.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text("UPDATE tuner_schema SET version = 99"))
    engine.dispose()
    with pytest.raises(UsageError, match=r"newer tuner \(version 99\)"):
        opened(where)


def _create(where: str, cache: str) -> None:
    import os

    os.environ["XDG_CACHE_HOME"] = cache
    folder, _ = opened(where)
    folder.create()
    folder.add_trial(trial(0, BASELINE, 0.0))


def test_processes_that_make_the_tables_at_once(where: str, tmp_path: Path) -> None:
    spawned = multiprocessing.get_context("spawn")
    makers = [spawned.Process(target=_create, args=(where, str(tmp_path / f"c{at}"))) for at in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert [maker.exitcode for maker in makers] == [0] * 4
    assert len(opened(where)[0].trials()) == 4


def test_reading_makes_no_tables(where: str) -> None:
    is_file = where.startswith("sqlite")
    with pytest.raises(UsageError, match="there is no such file" if is_file else "holds no run"):
        known_run(f"{where}?run=first")
    assert not (is_file and Path(where.removeprefix("sqlite:///")).exists())
    assert schema_of(where) == {}


def test_who_may_not_make_tables_uses_those_that_are_there(server: postgres.Server, address: str) -> None:
    opened(address)[0].create()
    rights = (
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        f"CREATE USER {(user := f'colleague{next(numbers)}')} PASSWORD 'n'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {user}",
    )
    postgres.run_sql(server.where, *rights, database=address.rpartition("/")[2])
    theirs = postgres.address(server.where, address.rpartition("/")[2], user, "n")
    folder, _ = opened(theirs)
    folder.create()
    with folder.joined() as sharing:
        assert sharing.next_block() == 0


def test_runs_of_one_database_are_apart(where: str) -> None:
    for run, count in (("first", 1), ("second/of all", 2)):
        folder, _ = opened(where, quote(run, safe=""))
        folder.create()
        folder.write_text("sweep.yaml", f"name: {run}\n")
        for number in range(count):
            folder.add_trial(trial(number, BASELINE, 0.0))
    found = {run.sweep_file.read_text(): len(run.trials()) for run in runs_at(where)}
    assert found == {"name: first\n": 1, "name: second/of all\n": 2}
    with pytest.raises(UsageError, match=r"third holds no run \(runs there: first, second/of all\)"):
        known_run(f"{where}?run=third")


def test_a_mirror_that_was_looked_at_receives_no_line_twice(where: str) -> None:
    """The same mirror for whoever measured, looked and goes on, as it is for commands one after the other."""
    for _ in range(3):
        folder, _ = opened(where)
        folder.create()
        if not folder.trials():
            folder.add_trial(trial(0, BASELINE, 0.0))
        with folder.joined() as sharing:
            assert sharing.news() == ([], [])
            assert len(folder.trials()) == 1
        folder.lock.close()


# --- drivers that die ---


def test_what_a_dead_driver_claimed_is_free_again(where: str) -> None:
    gone = dead(where)
    theirs = gone.sharing(lambda name, line: None)
    assert theirs.claim("search: a") and theirs.claim("search: b")
    folder, _ = opened(where)
    folder.add_trial(trial(0, BASELINE, 0.0))
    theirs.release("search: b")
    late, _ = opened(where)
    late.create()
    with late.joined() as sharing:
        assert sharing.held_by_others("search") == 1
        assert not sharing.claim("search: a")
        wait_for(lambda: sharing.claim("search: a"))
        assert sharing.held_by_others("search") == 0
        theirs.release("search: a")  # it wakes up, and has it no longer
        assert not opened(where)[1].sharing(lambda name, line: None).claim("search: a")


def test_a_dead_driver_keeps_nobody_from_its_turn(where: str) -> None:
    theirs = dead(where).sharing(lambda name, line: None)
    theirs.exclusive().__enter__()
    folder, _ = opened(where)
    folder.create()
    with folder.joined() as sharing, sharing.exclusive():
        assert sharing.next_block() == 0


def test_a_driver_that_was_taken_for_dead_lives_again(where: str) -> None:
    folder, store = opened(where)
    folder.create()
    with folder.joined():
        store.database.do(lambda connection: store._forget(connection, frozenset()))
        assert not store.living()
        wait_for(lambda: store.living() == {store.driver()})


def test_a_driver_that_ends_gives_everything_back_at_once(where: str) -> None:
    (one, _), (other, _) = opened(where), opened(where)
    one.create()
    with other.joined() as left:
        with one.joined() as sharing:
            assert sharing.claim("search: a")
        assert left.claim("search: a")
    assert not one.living()


# --- a server that goes away ---


def test_a_driver_waits_for_its_server_and_says_so_once(server: postgres.Server, address: str) -> None:
    told: list[str] = []
    folder, store = opened(address)
    folder.on_wait(told.append)
    folder.create()
    with folder.joined() as sharing, sharing.exclusive():
        assert sharing.claim("search: a")
        server.stop()
        adding = threading.Thread(target=folder.add_trial, args=[trial(0, BASELINE, 0.0)])
        adding.start()
        wait_for(lambda: bool(told))
        server.start()
        adding.join()
        assert [t.number for t in opened(address)[0].trials()] == [0]
        other = dead(address).sharing(lambda name, line: None)
        assert not other.claim("search: a")  # whoever could not give a sign of life is not dead
        entered = threading.Event()

        def enter() -> None:
            with other.exclusive():
                entered.set()

        waiting = threading.Thread(target=enter)
        waiting.start()
        assert not entered.wait(0.3)
    waiting.join()
    assert entered.is_set()
    assert 1 <= len(told) <= 3  # the thread that gives signs of life may be heard too
    assert all(f"{store.database.shown} does not answer" in line for line in told)


def test_a_server_that_stays_away_ends_the_run_with_a_reason(
    server: postgres.Server, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, store = opened(address)
    folder.create()
    store.database._patience_s = 0.3
    server.stop()
    try:
        with pytest.raises(UsageError, match=r"cannot use postgresql://.*refused"):
            folder.add_trial(trial(0, BASELINE, 0.0))
        began = time.monotonic()
        with pytest.raises(UsageError, match="cannot use"):
            opened(address)
        assert time.monotonic() - began < 60  # what never answered is not waited for
    finally:
        server.start()


# --- addresses and secrets ---


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("postgresql://u:s3cret@host/db", r"postgresql://u:\*\*\*@host/db names no run: add \?run=NAME"),
        ("postgresql://u:s3cret@host/db?run=a&lease_s=long", "lease_s is a number of seconds"),
        *(
            (f"sqlite:///a.db?run=a&lease_s={s}", "lease_s is .* 1 or more")
            for s in ("0", "-5", "nan", "1e400")
        ),
        ("sqlite:///a.db?runn=a", r"names no run: add \?run=NAME"),
        ("sqlite:///a.db?run=a&leases=3", r"unknown leases after the \?: known are run, lease_s"),
        ("file:///", "names no folder"),
        ("postgresql://u:half@s3cret@host/db?run=a", "written %40"),
        ("postgresql://u:s3cret@host:p0rt/db?run=a", "is no address of a database"),
        ("sqlite://?run=a", "names no file"),
        ("nosuch://u:s3cret@host/x", r"--run nosuch://host/x: "),
        ("s3x://key:s3cret@bucket/x?token=s3cret", r"--run s3x://bucket/x: "),
    ],
)
def test_addresses_that_are_none(where: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        open_run(where)
    assert "s3cret" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a: a.replace("postgresql://tuner:", "postgresql://tuner:x"),
            "password authentication failed",
        ),
        (lambda a: a.replace("/tables", "/nowhere"), "does not exist"),
        (lambda a: f"{a}&password=s3cret&sslmode=perhaps", "sslmode"),
    ],
)
def test_no_password_is_ever_shown(
    address: str, change: Callable[[str], str], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(UsageError, match=message) as refused:
        open_run(change(f"{address}?run=first"))
    seen = "".join([*traceback.format_exception(refused.value), caplog.text])
    for secret in ("s3cret", postgres.PASSWORD, quote(postgres.PASSWORD, safe=""), "ss/word"):
        assert secret not in seen


def test_a_run_does_not_show_its_password(address: str) -> None:
    folder, store = opened(address)
    assert folder.shown == f"{store.database.shown}?run=first"
    for shown in (
        repr(folder),
        repr(store),
        repr(store.database),
        str(folder.path),
        repr(folder.study_place),
    ):
        assert postgres.PASSWORD not in shown and quote(postgres.PASSWORD, safe="") not in shown


@pytest.mark.parametrize("name", ["../escaped.txt", "/tmp/escaped.txt", "logs/../../escaped.txt"])
def test_nothing_is_put_outside_of_the_mirror(where: str, name: str) -> None:
    folder, store = opened(where)
    folder.create()
    store.write(name, b"x")
    with pytest.raises(UsageError, match="outside of a run folder"):
        opened(where)
    assert not list(folder.path.parents[1].rglob("escaped.txt")) and not Path("/tmp/escaped.txt").exists()


def test_the_schema_has_a_step_for_each_version() -> None:
    assert sorted(run_schema.STEPS) == [*range(2, VERSION + 1)]
