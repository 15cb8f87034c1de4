"""What a page shows of raw records: read from the folder, as far as it is there."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.report import html
from analysis.report_input import ReportInput
from launchers.fake import FakeEngine
from launchers.fake_server import Fault
from results.records import Phase, Point
from results.store import RunFolder
from sweeps.evidence import LOG_BYTES, with_evidence
from sweeps.outcome import read_run
from sweeps.run import run_sweep
from tests.sweeps.test_run import Recorder, plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished sweep in which one of two Points does not start."""

    def fault(point: Point) -> Fault | None:
        return Fault.REFUSES_TO_START if point.knobs.get("n") == 2 else None

    engine = FakeEngine(lambda point, _: 300.0 if point.is_baseline else 900.0, fault)
    recorder, folder = Recorder(), RunFolder(tmp_path_factory.mktemp("evidence") / "run")
    run_sweep(replace(plan(), engine=engine), folder, recorder, recorder.stopped)
    return folder


def read(folder: RunFolder) -> ReportInput:
    return with_evidence(folder, read_run(folder)[0])


def test_the_timeline_is_that_of_the_last_block_of_the_confirmation(folder: RunFolder) -> None:
    report = read(folder)
    shown = report.timeline
    assert shown is not None and shown.arms == ("baseline", "winner")
    last = [b for b in folder.blocks() if b.phase is Phase.CONFIRM and b.invalid is None][-1]
    assert shown.block == last.number
    assert [s.label for s in shown.spans] == [m.cell.label for m in last.arms[0].measurements]
    assert {t.figure for t in shown.tracks} == {"tokens_per_s", "in_flight"}
    assert report.folder == str(folder.path)
    assert 'id="timeline"' in html(report)


def test_a_failure_comes_with_the_end_of_its_log(folder: RunFolder) -> None:
    report = read(folder)
    (failed,) = [a for b in report.blocks for a in b.arms if a.failure is not None]
    assert [*report.excerpts] == [failed.log]
    shown = report.excerpts[failed.log]
    assert failed.failure is not None and shown.shows is not None
    assert shown.lines[shown.shows] in failed.failure.evidence


def test_of_a_huge_log_only_the_end_is_read(folder: RunFolder) -> None:
    (name,) = read(folder).excerpts
    log = folder.logs / name
    whole = log.read_bytes()
    try:
        log.write_bytes(whole + b"x\n" * LOG_BYTES)
        assert set(read(folder).excerpts[name].lines) == {"x"}
    finally:
        log.write_bytes(whole)


@pytest.mark.parametrize("damage", ["gone", "garbage"])
def test_a_report_does_without_raw_records(folder: RunFolder, tmp_path: Path, damage: str) -> None:
    copy = RunFolder(tmp_path / "run")
    shutil.copytree(folder.path, copy.path)
    shutil.rmtree(copy.logs)
    for file in (copy.path / "requests").iterdir():
        file.unlink() if damage == "gone" else file.write_bytes(b"no parquet")
    report = read(copy)
    assert report.timeline is None and report.excerpts == {}
    assert 'id="timeline"' not in html(report) and 'id="failed"' in html(report)


def test_a_run_of_which_nothing_is_recorded_has_no_evidence(tmp_path: Path, folder: RunFolder) -> None:
    empty = RunFolder(tmp_path / "run")
    empty.create()
    empty.write_text("sweep.yaml", folder.sweep_file.read_text())
    report = read(empty)
    assert report.timeline is None and report.excerpts == {}
    assert "Nothing has been recorded so far" in html(report)


def test_a_log_is_looked_for_in_the_folder_alone(folder: RunFolder, tmp_path: Path) -> None:
    outside = tmp_path / "outside.log"
    outside.write_text("not for this page\n")
    report = read_run(folder)[0]
    blocks = [
        replace(b, arms=tuple(replace(a, log=f"../../../{outside}") if a.failure else a for a in b.arms))
        for b in report.blocks
    ]
    assert "not for this page" not in html(with_evidence(folder, replace(report, blocks=blocks)))
