"""Trials per hour on 1 and on 8 nodes of a Ray cluster, and what the driver takes of a core meanwhile.

    python -m bench.cluster_rate

The nodes are raylets of this machine and the engine is the stand-in, whose servers sleep while they start:
what is measured is what the driver and Ray add, not the machine. A node does one Block at a time, so that 8
nodes can do 8 times as many as one at most. About 5 minutes.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from results.records import Phase, Trial
from results.store import RunFolder
from sweeps.run import run_sweep
from tests.sweeps.cluster.local_ray import on, ray_nodes
from tests.sweeps.test_run import Recorder, plan

START_S = 10.0  # of a server
ROUNDS = 6  # Trials of each node
SPACE = {"fake-ngram": {"n": [*range(1, 9)], "m": [*range(1, 33)]}}


@dataclass(frozen=True)
class Rate:
    """One search."""

    nodes: int
    trials_per_h: float
    driver_cores: float


class Search(Recorder):
    """Ends a run with its search; knows what this process took of a core while Blocks were measured."""

    def __init__(self, trials: int) -> None:
        super().__init__(stop_after=trials)
        self.cpu_s = 0.0
        self.since_s = 0.0

    def trial(self, trial: Trial, best: Trial | None) -> None:
        self.cpu_s = time.process_time() - self.since_s
        super().trial(trial, best)


def rate(nodes: int) -> Rate:
    trials = ROUNDS * nodes
    with tempfile.TemporaryDirectory() as scratch, ray_nodes(nodes) as (cluster, _):
        folder, search = RunFolder(Path(scratch) / "run"), Search(trials)
        planned = plan(
            space=SPACE, budget={"trials": trials}, env={"FAKE_START_S": str(START_S)}, **on(cluster)
        )
        search.since_s = time.process_time()
        run_sweep(planned, folder, search, search.stopped)
        blocks = [b for b in folder.blocks() if b.phase is Phase.SEARCH]
    wall_s = max(b.ended_at for b in blocks) - min(b.started_at for b in blocks)
    assert len({b.node for b in blocks}) == nodes, "some node measured nothing"
    return Rate(nodes, 3600 * len(blocks) / wall_s, search.cpu_s / wall_s)


def main() -> None:
    one, eight = rate(1), rate(8)
    for found in (one, eight):
        driver = f"driver {found.driver_cores:.1%} of a core"
        print(f"{found.nodes} nodes: {found.trials_per_h:6.0f} trials/h, {driver}")
    print(f"{eight.trials_per_h / one.trials_per_h:.2f} times as many")


if __name__ == "__main__":
    main()
