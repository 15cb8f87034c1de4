"""Servers over two nodes of a real Ray cluster: rank 0 in one actor, rank 1 in an actor that it owns."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from launchers.fake import RANK
from results.records import BASELINE, Phase, Point
from results.store import RunFolder
from sweeps.blocks import LaneLost
from sweeps.cluster.delivery import unpacked
from sweeps.cluster.ray_group import NodeRefused, in_bundle, ray_group, reserved
from sweeps.cluster.worker import Order, Worker, order_of
from sweeps.prepare import prepare
from sweeps.sweep import Sweep
from tests.sweeps.cluster.local_ray import SLOT, ray_nodes
from tests.waiting import wait_for

ray = pytest.importorskip("ray")

POINT = Point("fake-ngram", {"n": 4, "m": 8})
NEEDS = {"CPU": 1.0, SLOT: 1.0}


class Leader(Worker):
    """Rank 0's actor."""

    def __init__(self, order: Order, placement: Any) -> None:
        super().__init__(order)
        self._placement = placement

    def gather(self) -> tuple[str, str]:
        """(Ray's id of a node that cannot measure, why), or nothing. Errors would not all travel."""
        try:
            self._group = ray_group(self._order, self._placement)
        except NodeRefused as refused:
            return refused.node_id, str(refused)
        return "", ""


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Any, list[Any]]]:
    with ray_nodes(2) as (found, nodes):
        ray.init(address=found.address, log_to_driver=False, namespace="tuner")
        try:
            yield found, nodes
        finally:
            ray.shutdown()


def order(**changes: object) -> Order:
    content: dict[str, object] = {
        "engine": "fake",
        "workload": {"max_tokens": 40, "prompts_per_class": 2, "classes": ["code_edit"]},
        "patience": {"client_share": 1, "foreign_cores": 100, "min_window_s": 0, "stall_timeout_s": 5},
        **changes,
    }
    return order_of(prepare(Sweep.model_validate(content)))


SLOW = {"env": {"FAKE_START_S": "300"}}


@contextmanager
def leader(given: Order) -> Iterator[tuple[Any, Any]]:
    """(rank 0's actor, the placement group that it is in)."""
    placement = reserved(NEEDS, 2, {})
    assert placement.wait(60)
    try:
        yield ray.remote(Leader).options(**in_bundle(placement, 0)).remote(given, placement), placement
    finally:
        ray.util.remove_placement_group(placement)


def ranks() -> list[psutil.Process]:
    """Living processes of ranks above 0, their guards too."""
    return [p for p in psutil.process_iter(["cmdline"]) if str(RANK) in (p.info["cmdline"] or ())]


def measured(actor: Any) -> Any:
    assert ray.get(actor.gather.remote()) == ("", "")
    return actor.measure.remote(0, [POINT], Phase.SEARCH, BASELINE, alone=False)


def test_a_block_is_measured_over_two_nodes(cluster: tuple[Any, list[Any]], tmp_path: Path) -> None:
    with leader(order()) as (actor, placement):
        delivery = ray.get(measured(actor))
        seats = ray.util.placement_group_table(placement)["bundles_to_node_id"]
    assert len({*seats.values()}) == 2
    folder = RunFolder(tmp_path)
    folder.create()
    block = unpacked(delivery, folder)
    assert [arm.failure for arm in block.arms] == [None, None]
    for arm in block.arms:
        log = folder.logs / f"{arm.log.removesuffix('.log')}.rank1.log"
        assert log.read_text().startswith("fake rank 1 of 2")
    assert ranks() == []


def test_nothing_outlives_the_first_rank(cluster: tuple[Any, list[Any]]) -> None:
    with leader(order(**SLOW)) as (actor, _):
        measured(actor)
        wait_for(lambda: bool(ranks()))
        ray.kill(actor)
        wait_for(lambda: not ranks())


def test_a_node_with_another_engine_is_refused_by_name(cluster: tuple[Any, list[Any]]) -> None:
    with leader(replace(order(), engine="fake 2")) as (actor, placement):
        node_id, why = ray.get(actor.gather.remote())
        assert node_id == ray.util.placement_group_table(placement)["bundles_to_node_id"][1]
    assert "it has fake 1, the machine of the driver fake 2: install the same" in why


def test_a_node_that_is_lost_takes_the_lane_along(cluster: tuple[Any, list[Any]]) -> None:
    found, nodes = cluster
    with leader(order(**SLOW)) as (actor, placement):
        asked = measured(actor)
        wait_for(lambda: bool(ranks()))
        away = ray.util.placement_group_table(placement)["bundles_to_node_id"][1]
        found.remove_node(next(n for n in nodes if n.node_id == away), allow_graceful=False)
        with pytest.raises(LaneLost, match="which had a rank of its servers, is gone"):
            ray.get(asked)
        wait_for(lambda: not ranks())
