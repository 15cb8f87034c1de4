"""A path that is no run folder is told apart from a missing one, with the runs nearby."""

import os
from pathlib import Path

import pytest

from results.errors import UsageError
from sweeps.which_run import check_run
from tuner import main


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where six runs lie in `runs`, the first the oldest."""
    for number, name in enumerate(["first", "second", "third", "fourth", "fifth", "sixth"]):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "sweep.yaml").write_text("engine: fake\n")
        os.utime(folder / "sweep.yaml", (1e9 + number, 1e9 + number))
    (tmp_path / "runs" / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


NEWEST = "(runs here: runs/sixth, runs/fifth, runs/fourth, runs/third, runs/second, ...)"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("runs/frist", "there is no folder runs/frist (did you mean runs/first?)"),
        ("second", "there is no folder second (did you mean runs/second?)"),
        ("nope", f"there is no folder nope {NEWEST}"),
        ("deep/er/nope", f"there is no folder deep/er/nope {NEWEST}"),
        ("runs", f"runs is no run folder: it has no sweep.yaml {NEWEST}"),
        ("runs/empty", "runs/empty is no run folder: it has no sweep.yaml"),
        ("runs/first/sweep.yaml", f"runs/first/sweep.yaml is a file, not a run folder {NEWEST}"),
        ("n\u00f6 pe", f"there is no folder n\u00f6 pe {NEWEST}"),
        ("x" * 5000, f"cannot look at {'x' * 200}: File name too long"),
    ],
)
def test_what_is_there_in_place_of_a_run(runs: Path, path: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        check_run(Path(path))
    assert str(error.value) == said


def test_a_run_is_a_run(runs: Path) -> None:
    check_run(Path("runs/first"))
    check_run(Path("runs/first/sweep.yaml"), or_sweep=True)


def test_without_any_run_nothing_is_proposed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"there is no folder nope$"):
        check_run(Path("nope"))


@pytest.mark.parametrize("command", ["report", "status", "export", "capacity", "profile"])
def test_every_command_that_reads_a_run_says_the_same(
    runs: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "runs/frist"])
    assert end.value.code == 2
    either = " run folder or sweep file" if command in ("capacity", "profile") else " folder"
    said = capsys.readouterr().err
    assert said == f"tuner: there is no{either} runs/frist (did you mean runs/first?)\n"


def test_a_run_that_may_not_be_entered_does_not_hide_the_others(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed, exists, access = Path("runs/third"), Path.exists, os.access

    def exists_unless_closed(path: Path) -> bool:
        if closed in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", exists_unless_closed)
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed and access(path, mode))
    with pytest.raises(SystemExit) as end:
        main(["list", "runs"])
    assert not end.value.code
    said = capsys.readouterr().out
    assert "third is broken: no permission to read the folder runs/third" in said
    assert "fourth" in said
