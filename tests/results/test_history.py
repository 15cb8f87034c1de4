"""Histories of the nightly gate: in a folder, in SQLite, in PostgreSQL."""

import errno
import itertools
import json
import logging
import os
import pwd
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO
from unittest.mock import patch
from urllib.parse import quote

import msgspec
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results import lines
from results.errors import UsageError
from results.history import History, file_name, open_history
from results.nights import SPEED_UP
from tests import postgres
from tests.contracts.history_contract import ROOT, HistoryContract
from tests.recorded_nights import night, typical


class TestFolder(HistoryContract):
    @pytest.fixture
    def where(self, tmp_path: Path) -> str:
        return str(tmp_path / "nightly" / "history")


class TestSqlite(HistoryContract):
    @pytest.fixture
    def where(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'history.db'}"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    postgres.needed_programs()
    with postgres.served() as server:
        yield server


class TestPostgres(HistoryContract):
    numbers = itertools.count()

    @pytest.fixture
    def where(self, server: str) -> str:
        name = f"history{next(self.numbers)}"
        postgres.run_sql(server, f"CREATE DATABASE {name}")
        return postgres.address(server, name)


# --- a folder ---


def test_two_machines_never_write_the_same_file(tmp_path: Path) -> None:
    history = open_history(str(tmp_path))
    for machine in ("gpu-01", "gpu-02", "rack 7/gpu"):
        history.add(night(machine=machine))
    files = sorted(file.name for file in tmp_path.glob("*.jsonl"))
    assert files == ["qwen-chat@gpu-01.jsonl", "qwen-chat@gpu-02.jsonl", "qwen-chat@rack%207%2Fgpu.jsonl"]


_odd = st.one_of(
    st.text(max_size=5), st.text("ab-@%/~.", max_size=4), st.text("ä/", min_size=30, max_size=120)
)


@given(_odd, _odd, _odd, _odd)
def test_whatever_the_names_files_are_apart_and_in_the_folder(a: str, b: str, c: str, d: str) -> None:
    names = file_name(night(pin=a, machine=b)), file_name(night(pin=c, machine=d))
    assert (names[0] == names[1]) == ((a, b) == (c, d))
    for name in names:
        assert "/" not in name
        assert len(name.encode()) <= 255
        assert Path("history", name).suffix == ".jsonl"


def test_git_is_told_how_to_merge_but_once(tmp_path: Path) -> None:
    attributes = tmp_path / ".gitattributes"
    for number in range(2):
        open_history(str(tmp_path)).add(night(number))
        assert attributes.read_text() == "*.jsonl merge=union\n"
    attributes.write_text("* -text\n")
    open_history(str(tmp_path)).add(night(2))
    assert attributes.read_text() == "* -text\n"


def test_clones_of_one_machines_history_merge(tmp_path: Path) -> None:
    """Both add to the same file, and one of the nights is in both."""
    one, two = tmp_path / "one", tmp_path / "two"
    _git(tmp_path, "init", "-q", "-b", "main", "one")
    _commit(one, 0)
    _git(tmp_path, "clone", "-q", "one", "two")
    _commit(one, 1, 3)
    _commit(two, 2, 3)
    _git(one, "pull", "-q", "--no-rebase", "--no-edit", str(two), "main")
    assert len((one / "h" / "qwen-chat@gpu-01.jsonl").read_bytes().splitlines()) >= 4
    assert open_history(str(one / "h")).nights() == [night(number) for number in range(4)]


def _commit(clone: Path, *numbers: int) -> None:
    for number in numbers:
        open_history(str(clone / "h")).add(night(number))
    _git(clone, "add", "--all")
    _git(clone, "commit", "-q", "-m", f"nights {numbers}")


def _git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=nightly", "-c", "user.email=nightly@example.com")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_copies_of_its_files_count_once_whatever_their_names(tmp_path: Path) -> None:
    """Artifacts of two jobs that began with the same history, unpacked beside each other."""
    history = open_history(str(tmp_path))
    history.add(night(0))
    (tmp_path / "of another job.jsonl").write_bytes((tmp_path / file_name(night())).read_bytes())
    history.add(night(1))
    assert history.nights() == [night(0), night(1)]


def test_a_torn_last_line_is_passed_over_and_cut_by_the_next_writer(tmp_path: Path) -> None:
    history, file = open_history(str(tmp_path)), tmp_path / file_name(night())
    history.add(night(0))
    whole = file.read_bytes()
    file.write_bytes(whole + whole[: len(whole) // 2])
    assert history.nights() == [night(0)]
    history.add(night(1))
    assert history.nights() == [night(0), night(1)]
    assert file.read_bytes() == whole + msgspec.json.encode(night(1)) + b"\n"


def test_a_writer_waits_while_another_is_about_to_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the cut would take the line that was written meanwhile."""
    history = open_history(str(tmp_path))
    history.add(night(0))
    looked, second = lines._end_of_whole_lines, threading.Thread(target=history.add, args=[night(2)])

    def slowly(file: BinaryIO) -> int:
        end = looked(file)
        monkeypatch.setattr(lines, "_end_of_whole_lines", looked)
        second.start()
        second.join(0.3)  # long enough for a writer that does not wait
        return end

    monkeypatch.setattr(lines, "_end_of_whole_lines", slowly)
    history.add(night(1))
    second.join()
    assert history.nights() == [night(0), night(1), night(2)]


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    history, file = open_history(str(tmp_path)), tmp_path / file_name(night())
    history.add(night(0))
    with file.open("ab") as opened:
        opened.write(b"<<<<<<< HEAD\n")
    history.add(night(1))
    with pytest.raises(UsageError, match=r"gpu-01\.jsonl, line 2 is damaged .*: restore it, or remove it"):
        history.nights("another")


@pytest.mark.parametrize("changes", [{}, {"verdict": "OF LATER", "values": 7}])
def test_a_night_of_a_newer_tuner_is_refused_even_if_it_looks_damaged(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    line = msgspec.json.encode({**msgspec.to_builtins(night(schema=99)), **changes})
    (tmp_path / file_name(night())).write_bytes(line + b"\n")
    with pytest.raises(UsageError, match=r"line 1 was written by a newer tuner \(schema 99\)"):
        open_history(str(tmp_path)).nights()


def test_a_full_disk_keeps_what_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = open_history(str(tmp_path))
    history.add(night(0))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched, pytest.raises(UsageError, match="no space left"):
        patched.setattr(os, "fsync", full)
        history.add(night(1))
    assert (tmp_path / file_name(night())).read_bytes() == msgspec.json.encode(night(0)) + b"\n"


def test_a_file_where_a_folder_is_expected(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text("")
    for where in (file, file / "deeper"):
        with pytest.raises(UsageError, match="is a file: name another folder with --history"):
            open_history(str(where)).add(night())
        with pytest.raises(UsageError, match="is a file: name another folder with --history"):
            open_history(str(where)).nights()


@contextmanager
def somebody_else(folder: Path) -> Iterator[None]:
    """A user who may look into the folder, but not write there: root may write anywhere."""
    for path in (folder, *folder.parents[: len(folder.parents) - 2]):
        path.chmod(0o555)
    before = os.geteuid()
    if before == 0:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.fixture
def shut() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tuner-shut-", dir="/tmp") as folder:
        yield Path(folder)
        Path(folder).chmod(0o755)


def test_a_folder_that_may_not_be_written(shut: Path) -> None:
    with somebody_else(shut), pytest.raises(UsageError, match=f"no permission to use {shut}.*--history"):
        open_history(str(shut)).add(night())


def test_a_folder_that_may_not_be_read_is_not_taken_for_an_empty_one(shut: Path) -> None:
    open_history(str(shut / "h")).add(night())
    (shut / "h").chmod(0o000)
    with somebody_else(shut), pytest.raises(UsageError, match="no permission to use"):
        open_history(str(shut / "h")).nights()
    (shut / "h").chmod(0o755)


def test_a_year_of_nights_is_small(tmp_path: Path) -> None:
    assert len(typical().values) == 40
    history = open_history(str(tmp_path))
    with patch("os.fsync"):
        for number in range(365):
            history.add(typical(number))
    (file,) = tmp_path.glob("*.jsonl")
    assert file.stat().st_size < 1_500_000
    assert len(history.nights()) == 365


def test_pandas_reads_a_file_one_column_a_series(tmp_path: Path) -> None:
    """As docs/nightly-history.md says."""
    history = open_history(str(tmp_path))
    history.add(night(0))
    history.add(night(1, values={}))
    history.add(night(2, values={SPEED_UP: 1.2, f"{SPEED_UP}/chat @ closed(4)": 1.1}))
    (path,) = tmp_path.glob("*.jsonl")
    nights = pandas.read_json(path, lines=True)
    assert list(nights["verdict"]) == ["PASS", "PASS", "PASS"]
    series = pandas.DataFrame(list(nights["values"]), index=nights["began_at"])
    assert list(series.columns) == [SPEED_UP, "baseline_tokens_per_s", f"{SPEED_UP}/chat @ closed(4)"]
    assert list(series[SPEED_UP].dropna()) == [1.31, 1.2]
    assert [at.timestamp() for at in series.index] == [night(number).began_at for number in range(3)]


# --- a database ---


def test_a_folder_needs_no_sqlalchemy() -> None:
    code = (
        "import sys; from results.history import open_history\n"
        "open_history('h').nights()\n"
        "sys.exit('sqlalchemy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("mysql://u:s3cret@host/db", r"mysql://\.\.\. is not known: sqlite:///FILE, postgresql://"),
        ("postgresql+psycopg2://u:s3cret@host/db", r"postgresql\+psycopg2://\.\.\. is not known"),
        ("sqlite+aiosqlite:///h.db", "is not known"),
        ("https://u:s3cret@host/db", "is not known"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite://history.db", "names no file"),
        ("sqlite:history.db", "is no address of a database"),
        ("postgresql:/u:s3cret@host/db", "is no address of a database"),
        ("postgresql://u:s3cret@host:p0rt/db", "is no address of a database"),
        ("postgresql://u:half@s3cret@host/db", "written %40"),
    ],
)
def test_addresses_that_are_none(where: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        open_history(where)
    assert "s3cret" not in "".join(traceback.format_exception(refused.value))


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    where = "postgresql://u:s3cret@host/db"
    with pytest.raises(UsageError, match=r"psycopg: pip install -e '\.\[postgres\]'") as refused:
        open_history(where)
    assert "s3cret" not in "".join(traceback.format_exception(refused.value))


def test_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all\n" * 100)
    with pytest.raises(UsageError, match=r"text\.db: file is not a database"):
        open_history(f"sqlite:///{tmp_path}/text.db").nights()
    with pytest.raises(UsageError, match=r"nowhere/h\.db: unable to open database file"):
        open_history(f"sqlite:///{tmp_path}/nowhere/h.db").add(night())


def test_a_database_that_may_not_be_written(shut: Path) -> None:
    history = open_history(f"sqlite:///{shut}/h.db")
    history.add(night(0))
    (shut / "h.db").chmod(0o444)
    with somebody_else(shut), pytest.raises(UsageError, match=r"h\.db: attempt to write a readonly database"):
        history.add(night(1))
    assert history.nights() == [night(0)]


def test_a_database_that_stays_locked_is_named(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    open_history(f"sqlite:///{file}").add(night(0))
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UsageError, match=r"h\.db: database is locked"):
            open_history(f"sqlite:///{file}?timeout=0.01").add(night(1))
    open_history(f"sqlite:///{file}?timeout=0.01").add(night(1))


def test_a_database_waits_for_other_writers(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/h.db"
    with patch("sqlite3.dbapi2.connect", wraps=sqlite3.connect) as connect:
        open_history(address).nights()
    assert connect.call_args.kwargs["timeout"] == 60


def test_pandas_reads_a_database(tmp_path: Path) -> None:
    """As docs/nightly-history.md says."""
    address = f"sqlite:///{tmp_path}/h.db"
    for number in (1, 0):
        open_history(address).add(night(number))
    records = pandas.read_sql("SELECT record FROM tuner_nights ORDER BY began_at", address)["record"]
    nights = pandas.DataFrame(map(json.loads, records))
    assert list(nights["began_at"]) == [night(0).began_at, night(1).began_at]
    assert list(nights["values"]) == [night(0).values, night(1).values]


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    history = open_history(f"sqlite:///{tmp_path}/h.db")
    history.add(night())
    for record, message in (("{", "is damaged"), ('{"schema":99}', "newer tuner")):
        with closing(sqlite3.connect(tmp_path / "h.db")) as other, other:
            other.execute("UPDATE tuner_nights SET record = ?", [record])
        with pytest.raises(UsageError, match=rf"h\.db, night qwen-chat gpu-01 0 .*{message}"):
            history.nights()


def test_postgres_is_known_by_both_its_names(server: str) -> None:
    postgres.run_sql(server, "CREATE DATABASE names")
    address = postgres.address(server, "names")
    open_history(address).add(night())
    assert open_history(address.replace("postgresql://", "postgres://")).nights() == [night()]
    assert open_history(address.replace("postgresql://", "postgresql+psycopg://")).nights() == [night()]


def test_whoever_adds_nights_need_not_be_allowed_to_make_tables(server: str) -> None:
    postgres.run_sql(server, "CREATE DATABASE shared")
    open_history(postgres.address(server, "shared")).add(night(0))
    rights = (
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        "CREATE USER nightly PASSWORD 'n'",
        "GRANT SELECT, INSERT ON tuner_nights TO nightly",
    )
    postgres.run_sql(server, *rights, database="shared")
    history = open_history(postgres.address(server, "shared", "nightly", "n"))
    history.add(night(1))
    assert history.nights() == [night(0), night(1)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a: a.replace("postgresql://tuner:", "postgresql://tuner:x"),
            "password authentication failed",
        ),
        (lambda a: a.replace("/postgres", "/nowhere"), 'database "nowhere" does not exist'),
        (lambda a: re.sub(r":\d+/", ":1/", a), "onnection refused"),
        (lambda a: a.replace("127.0.0.1", "no-such-host.invalid"), "no-such-host.invalid"),
        (lambda a: f"{a}?sslmode=perhaps", "sslmode"),
        (lambda a: f"{a}?colour=red", "colour"),
        (
            lambda a: re.sub(r"//.*@(.*)", r"//\1?user=tuner&password=s3cret", a),
            "password authentication failed",
        ),
    ],
)
def test_no_password_is_ever_shown(
    server: str, change: Callable[[str], str], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = change(postgres.address(server))
    uses: list[Callable[[History], object]] = [
        lambda h: h.add(night()),
        lambda h: h.nights(),
        lambda h: h.pins(),
    ]
    for use in uses:
        with caplog.at_level(logging.DEBUG), pytest.raises(UsageError, match=message) as refused:
            use(open_history(address))
        assert "cannot use the history postgresql://" in str(refused.value)
        assert "\n" not in str(refused.value)
        seen = "".join([*traceback.format_exception(refused.value), caplog.text, repr(open_history(address))])
        for secret in ("s3cret", postgres.PASSWORD, quote(postgres.PASSWORD, safe=""), "ss/word"):
            assert secret not in seen
