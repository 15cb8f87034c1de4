"""What a dry run says of a real cluster."""

import pytest

from sweeps.cluster.outlook import outlook
from tests.sweeps.cluster.local_ray import on, ray_nodes
from tests.sweeps.test_run import plan

pytest.importorskip("ray")


def test_how_many_fit() -> None:
    with ray_nodes(2) as (cluster, _):
        found, asked, none = (
            outlook(plan(**on(cluster, **section))) for section in ({}, {"servers": 5}, {"gpus": 64})
        )
    assert found is not None and found.lanes == 2
    assert found.said == "One server takes 1 CPU, 1 slot of a node. 2 fit into the cluster: 2 Blocks at once."
    assert asked is not None and asked.lanes == 5 and "as ray.servers asks" in asked.said
    assert none is not None and none.lanes is None and "the cluster does not have that" in none.said
