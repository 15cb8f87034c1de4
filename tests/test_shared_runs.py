"""Every command that takes a run takes a URL as well, and no command shows or keeps its password."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from results.open_run import mirrors, open_run
from tests import postgres
from tests.sweeps.test_two_drivers import SWEEP

ROOT = Path(__file__).parents[1]
SMALL = {**SWEEP, "name": "small", "budget": {"trials": 2, "baseline_every": 1}}

Tuner = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    postgres.needed_programs()
    with postgres.served() as server:
        yield server


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tuner:
    """As a user runs it, in a folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, str(ROOT / "tuner.py"), *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SMALL))
    return run


@pytest.fixture(params=["postgresql", "sqlite", "file"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return f"{postgres.address(request.getfixturevalue('server'))}?run=small"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db?run=small"
    return f"file://{tmp_path}/shared/small"


def test_a_run_elsewhere_from_its_sweep_to_its_export(where: str, tuner: Tuner, tmp_path: Path) -> None:
    done = tuner("sweep", "sweep.yaml", "--run", where)
    assert done.returncode == 0, done.stderr
    assert "Confirmed on held-out prompts" in done.stdout
    assert [path.name for path in tmp_path.iterdir() if path.name == "runs"] == []
    os.environ["XDG_CACHE_HOME"] = str(tmp_path / "another machine")  # undone with the fixture's
    again = tuner("sweep", "sweep.yaml", "--run", where)
    assert (again.returncode, "  trial " in again.stderr) == (0, False)  # nothing is left to do
    status = tuner("status", where, "--json")
    assert json.loads(status.stdout)["standing"]["state"] == "finished"
    report = tuner("report", where, "--format", "json")
    assert json.loads(report.stdout)["name"] == "small"
    assert tuner("report", where, where, "--format", "md").returncode == 0
    assert "/beside-small-" in tuner("report", where, where).stdout
    assert "fake-server" in tuner("export", where).stdout
    pinned = tuner("pin", where, "-o", "pinned.yaml")
    assert pinned.returncode == 0, pinned.stderr
    assert "run=small" in (text := (tmp_path / "pinned.yaml").read_text()) or "shared/small" in text
    assert postgres.PASSWORD not in text and "p%40ss" not in text
    listed = tuner("list", where.partition("?run=")[0].removesuffix("/small"))
    assert "small" in listed.stdout and "finished" in listed.stdout, listed
    assert "No server was left behind" in tuner("reap", where).stdout
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".db"]
    assert not [path for path in files if b"p%40ss" in path.read_bytes() or b"p@ss" in path.read_bytes()]


def test_a_run_that_is_not_there(where: str, tuner: Tuner) -> None:
    nowhere = f"{where.removesuffix('small')}nowhere"
    for command in ("status", "report", "export", "pin", "profile", "capacity"):
        done = tuner(command, nowhere)
        assert done.returncode == 2
        assert "holds no run" in done.stderr or "there is no such file" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_folder_of_files_elsewhere_is_a_run_folder(tuner: Tuner, tmp_path: Path) -> None:
    """Whoever copies it has a run as any other."""
    assert tuner("sweep", "sweep.yaml", "--run", f"file://{tmp_path}/shared/small").returncode == 0
    kept = {path.relative_to(tmp_path / "shared").as_posix() for path in (tmp_path / "shared").rglob("*")}
    assert {"small/trials.jsonl", "small/blocks.jsonl", "small/sweep.yaml", "small/report.html"} <= kept
    assert not any(name.endswith((".part", "driver.json", "study.log", "lock")) for name in kept)
    done = tuner("status", "shared/small", "--json")
    assert json.loads(done.stdout)["trials"] == 2


def test_other_files_are_neither_copied_nor_joined(tuner: Tuner, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "sub").mkdir(parents=True)
    (other / "sub" / ".env").write_text("secret=hunter2")
    for command in (["status"], ["report"], ["sweep", "sweep.yaml", "--run"]):
        done = tuner(*command, f"file://{other}")
        assert done.returncode == 2, done.stdout
        assert "holds no run, but other files: name a folder of the run's own" in done.stderr
    assert [path.name for path in other.rglob("*")] == ["sub", ".env"]
    assert not [path for path in tmp_path.rglob(".env") if not path.is_relative_to(other)]


@pytest.mark.parametrize("where", ["sqlite:///{}/nothere.db", "file://{}/nothere"])
def test_runs_are_not_listed_of_what_is_not_there(where: str, tuner: Tuner, tmp_path: Path) -> None:
    done = tuner("list", where.format(tmp_path))
    assert done.returncode == 2 and "there is no such f" in done.stderr
    assert not [*tmp_path.glob("nothere*")]


def test_what_a_doctor_captures_stays_on_its_machine(tuner: Tuner) -> None:
    done = tuner("doctor", "sweep.yaml", "--run", "s3://bucket/x")
    assert (done.returncode, "expected a folder of this machine" in done.stderr) == (2, True)


def test_servers_left_behind_are_looked_for_in_the_mirrors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    where = f"file://{tmp_path}/shared/x"
    mirror = open_run(where).path
    assert mirrors(where) == []
    (mirror / "servers.jsonl").write_text("")
    assert mirrors(where) == [mirror]
