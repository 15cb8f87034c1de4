"""The run folder survives kills, torn lines and a full disk."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.errors import UsageError
from results.reasons import Reason
from results.records import BASELINE, Failure, OutputCheck, Phase, Point
from results.store import RunFolder
from tests.records import baseline_arm, block, request, trial

POINT = Point("ngram-simple", {"size_n": 4, "size_m": 8})


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.create()
    return run


def test_trials_and_blocks_come_back_as_they_were_written(folder: RunFolder) -> None:
    first = trial(1, POINT, 0.25, by_cell={"code_edit @ closed(1)": 0.25})
    failed = trial(2, POINT, None, failure=Failure(Reason.START_OOM, "no memory"))
    one = block(0, Phase.SEARCH, [baseline_arm()], Failure(Reason.HOST_PRESSURE, "a build ran"))
    folder.add_trial(first)
    folder.add_trial(failed)
    folder.add_block(one)
    assert folder.trials() == [first, failed]
    assert folder.blocks() == [one]


def test_output_checks_come_back(folder: RunFolder) -> None:
    from dataclasses import replace

    checked = replace(block(0, Phase.CONFIRM, []), outputs={POINT.key: OutputCheck(4, 3, (17,))})
    folder.add_block(checked)
    assert folder.blocks()[0].outputs[POINT.key].identical_share == 0.75


@given(cut=st.integers(min_value=1))
def test_a_torn_last_line_costs_only_that_line(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    run = RunFolder(tmp_path_factory.mktemp("torn"))
    run.create()
    for number in range(3):
        run.add_trial(trial(number, BASELINE, 0.0))
    path = run.path / "trials.jsonl"
    content = path.read_bytes()
    last = content.rfind(b"\n", 0, -1) + 1
    path.write_bytes(content[: last + cut % (len(content) - last)])
    assert [t.number for t in run.trials()] == [0, 1]
    run.add_trial(trial(2, BASELINE, 0.0))
    assert [t.number for t in run.trials()] == [0, 1, 2]


def test_damage_in_the_middle_is_named_with_its_line(folder: RunFolder) -> None:
    folder.add_trial(trial(0, BASELINE, 0.0))
    (folder.path / "trials.jsonl").write_bytes(b"garbage\n" + (folder.path / "trials.jsonl").read_bytes())
    with pytest.raises(UsageError, match="line 1 is damaged"):
        folder.trials()


def test_records_of_a_newer_tuner_are_refused(folder: RunFolder) -> None:
    folder.add_trial(trial(0, BASELINE, 0.0, schema=99))
    with pytest.raises(UsageError, match="newer tuner"):
        folder.trials()


def test_a_full_disk_loses_nothing_recorded(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.add_trial(trial(0, BASELINE, 0.0))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="no space left"):
        folder.add_trial(trial(1, BASELINE, 0.0))
    with pytest.raises(UsageError, match="no space left"):
        folder.write_text("sweep.yaml", "name: x")
    monkeypatch.undo()
    assert [t.number for t in folder.trials()] == [0]
    assert not list(folder.path.glob("*.part"))
    folder.add_trial(trial(1, BASELINE, 0.0))
    assert [t.number for t in folder.trials()] == [0, 1]


def test_a_file_in_place_of_the_folder_is_explained(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        RunFolder(tmp_path / "run").create()


def test_requests_come_back(folder: RunFolder) -> None:
    written = [
        request("a", engine_stats={"draft_n": 3.0}),
        request("b", error="connection refused", first_byte_s=None, chunk_s=[], output_tokens=None),
    ]
    folder.write_requests("block0000-0-none", written)
    assert folder.read_requests("block0000-0-none") == written
    assert folder.read_requests("nothing") == []


def test_two_tools_cannot_drive_one_run(folder: RunFolder) -> None:
    other = RunFolder(folder.path)
    with folder.locked(), pytest.raises(UsageError, match="another tuner"), other.locked():
        pass
    with other.locked():
        pass


def test_damaged_json_is_empty(folder: RunFolder) -> None:
    folder.write_json("sessions.json", {"sessions": [1]})
    assert folder.read_json("sessions.json") == {"sessions": [1]}
    (folder.path / "sessions.json").write_text("{")
    assert folder.read_json("sessions.json") == {}
