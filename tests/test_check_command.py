"""`tuner pin` and `tuner check` from the command line: exit codes, files, what CI reads."""

import json
from pathlib import Path

import pytest

from results.store import RunFolder
from tests.sweeps.nightly.conftest import finished, pinned_file
from tests.test_tuner import refused, run

__all__ = ["finished", "pinned_file"]


def check(tmp_path: Path, pinned_file: Path, *more: str | Path) -> int:
    return run(
        "check",
        pinned_file,
        "--history",
        tmp_path / "history",
        "--run",
        tmp_path / "run",
        "--machine",
        "ci",
        *more,
    )


def test_from_a_run_to_its_first_night(
    finished: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    pinned = tmp_path / "pinned.yaml"
    assert run("pin", finished.path, "-o", pinned, "--blocks", "2") == 0
    assert "pinned.yaml" in capsys.readouterr().out
    assert "choose another name with -o, or --force" in refused(capsys, "pin", finished.path, "-o", pinned)
    files = ("--junit", tmp_path / "junit.xml", "--summary", tmp_path / "summary.md")
    assert check(tmp_path, pinned, *files) == 4
    told = capsys.readouterr().out
    assert told.startswith("Not judged yet") and "::" not in told
    assert (tmp_path / "junit.xml").read_text().startswith("<?xml")
    assert (tmp_path / "summary.md").read_text().startswith("## Not judged yet")
    assert (tmp_path / "run" / "report.html").exists()
    assert len((tmp_path / "history" / "guarded@ci.jsonl").read_text().splitlines()) == 1


def test_json_is_all_there_is_on_stdout(
    pinned_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert check(tmp_path, pinned_file, "--json", "--junit", tmp_path / "junit.xml") == 4
    assert json.loads(capsys.readouterr().out)["verdict"] == "INSUFFICIENT"


def test_github_gets_annotations_and_no_command_from_a_log(
    pinned_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    drifted = pinned_file.read_text().replace("winner n: '4'", "winner n: '16'")
    pinned_file.write_text(drifted)
    assert check(tmp_path, pinned_file) == 5
    lines = capsys.readouterr().out.splitlines()
    stop = lines[0].removeprefix("::stop-commands::")
    end = lines.index(f"::{stop}::")
    assert any(line.startswith("::error file=") and "16" in line for line in lines[end:])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--accept", "new engine"], "nothing is in alarm"),
        (["--since", "2026-01-01"], "go with --accept"),
        (["--history", "mysql://host/db"], "mysql"),
        (["--history", "/dev/null"], "/dev/null"),
    ],
)
def test_what_cannot_be_asked_is_explained(
    pinned_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    asked: list[str | Path] = [pinned_file, "--run", tmp_path / "run"]
    if "--history" not in more:
        asked += ["--history", tmp_path / "history"]
    assert message in refused(capsys, "check", *asked, *more)
    assert not (tmp_path / "run").exists()


def test_a_shift_is_accepted_since_a_day(
    pinned_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("check", pinned_file, "--history", tmp_path / "history", "--since", "2026-11-01")
    assert run(*asked, "--accept", "the new engine is safer") == 0
    assert (
        "Accepted for all since 2026-11-01 00:00 UTC on all: the new engine is safer"
        in capsys.readouterr().out
    )
    assert "the new engine is safer" in (tmp_path / "pinned.accepted.yaml").read_text()
