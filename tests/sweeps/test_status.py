"""What another terminal sees of a run: while it goes on, and whatever became of it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tuner
from results.errors import MeasurementInvalid, UsageError
from results.reasons import Reason
from results.records import BASELINE, Failure, GpuTelemetry, Phase, Point, Telemetry
from results.store import RunFolder
from sweeps.estimate import time_left, usual_block_s
from sweeps.now import Now, Stage, write_stage
from sweeps.run_list import BROKEN, runs_in, runs_json
from sweeps.session import NOW_FILE, SESSIONS_FILE, State, session, standing
from sweeps.status import Status, status_of
from sweeps.status_text import status_json, status_lines
from tests.records import CELL, arm, block, measurement, trial
from tests.sweeps.test_run import Recorder, plan, run
from tests.waiting import wait_for

POINT = Point("fake-ngram", {"n": 2, "m": 8})
ROOT = Path(__file__).parents[2]


def shown(status: Status) -> str:
    from rich.console import Console

    console = Console(width=400, color_system=None)
    with console.capture() as captured:
        console.print(status_lines(status))
    return captured.get()


def ended_run(tmp_path: Path, stop_after: int = 1000) -> RunFolder:
    return run(tmp_path, stop_after, budget={"trials": 2})[1]


def test_a_finished_run(tmp_path: Path) -> None:
    status = status_of(ended_run(tmp_path))
    assert status.standing.state is State.FINISHED
    assert status.running is None and status.left is None
    assert status.best is not None and status.best.confirmed == "BETTER"
    assert "beats the baseline" in shown(status)
    document = json.loads(status_json(status))
    assert document["standing"]["state"] == "finished"
    assert document["best"]["speedup"] > 1
    assert document["best"]["interval"]["low"] > 1


def test_an_interrupted_run_says_what_is_left(tmp_path: Path) -> None:
    status = status_of(ended_run(tmp_path, stop_after=1))
    assert status.standing.state is State.INTERRUPTED
    assert status.progress is not None
    assert (status.progress.stage, status.progress.done, status.progress.total) == (Stage.SEARCH, 1, 2)
    assert status.left is not None and status.left.low_s < status.left.high_s
    text = shown(status)
    assert "the same command goes on" in text
    assert "optimistic" in text
    assert "0 of 1 trial" in text


def test_a_run_that_gave_up_says_why(tmp_path: Path) -> None:
    with pytest.raises(MeasurementInvalid):
        run(tmp_path, patience={"min_window_s": 100})
    status = status_of(RunFolder(tmp_path / "run"))
    assert status.standing.state is State.FAILED
    assert "raise workload.prompts_per_class" in status.standing.why
    assert dict(status.invalid) == {Reason.TOO_SHORT: 1}


def test_a_crash_is_no_interruption(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(ZeroDivisionError), session(folder):
        raise ZeroDivisionError
    assert (standing(folder).state, standing(folder).why) == (State.FAILED, "it crashed")
    with pytest.raises(KeyboardInterrupt), session(folder):
        raise KeyboardInterrupt
    assert standing(folder).state is State.INTERRUPTED


def with_last_start(folder: RunFolder, **changes: object) -> RunFolder:
    sessions = folder.read_json(SESSIONS_FILE)["sessions"]
    folder.write_json(
        SESSIONS_FILE, {"sessions": [*sessions[:-1], {**sessions[-1], "ended_at": None, **changes}]}
    )
    return folder


def test_what_a_start_without_a_last_word_means(tmp_path: Path) -> None:
    folder = with_last_start(ended_run(tmp_path))
    assert standing(folder).state is State.RUNNING  # this very process noted itself
    assert standing(folder).pid == os.getpid()
    last_block_at = folder.blocks()[-1].ended_at
    with_last_start(folder, created_at=1.0)  # the pid is another process's now
    assert (standing(folder).state, standing(folder).since_at) == (State.KILLED, last_block_at)
    assert status_of(folder).elapsed_s < 60  # not until now, but until it was last seen
    with_last_start(folder, created_at=1.0, boot="before")
    assert standing(folder).state is State.KILLED
    with_last_start(folder, host="another")
    assert standing(folder).state is State.ELSEWHERE
    with_last_start(folder, pid_space="another")
    assert standing(folder).state is State.ELSEWHERE


def test_nobody_knows_of_a_start_by_an_older_version(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_json(SESSIONS_FILE, {"sessions": [{"began_at": 5.0, "ended_at": None, "calibration": {}}]})
    assert standing(folder).state is State.ELSEWHERE


def in_flight(tmp_path: Path) -> tuple[RunFolder, dict[str, Any]]:
    """A run in the middle of a Block, as its files are then."""
    folder = with_last_start(ended_run(tmp_path, stop_after=1))
    write_stage(folder, Stage.SEARCH, 1, 2)
    now = Now(folder)
    now.block(7, Phase.SEARCH, [BASELINE, POINT])
    now.starts(POINT)
    return folder, {"now": now}


def test_what_it_does_now(tmp_path: Path) -> None:
    folder, made = in_flight(tmp_path)
    running = status_of(folder).running
    assert running is not None
    assert (running.block, running.arm, running.cell) == (7, POINT.label, None)
    assert running.arms == (BASELINE.label, POINT.label)
    assert "its server starts" in shown(status_of(folder))
    made["now"].measures(CELL, POINT)
    assert f"{POINT.label}: {CELL.label}, for 0 s" in shown(status_of(folder))
    made["now"].measures(CELL)
    assert "all arms in turns" in shown(status_of(folder))


def test_a_hang_is_visible(tmp_path: Path) -> None:
    folder, _ = in_flight(tmp_path)
    assert "longer than usual" not in shown(status_of(folder))
    now = folder.read_json(NOW_FILE)
    folder.write_json(NOW_FILE, {**now, "block_since_at": time.time() - 4000, "since_at": time.time() - 3900})
    text = shown(status_of(folder))
    assert "for 65 min" in text and "longer than usual" in text


def test_failures_and_thrown_away_blocks_by_reason(tmp_path: Path) -> None:
    folder = ended_run(tmp_path, stop_after=1)
    oom, pressure = Failure(Reason.START_OOM, "out of memory"), Failure(Reason.HOST_PRESSURE, "others")
    folder.add_trial(trial(2, Point("fake-ngram", {"n": 8, "m": 32}), None, failure=oom))
    folder.add_trial(trial(3, Point("fake-ngram", {"n": 8, "m": 16}), None, failure=oom))
    folder.add_block(block(5, Phase.SEARCH, [arm(BASELINE, {CELL: 1.0})], pressure))
    text = shown(status_of(folder))
    assert "2 of 3 trials: START_OOM 2" in text
    assert "1 thrown away: HOST_PRESSURE 1" in text


def test_gpu_hours_are_time_by_gpus(tmp_path: Path) -> None:
    from dataclasses import replace

    folder = ended_run(tmp_path, stop_after=1)
    gpus = tuple(GpuTelemetry(f"GPU-{n}", "H100") for n in range(4))
    on_gpus = replace(measurement(), telemetry=Telemetry(1.0, gpus=gpus))
    run_on_gpus = replace(arm(BASELINE, {CELL: 1.0}), measurements=(on_gpus,))
    assert status_of(folder).gpu_hours == 0
    assert "machine hours (no GPU)" in shown(status_of(folder))
    folder.add_block(block(5, Phase.SEARCH, [run_on_gpus]))
    status = status_of(folder)
    assert status.gpus == 4
    assert status.gpu_hours == pytest.approx(4 * status.machine_hours)
    assert "GPU hours (4 GPUs)" in shown(status)


def test_the_status_is_read_while_the_run_goes_on_and_disturbs_nothing(tmp_path: Path) -> None:
    """A real tool in another process: read at every moment, by a reader that may write nothing."""
    sweep, folder = tmp_path / "sweep.yaml", RunFolder(tmp_path / "run")
    sweep.write_text(
        "engine: fake\nspace: {fake-ngram: {n: [2, 4], m: [8]}}\nconfirm: {looks: [2], finalists: 1}\n"
        "workload: {max_tokens: 60, prompts_per_class: 2, classes: [chat]}\n"
        "patience: {client_share: 1, min_window_s: 0, foreign_cores: 100}\n"
    )
    command = [sys.executable, str(ROOT / "tuner.py"), "sweep", str(sweep), "--run", str(folder.path)]
    seen: set[tuple[str, str | None]] = set()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as tool:
        wait_for(lambda: standing(folder).state is State.RUNNING)
        while tool.poll() is None:
            status = status_of(folder)
            if status.standing.state is State.RUNNING:
                assert status.standing.pid == tool.pid
            seen.add((status.standing.state, status.progress.stage if status.progress else None))
        assert tool.returncode in (0, 4), tool.stderr.read() if tool.stderr else ""
    assert {(State.RUNNING, Stage.SEARCH), (State.RUNNING, Stage.CONFIRM)} <= seen
    assert status_of(folder).standing.state is State.FINISHED
    assert not (folder.path / NOW_FILE).exists()


def test_a_killed_tool_is_seen_as_killed(tmp_path: Path) -> None:
    folder = ended_run(tmp_path, stop_after=1)
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        gone.wait()
        with_last_start(folder, pid=gone.pid, created_at=time.time())
        assert standing(folder).state is State.KILLED
    assert "at most the Block in flight is lost" in shown(status_of(folder))


# --- estimates


def lasting(number: int, seconds: float, phase: Phase = Phase.SEARCH, arms: int = 2, ok: bool = True) -> Any:
    from dataclasses import replace

    invalid = None if ok else Failure(Reason.HOST_PRESSURE, "others")
    made = block(number, phase, [arm(POINT, {CELL: 1.0})] * arms, invalid)
    return replace(made, started_at=0.0, ended_at=seconds)


def test_recent_blocks_tell_how_long_the_next_one_takes() -> None:
    blocks = [lasting(n, s) for n, s in enumerate([500, 500, 10, 20, 30, 40, 5000])]
    assert usual_block_s(blocks, Phase.SEARCH, 3) == 30
    assert usual_block_s([], Phase.SEARCH, 3) is None


def test_a_confirmation_block_has_more_arms_than_a_search_block() -> None:
    blocks = [lasting(n, 20) for n in range(3)]
    assert usual_block_s(blocks, Phase.CONFIRM, 3) == 40
    assert usual_block_s([*blocks, lasting(3, 33, Phase.CONFIRM, 4)], Phase.CONFIRM, 3) == 33


def test_the_time_left_counts_trials_looks_and_reruns() -> None:
    blocks = [lasting(n, 10) for n in range(4)]
    looks, rest = [4, 8], {"looks": [4, 8], "finalists": 1, "trials_left": 3}
    left = time_left(blocks, searching=True, **rest)  # type: ignore[arg-type]
    assert left is not None
    assert (left.stage_s, left.low_s, left.high_s) == (30, 30 + 40, 30 + 80)
    spoiled = time_left([*blocks, *(lasting(9, 10, ok=False) for _ in range(4))], searching=True, **rest)  # type: ignore[arg-type]
    assert spoiled is not None and spoiled.stage_s == 60
    confirmed = [*blocks, *(lasting(n, 10, Phase.CONFIRM) for n in range(5))]
    later = time_left(confirmed, trials_left=0, looks=looks, finalists=1, searching=False)
    assert later is not None
    assert (later.low_s, later.high_s) == (30, 30)
    assert left.within(50).high_s == 50
    assert time_left([], searching=True, **rest) is None  # type: ignore[arg-type]


# --- the list


def test_the_list_shows_every_run_and_what_is_wrong_with_a_broken_one(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    ended_run(runs / "good")
    for name, file, text in [
        ("torn", "trials.jsonl", "{not json}\n"),
        ("not-yaml", "sweep.yaml", "a: [b"),
        ("unknown-key", "sweep.yaml", "modell: x"),
        ("binary", "sweep.yaml", "\udcff"),
        ("no-sweep", "blocks.jsonl", ""),
        ("half-a-comparison", "compare.json", '{"sides": [{"name": "A"}]}'),
        ("newer", "trials.jsonl", json.dumps({"schema": 99}) + "\n"),
    ]:
        folder = runs / "good" / name
        folder.mkdir()
        if file != "sweep.yaml":
            (folder / "sweep.yaml").write_text("{}" if name != "no-sweep" else "")
        (folder / file).write_text(text, errors="surrogateescape")
    (runs / "good" / "no-sweep" / "sweep.yaml").unlink()
    (runs / "good" / "not a run").mkdir()
    (runs / "good" / "file").write_text("x")
    rows = {Path(row.path).name: row for row in runs_in(runs / "good")}
    assert set(rows) == {
        "run",
        "torn",
        "not-yaml",
        "unknown-key",
        "binary",
        "no-sweep",
        "half-a-comparison",
        "newer",
    }
    good = rows.pop("run")
    assert (good.state, good.engine, good.trials) == (State.FINISHED, "fake", 2)
    assert good.verdict.startswith("BETTER 1.") and good.speedup is not None and good.size_bytes > 1000
    assert {row.state for row in rows.values()} == {BROKEN}
    assert all(row.broken for row in rows.values())
    assert "did you mean 'model'" in rows["unknown-key"].broken
    assert json.loads(runs_json([good, *rows.values()]))["runs"][0]["state"] == "finished"


def test_the_newest_run_comes_first_and_a_run_itself_may_be_named(tmp_path: Path) -> None:
    first, second = ended_run(tmp_path / "a"), ended_run(tmp_path / "b")
    for number, folder in enumerate((first, second)):
        folder.path.rename(tmp_path / f"run{number}")
    assert [Path(row.path).name for row in runs_in(tmp_path)] == ["run1", "run0"]
    assert [Path(row.path).name for row in runs_in(tmp_path / "run0")] == ["run0"]


def test_a_folder_without_runs_and_none_at_all(tmp_path: Path) -> None:
    assert runs_in(tmp_path) == []
    with pytest.raises(UsageError, match="no folder"):
        runs_in(tmp_path / "nowhere")


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ended_run(tmp_path)

    def code(*arguments: str | Path) -> int:
        with pytest.raises(SystemExit) as end:
            tuner.main([str(a) for a in arguments])
        return int(end.value.code or 0)

    assert code("status", folder.path) == 0
    assert "State" in capsys.readouterr().out
    assert code("status", folder.path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["name"] == "sweep"
    assert code("list", tmp_path) == 0
    assert "finished" in capsys.readouterr().out
    assert code("list", tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["verdict"]
    assert code("status", tmp_path / "nowhere") == 2
    assert "there is no folder" in capsys.readouterr().err
    assert code("list", tmp_path / "nowhere") == 2


def test_reading_takes_no_lock(tmp_path: Path) -> None:
    folder, planned = ended_run(tmp_path), plan(budget={"trials": 2})
    with folder.locked():
        assert status_of(folder).standing.state is State.FINISHED
        with pytest.raises(UsageError, match="another tuner"):
            from sweeps.run import run_sweep

            run_sweep(planned, folder, Recorder(), lambda: False)
