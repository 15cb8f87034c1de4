"""What a node does and sends back, without a cluster."""

import pickle
from dataclasses import replace
from pathlib import Path

from results.environment import Environment
from results.records import BASELINE, Phase, Point
from results.store import RunFolder
from sweeps.cluster.delivery import unpacked
from sweeps.cluster.worker import Worker, order_of
from tests.sweeps.test_run import plan

POINT = Point("fake-ngram", {"n": 4, "m": 8})


def test_a_block_comes_back_whole_and_leaves_nothing(tmp_path: Path) -> None:
    worker, folder = Worker(pickle.loads(pickle.dumps(order_of(plan())))), RunFolder(tmp_path / "run")
    folder.create()
    delivery = pickle.loads(pickle.dumps(worker.measure(7, [POINT], Phase.SEARCH, BASELINE, alone=False)))
    block = unpacked(delivery, folder)
    assert block.number == 7
    assert {arm.point.key for arm in block.arms} == {BASELINE.key, POINT.key}
    for arm in block.arms:
        assert len(folder.read_requests(arm.requests)) == 2
        assert (folder.logs / arm.log).read_text().startswith("fake server")
    scratch = Path(worker._scratch.name)
    assert [p.name for p in scratch.rglob("*") if p.is_file()] == ["now.json"]


def test_a_node_with_another_engine_or_model_is_refused() -> None:
    order = order_of(plan())
    assert isinstance(Worker(order).fingerprint(), Environment)
    assert Worker(replace(order, engine="fake 2")).fingerprint() == (
        "it has fake 1, the machine of the driver fake 2: install the same"
    )
    told = Worker(replace(order, served={"model": "another"})).fingerprint()
    assert told == "its model is another one than the driver's: copy the same there"
