"""Accidents in the middle of a real run: the tool killed, the server killed, the disk full.

The same command goes on; nothing recorded is lost, nothing finished is launched again, no server stays.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from results.records import Phase
from results.store import RunFolder
from tests.waiting import wait_for

pytestmark = pytest.mark.rig

ROOT = Path(__file__).parents[2]
# Verdicts do not matter here, so neither do other loads of the machine.
SWEEP = """
args: {threads: 1, ctx-size: 1024}
space: {ngram-simple: {size_n: [2, 4], size_m: [8]}, ngram-map-k: {size_n: [4], size_m: [8]}}
workload: {classes: [chat], prompts_per_class: 2, max_tokens: 16}
budget: {trials: 3}
confirm: {finalists: 1, looks: [2]}
patience: {hopeless_ratio: 0, min_window_s: 0, foreign_cores: 1000}
"""
DONE = {0, 4}  # a verdict, or undecided after the only look


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP)
    return file


def command(sweep_file: Path, run: Path) -> list[str]:
    return [sys.executable, str(ROOT / "tuner.py"), "sweep", str(sweep_file), "--run", str(run)]


@contextmanager
def running_tool(sweep_file: Path, run: Path) -> Iterator[subprocess.Popen[str]]:
    tool = subprocess.Popen(
        command(sweep_file, run), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield tool
    finally:
        tool.kill()
        tool.communicate()


def run_to_the_end(sweep_file: Path, run: Path) -> str:
    done = subprocess.run(
        command(sweep_file, run), cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode in DONE, done.stdout + done.stderr
    return done.stdout


def servers(run: Path) -> list[dict[str, Any]]:
    file = run / "servers.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def live_server(run: Path) -> int | None:
    """The server started last, if it lives and its Block is not the first."""
    notes = servers(run)
    if not notes or notes[-1]["event"] == "ended" or not psutil.pid_exists(notes[-1]["pid"]):
        return None
    return int(notes[-1]["pid"])


def no_server_lives(run: Path) -> bool:
    return not any(psutil.pid_exists(note["pid"]) for note in servers(run))


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def assert_complete(run: Path, before: list[str]) -> None:
    folder = RunFolder(run)
    assert lines(run / "trials.jsonl")[: len(before)] == before
    trials = folder.trials()
    assert [t.number for t in trials] == [0, 1, 2, 3]
    assert len({t.point.key for t in trials}) == 4
    confirmed = [b for b in folder.blocks() if b.phase is Phase.CONFIRM and b.invalid is None]
    assert len(confirmed) == 2
    assert (run / "report.html").exists()
    assert no_server_lives(run)


def test_the_tool_is_killed(sweep_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with running_tool(sweep_file, run) as tool:
        wait_for(lambda: len(lines(run / "trials.jsonl")) >= 2 and live_server(run) is not None, 120)
        tool.send_signal(signal.SIGKILL)
        tool.wait()
    before = lines(run / "trials.jsonl")
    wait_for(lambda: no_server_lives(run), 20)
    run_to_the_end(sweep_file, run)
    assert_complete(run, before)
    launched = [b.arms for b in RunFolder(run).blocks() if b.phase is Phase.SEARCH]
    points = [arm.point.key for arms in launched for arm in arms if not arm.point.is_baseline]
    assert len(points) == len(set(points))


def test_the_server_is_killed(sweep_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with running_tool(sweep_file, run) as tool:
        wait_for(lambda: len(lines(run / "trials.jsonl")) >= 2 and live_server(run) is not None, 120)
        victim = live_server(run)
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        output, _ = tool.communicate(timeout=200)
    assert tool.returncode in DONE, output
    failures = [
        arm.failure.evidence for b in RunFolder(run).blocks() for arm in b.arms if arm.failure is not None
    ]
    assert any("SIGKILL" in evidence for evidence in failures), output
    assert_complete(run, [])


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system can be mounted by root only")
def test_the_disk_is_full(sweep_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(run)], check=True)
    try:
        done = subprocess.run(
            command(sweep_file, run), cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 2, done.stdout + done.stderr
        assert "no space left" in done.stderr
        assert no_server_lives(run)
        before = lines(run / "trials.jsonl")
        subprocess.run(["mount", "-o", "remount,size=64m", str(run)], check=True)
        run_to_the_end(sweep_file, run)
        assert_complete(run, before)
    finally:
        subprocess.run(["umount", str(run)], check=True)


def test_ctrl_c_ends_after_the_block_and_keeps_it(sweep_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with running_tool(sweep_file, run) as tool:
        wait_for(lambda: live_server(run) is not None, 120)
        tool.send_signal(signal.SIGINT)
        output, _ = tool.communicate(timeout=100)
    assert tool.returncode == 130, output
    assert len(lines(run / "trials.jsonl")) == 2, output  # the baseline's and that of the Block in flight
    assert "Not confirmed yet" in output
    assert no_server_lives(run)
    run_to_the_end(sweep_file, run)


def test_ctrl_c_twice_ends_now(sweep_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with running_tool(sweep_file, run) as tool:
        wait_for(lambda: live_server(run) is not None, 120)
        tool.send_signal(signal.SIGINT)
        wait_for(lambda: True, 1)
        tool.send_signal(signal.SIGINT)
        output, _ = tool.communicate(timeout=30)
    assert tool.returncode == 130, output
    assert no_server_lives(run)


def test_a_finished_run_launches_nothing_more(sweep_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = run_to_the_end(sweep_file, run)
    launched = len(servers(run))
    again = run_to_the_end(sweep_file, run)
    assert len(servers(run)) == launched
    assert first == again
