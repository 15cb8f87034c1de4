"""Runs that are kept in a database, or on a file system of fsspec."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from results.open_run import open_run
from results.sharing import Sharing
from results.store import RunFolder
from tests import postgres
from tests.contracts.run_contract import Opened, RunContract
from tests.contracts.sharing_contract import Joined, SeveralDrivers, SharingContract

numbers = itertools.count()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    postgres.needed_programs()
    with postgres.served() as server:
        yield server


def database(server: str) -> str:
    name = f"runs{next(numbers)}"
    postgres.run_sql(server, f"CREATE DATABASE {name}")
    return postgres.address(server, name)


class Addressed:
    """`where` is the address; each view has a mirror of its own."""

    @pytest.fixture
    def opened(self, where: str) -> Opened:
        return lambda: open_run(where)

    @pytest.fixture
    def joins(self, where: str) -> Iterator[Joined]:
        with ExitStack() as joined:

            def join() -> tuple[RunFolder, Sharing]:
                folder = open_run(where)
                folder.create()
                return folder, joined.enter_context(folder.joined())

            yield join


class TestFolder(Addressed, RunContract, SharingContract):
    @pytest.fixture
    def where(self, tmp_path: Path) -> str:
        return str(tmp_path / "runs" / "first")


class TestSqlite(Addressed, RunContract, SharingContract, SeveralDrivers):
    @pytest.fixture
    def where(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'runs.db'}?run=first"


class TestPostgres(Addressed, RunContract, SharingContract, SeveralDrivers):
    @pytest.fixture
    def where(self, server: str) -> str:
        return f"{database(server)}?run=first"


class TestMountedDisk(Addressed, RunContract, SharingContract):
    @pytest.fixture
    def where(self, tmp_path: Path) -> str:
        return f"file://{tmp_path / 'shared' / 'first'}"


class TestMemory(Addressed, RunContract, SharingContract):
    """Stands for object stores: no folders of its own, nothing can be appended."""

    @pytest.fixture
    def where(self) -> str:
        return f"memory://runs{next(numbers)}/first"
