"""A real PostgreSQL for tests: a server of its own on a free port of 127.0.0.1, with a password."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from launchers.port import free_port
from tests.missing import missing
from tests.waiting import wait_for

USER = "tuner"
PASSWORD = "p@ss/word:?#%1 ü"
_DEBIAN = "/usr/lib/postgresql/*/bin"


def programs() -> Path | None:
    """Folder of PostgreSQL's own programs: `TUNER_POSTGRES`, the PATH's, or Debian's."""
    named = os.environ.get("TUNER_POSTGRES")
    if named:
        return Path(named)
    on_path = shutil.which("initdb")
    found = [Path(on_path).parent] if on_path else sorted(Path("/").glob(f"{_DEBIAN[1:]}/"))
    return found[-1] if found else None


def needed_programs() -> Path:
    """Without them the test is skipped, and fails where CI runs."""
    return programs() or missing(
        f"no PostgreSQL: no initdb on the PATH or in {_DEBIAN}, and TUNER_POSTGRES is not set"
    )


class Server:
    """Can be stopped and started again on the same data, at the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        _initialise(folder)

    @property
    def where(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns when it answers."""
        settings = (
            f"port={self._port}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self._folder}",
            "fsync=off",
        )
        command: list[str | Path] = [needed_programs() / "postgres", "-D", self._folder / "data"]
        path = self._folder / "log"
        with path.open("wb") as log:
            server = subprocess.Popen(
                [*command, *(f"--{s}" for s in settings)],
                user=_owner(),
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        self._process = server
        wait_for(lambda: server.poll() is not None or "ready to accept" in path.read_text())
        assert server.poll() is None, path.read_text()

    def stop(self) -> None:
        """Without waiting for its clients; what was committed is kept."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait()


@contextmanager
def running() -> Iterator[Server]:
    """A server that has nothing but the user `USER`, who owns it."""
    folder = Path(tempfile.mkdtemp(prefix="tuner-postgres-"))
    try:
        server = Server(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


@contextmanager
def served() -> Iterator[str]:
    """`HOST:PORT` of one that runs as long as it is needed."""
    with running() as server:
        yield server.where


def address(server: str, database: str = "postgres", user: str = USER, password: str = PASSWORD) -> str:
    return f"postgresql://{quote(user, safe='')}:{quote(password, safe='')}@{server}/{database}"


def run_sql(server: str, *statements: str, database: str = "postgres") -> None:
    """Each in a transaction of its own."""
    import psycopg

    with psycopg.connect(address(server, database), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _initialise(folder: Path) -> None:
    (folder / "password").write_text(PASSWORD, "utf-8")
    for path in (folder, folder / "password"):
        shutil.chown(path, _owner())
    options = (f"--username={USER}", f"--pwfile={folder / 'password'}", "--auth=scram-sha-256", "--no-sync")
    command: list[str | Path] = [
        needed_programs() / "initdb",
        "-D",
        folder / "data",
        "-E",
        "UTF8",
        "--locale=C",
        *options,
    ]
    done = subprocess.run(command, user=_owner(), cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _owner() -> int:
    """PostgreSQL refuses to run as root."""
    return os.getuid() or pwd.getpwnam("postgres").pw_uid
