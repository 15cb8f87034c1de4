"""The embedded engine on the nodes of a real Ray cluster: a killed node loses no Trial, no server stays."""

import threading
from pathlib import Path

import psutil
import pytest

from launchers.process import GUARD
from results.store import RunFolder
from sweeps.cluster.board import NODES_FILE
from sweeps.prepare import prepare
from sweeps.run import run_sweep
from sweeps.sweep import Sweep
from tests.sweeps.cluster.local_ray import on, ray_nodes
from tests.sweeps.test_run import Recorder
from tests.waiting import wait_for

pytestmark = pytest.mark.rig
pytest.importorskip("ray")


def guards() -> set[int]:
    """Processes that hold a server each."""
    found = psutil.process_iter(["pid", "cmdline"])
    return {p.info["pid"] for p in found if str(GUARD) in (p.info["cmdline"] or ())}


def test_a_killed_node_loses_no_trial_and_leaves_no_server(tmp_path: Path) -> None:
    before, folder, recorder = guards(), RunFolder(tmp_path / "run"), Recorder()
    with ray_nodes(3) as (cluster, nodes):
        content = {
            "space": {"ngram-simple": {"size_n": [3, 4], "size_m": [4, 8]}},
            "workload": {"classes": ["code_edit"], "prompts_per_class": 2, "max_tokens": 24},
            "budget": {"trials": 4},
            "confirm": {"finalists": 1, "looks": [2]},
            # Three servers share the cores here: figures say nothing, and nobody minds.
            "patience": {
                "foreign_cores": 1000,
                "client_share": 1,
                "min_window_s": 0,
                "hopeless_ratio": 0,
            },
            **on(cluster),
        }

        def kill_one_at_work() -> None:
            wait_for(lambda: sum(s["block"] is not None for s in seats(folder)) == 3, 120)
            wait_for(lambda: len(guards() - before) == 3, 120)
            cluster.remove_node(nodes[0], allow_graceful=False)

        killer = threading.Thread(target=kill_one_at_work)
        killer.start()
        run_sweep(prepare(Sweep.model_validate(content)), folder, recorder, recorder.stopped)
        killer.join()
        wait_for(lambda: not guards() - before, 30)
    trials = folder.trials()
    assert len({t.point.key for t in trials}) == len(trials) == 5
    assert all(t.failure is None for t in trials), [t.failure for t in trials]
    assert [s["lost"] != "" for s in seats(folder)].count(True) == 1


def seats(folder: RunFolder) -> list[dict[str, object]]:
    return list(folder.read_json(NODES_FILE).get("seats", ()))
