"""Whole sweeps on a real Ray cluster of three local nodes: same verdict, nothing lost, nothing left."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from results.errors import MeasurementInvalid, UsageError
from results.reasons import Reason
from results.store import RunFolder
from sweeps.cluster.ray_lanes import why_lost
from sweeps.cluster.ray_room import groups
from sweeps.outcome import read_run
from sweeps.run import run_sweep
from tests.sweeps.cluster.local_ray import kill_one_at_work, on, ray_nodes, seats
from tests.sweeps.test_run import Recorder, plan, run

pytest.importorskip("ray")

SPACE = {"fake-ngram": {"n": [1, 4], "m": [4, 8, 32]}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_nodes(3) as (found, _):
        yield found


def test_the_verdict_is_that_of_a_single_machine(cluster: Any, tmp_path: Path) -> None:
    budget = {"trials": 6}
    _, folder = run(tmp_path / "ray", space=SPACE, budget=budget, **on(cluster))
    _, alone = run(tmp_path / "alone", space=SPACE, budget=budget)
    report, code = read_run(folder)
    single, its_code = read_run(alone)
    assert code == its_code == 0
    assert report.winner is not None and single.winner is not None
    assert report.winner.point == single.winner.point
    assert {t.point.key for t in folder.trials()} == {t.point.key for t in alone.trials()}
    assert [t.number for t in folder.trials()] == list(range(7))
    blocks = folder.blocks()
    assert sorted(b.number for b in blocks) == list(range(len(blocks)))
    assert len({b.node for b in blocks}) == 3  # the work was spread
    assert report.phases_s["the tool itself"] > 0
    held_s = sum(s["ended_at"] - s["since_at"] for s in seats(folder))
    assert sum(report.phases_s.values()) == pytest.approx(held_s)  # of three Lanes, not of one clock
    assert all(b.baseline is not None for b in blocks)
    for block in blocks:
        for arm in block.arms:
            assert folder.read_requests(arm.requests)
            assert (folder.logs / arm.log).read_text().startswith("fake server")


def test_a_lost_node_loses_no_trial(tmp_path: Path) -> None:
    with ray_nodes(2) as (cluster, nodes), ThreadPoolExecutor() as pool:
        recorder, folder = Recorder(), RunFolder(tmp_path / "run")
        planned = plan(space=SPACE, budget={"trials": 4}, env={"FAKE_START_S": "1"}, **on(cluster, servers=2))
        killed = pool.submit(kill_one_at_work, cluster, nodes, folder)
        run_sweep(planned, folder, recorder, recorder.stopped)
    assert len(folder.trials()) == 5
    assert all(t.failure is None for t in folder.trials())
    assert any("is lost" in note for note in recorder.notes)
    assert [s["node"] for s in seats(folder) if s["lost"]] == [killed.result()]


DIED = "The actor died unexpectedly before finishing this task."
FIELDS = "\n\tclass_name: RayWorker\n\tactor_id: b036ebd4\n\tpid: 94\n"
HEARTBEATS = "terminated unexpectedly: health check failed due to missing too many heartbeats"
SOCKET = "The actor is temporarily unavailable: RpcError: RPC error: Socket closed rpc_code: 14"


@pytest.mark.parametrize(
    ("message", "why"),  # of Ray 2.60: a cable that was cut, a killed process, a killed node
    [
        (
            f"{DIED}{FIELDS}The actor died because its node has died. Node Id: d6"
            f"\n\tthe actor's node was {HEARTBEATS}",
            f"its actor's node was {HEARTBEATS}",
        ),
        (
            f"{DIED}{FIELDS}The actor is dead because its worker process has died. Exit type: SYSTEM_ERROR",
            "its actor is dead because its worker process has died",
        ),
        (
            f"The actor {'9c5f' * 8} is unavailable: {SOCKET}. The task may or may not have been executed.",
            f"its actor is unavailable: {SOCKET}",
        ),
        (DIED, "its actor died unexpectedly before finishing this task"),
    ],
)
def test_a_loss_has_the_reason_that_ray_gives(message: str, why: str) -> None:
    assert why_lost(message) == why


def test_a_cluster_without_room_is_a_clear_error(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a server takes 1 CPU, 9 GPU, and the cluster does not have that"):
        run(tmp_path, **{**on(cluster, gpus=9), "ray": {"address": cluster.address, "gpus": 9}})


def test_no_cluster_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no Ray cluster answers there"):
        run(tmp_path, launcher="ray", ray={"address": "127.0.0.1:1"})
    with pytest.raises(UsageError, match=r"Ray Client \(ray://\) is not supported"):
        run(tmp_path, launcher="ray", ray={"address": "ray://127.0.0.1:1"})


@pytest.mark.parametrize(
    ("room", "nodes", "servers"),
    [
        ([1, 1, 1], 1, 3),
        ([2, 1], 1, 3),
        ([1, 1, 1], 2, 1),
        ([2, 2], 2, 2),
        ([3, 1], 2, 1),
        ([4], 2, 0),
        ([], 1, 0),
    ],
)
def test_servers_over_several_nodes_take_different_ones(room: list[int], nodes: int, servers: int) -> None:
    assert groups(room, nodes) == servers


def test_a_server_over_two_nodes_is_measured_and_one_that_loses_a_rank_crashes(
    cluster: Any, tmp_path: Path
) -> None:
    few: dict[str, Any] = {
        "space": {"fake-ngram": {"n": [4], "m": [8]}},
        "confirm": {"looks": [2], "finalists": 1},
    }
    _, folder = run(tmp_path / "good", **few, **on(cluster, nodes=2))
    assert [t.failure for t in folder.trials()] == [None, None]
    assert len({seat["node"] for seat in seats(folder)}) == 1  # one at a time: there are 3 nodes
    dying = {"FAKE_RANK_1_DIES_AFTER_S": "0.5"}
    long = {"max_tokens": 2000, "prompts_per_class": 2, "classes": ["code_edit"]}
    with pytest.raises(MeasurementInvalid, match="rank 1 on ") as crashed:
        run(tmp_path / "bad", **few, **on(cluster, nodes=2), env=dying, workload=long)
    assert crashed.value.reason is Reason.CRASH_UNDER_LOAD
