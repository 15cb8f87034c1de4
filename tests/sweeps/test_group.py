"""Blocks on servers of two nodes: the stand-in here, its other rank a real process."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from launchers.engines.engine import Served
from launchers.fake import RANK, FakeEngine
from launchers.fake_server import Fault
from launchers.group import Group, LocalMember
from launchers.process import ProcessLauncher
from results.errors import UsageError
from results.reasons import Reason
from results.records import Block, Failure, Phase, Point
from results.sharing import Alone
from results.store import RunFolder
from sweeps.blocks import Blocks, blocks_here
from sweeps.cluster.nodes import check_nodes
from sweeps.prepare import prepare
from sweeps.sweep import Sweep, parse_sweep
from tests.sweeps.test_block import PATIENT, POINT, SMALL
from tests.waiting import wait_for


def blocks(
    tmp_path: Path,
    speed: Callable[[Point, str], float] = lambda point, _: 300.0 if point.is_baseline else 900.0,
    fault: Callable[[Point], Fault | None] = lambda point: None,
    env: dict[str, str] | None = None,
) -> Blocks:
    content = {"engine": "fake", "workload": SMALL, "patience": PATIENT, "env": env or {}}
    plan = replace(prepare(Sweep.model_validate(content)), engine=FakeEngine(speed, fault))
    folder = RunFolder(tmp_path / "run")
    folder.create()
    group = Group("127.0.0.1", [LocalMember("node-b", ProcessLauncher(tmp_path / "far"))])
    return blocks_here(plan.setup(folder).over(group), [], Alone(0), lambda phase, point: None)


def ranks() -> list[psutil.Process]:
    """The living processes of ranks above 0."""
    below = psutil.Process().children(recursive=True)
    return [
        p for p in below if p.is_running() and str(RANK) in p.cmdline() and "guard.py" not in str(p.cmdline())
    ]


def failure_of(block: Block) -> Failure:
    arm = block.arm(POINT)
    assert arm is not None
    assert arm.failure is not None
    return arm.failure


def test_a_block_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    block = blocks(tmp_path)([POINT], Phase.SEARCH)
    assert block.invalid is None
    for arm in block.arms:
        assert arm.failure is None
        assert arm.argv[3:5] == ("0", "2")  # what is recorded is the command of rank 0
        name = arm.log.removesuffix(".log")
        log = tmp_path / "run" / "logs" / f"{name}.rank1.log"
        assert log.read_text().startswith("fake rank 1 of 2, rank 0 is at 127.0.0.1:")
    assert ranks() == []


@pytest.mark.parametrize("fault", [None, Fault.HANGS], ids=["goes on", "is silent"])
def test_a_rank_that_is_killed_under_load_is_a_crash_of_the_server(
    tmp_path: Path, fault: Fault | None
) -> None:
    """Whatever rank 0 does meanwhile."""
    logs = tmp_path / "run" / "logs"

    def speed(point: Point, _: str) -> float:
        if not point.is_baseline:
            for rank in ranks():
                wait_for(lambda: all(log.read_text() for log in logs.glob("*.rank1.log")))
                os.kill(rank.pid, signal.SIGKILL)
        return 900.0

    block = blocks(tmp_path, speed, lambda point: fault if point == POINT else None)([POINT], Phase.CONFIRM)
    failure = failure_of(block)
    assert failure.reason is Reason.CRASH_UNDER_LOAD
    assert failure.evidence.startswith("rank 1 on node-b: exit code -9: fake rank 1 of 2")
    assert block.invalid is None
    assert block.baseline is not None
    assert block.baseline.failure is None
    assert ranks() == []


def test_a_rank_that_ends_before_the_server_is_up_ends_the_wait(tmp_path: Path) -> None:
    env = {"FAKE_START_S": "300", "FAKE_RANK_1_DIES_AFTER_S": "0"}
    run = blocks(tmp_path, env=env)
    with pytest.raises(Exception, match="rank 1 on node-b: exit code -9: fatal: rank 1 dies as it was told"):
        run([POINT], Phase.SEARCH)
    assert ranks() == []


def test_the_sweep_file_names_the_nodes() -> None:
    sweep = parse_sweep("engine: fake\nlauncher: ray\nray: {nodes: 2}")
    assert prepare(sweep).space.points
    with pytest.raises(UsageError, match=r"ray.nodes: the fake engine serves over 8 nodes at most"):
        prepare(parse_sweep("engine: fake\nlauncher: ray\nray: {nodes: 9}"))


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ("objective: tokens_per_joule", "objective: tokens_per_joule"),
        ("limits: {server_memory_bytes: 1 GiB}", "limits.server_memory_bytes"),
    ],
)
def test_what_is_seen_on_one_node_only_is_refused(more: str, refused: str) -> None:
    sweep = parse_sweep(f"engine: fake\nlauncher: ray\nray: {{nodes: 2}}\n{more}")
    with pytest.raises(UsageError, match=f"{refused}: of a server over 2 nodes only the hardware of rank 0"):
        check_nodes(sweep, FakeEngine(), Served("m", None, {}, {}), [])


def test_containers_that_cannot_reach_each_other_are_refused() -> None:
    ray, container = "ray: {nodes: 2, launcher: docker}", "container: {image: a, network: bridge}"
    sweep = parse_sweep(f"engine: sglang\nlauncher: ray\n{ray}\n{container}")
    with pytest.raises(UsageError, match=r"container.network: bridge hides the ranks"):
        check_nodes(sweep, FakeEngine(), Served("m", None, {}, {}), [])
