"""`tuner report --history`: a real history becomes a page, or is refused with what to do."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from results.history import open_history
from results.nights import SPEED_UP
from sweeps.nightly.accept import accepted_file
from tests.analysis.nightly.trends import nights, one_regression
from tests.test_tuner import refused, run


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """With two pins, of which one is that of `pinned_file`."""
    folder = tmp_path / "history"
    made, _ = one_regression()
    for night in [*made, *(replace(n, id=f"g-{n.id}", pin="guarded") for n in nights(20))]:
        open_history(str(folder)).add(night)
    return folder


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert run("report", *arguments) == 0
    return capsys.readouterr().out


def test_a_history_becomes_a_page(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert told(capsys, "--history", history) == "Wrote trend.html\n"
    page = (tmp_path / "trend.html").read_text()
    assert "1 of 2: regression" in page and "guarded on gpu-box-1" in page
    assert sorted(file.suffix for file in history.iterdir()) == ["", ".jsonl", ".jsonl"]
    told(capsys, "--history", history, "-o", tmp_path / "there.html")
    assert (tmp_path / "there.html").read_text() == page


def test_the_other_forms_go_to_the_terminal(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(json.loads(told(capsys, "--history", history, "--format", "json"))["courses"]) == 2
    assert told(capsys, "--history", history, "--format", "md").startswith(
        "# Nightly gate: 1 of 2: regression"
    )
    rows = told(capsys, "--history", history, "--format", "csv").strip().splitlines()
    assert rows[0].startswith("pin,machine,night,") and len(rows) == 1 + 40 * 5


def test_a_database_becomes_one_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = f"sqlite:///{tmp_path / 'history.db'}"
    for night in nights(3):
        open_history(where).add(night)
    assert "not judged yet" in told(capsys, "--history", where, "--format", "md")


def test_with_a_pin_it_is_of_that_alone_and_has_its_shifts(
    history: Path, pinned_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--history", history, "--pin", pinned_file, "--format", "json")
    (course,) = json.loads(told(capsys, *asked))["courses"]
    assert (course["pin"], course["accepted"]) == ("guarded", [])
    line = f"- {{since: 2026-11-20, series: {SPEED_UP}, reason: smaller drafter}}\n"
    accepted_file(pinned_file).write_text(line, encoding="utf-8")
    (course,) = json.loads(told(capsys, *asked))["courses"]
    (shift,) = course["accepted"]
    assert (shift["at"][:10], shift["series"], shift["reason"]) == ("2026-11-20", SPEED_UP, "smaller drafter")


def test_what_cannot_be_drawn_is_refused_with_what_to_do(
    history: Path, tmp_path: Path, pinned_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "one of them" in refused(capsys, "report")
    assert "one of them" in refused(capsys, "report", tmp_path, "--history", history)
    assert "--pin goes with --history" in refused(capsys, "report", tmp_path, "--pin", pinned_file)
    assert "`tuner check PINNED --history ...` records one" in refused(
        capsys, "report", "--history", tmp_path / "none"
    )
    (history / "guarded@gpu-box-1.jsonl").unlink()
    said = refused(capsys, "report", "--history", history, "--pin", pinned_file)
    assert "no night of guarded in that history" in said
    assert "no such form" in refused(capsys, "report", "--history", history, "--format", "pdf")
