"""The folder of a run on 3 nodes with 2 sets of GPUs each: one node slower, one seat lost, five at work.

`python -m tests.sweeps.cluster.run_on_nodes FOLDER` writes one that this process drives, for a look.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from results.records import BASELINE, Phase
from results.store import RunFolder
from sweeps.cluster.board import Board
from sweeps.now import Stage, write_stage
from sweeps.session import session
from sweeps.sweep import Sweep
from tests.analysis.clusters import BLOCK_S, OTHER, PLACES, POINT, blocks
from tests.records import trial

LOST = "the actor died because its node has died"


@contextmanager
def going_on(folder: RunFolder, hours: float | None = 6.0) -> Iterator[Board]:
    """In the middle of its confirmation; this process is its driver."""
    folder.create()
    sweep = Sweep.model_validate(
        {
            "engine": "fake",
            "launcher": "ray",
            "name": "qwen3-cluster",
            "budget": {"trials": 12, **({"hours": hours} if hours else {})},
        }
    )
    folder.write_text("sweep.yaml", sweep.to_yaml())
    with session(folder):
        began_at = time.time()
        folder.add_trial(trial(0, BASELINE, 0.0, blocks=()))
        folder.add_trial(trial(1, POINT, 0.11, blocks=(1,)))
        folder.add_trial(trial(2, OTHER, 0.07, blocks=(0,)))
        for block in blocks()[:18]:
            moved_s = began_at - 1.8e9 - 5 * BLOCK_S
            folder.add_block(
                replace(block, started_at=block.started_at + moved_s, ended_at=block.ended_at + moved_s)
            )
        write_stage(folder, Stage.CONFIRM, 0, 20)
        board = Board(folder)
        seats = [board.comes(node, gpus, {"host": node}) for node, gpus in PLACES]
        for number, seat in enumerate(seats[:4]):
            board.begins(seat, 18 + number, Phase.CONFIRM, [BASELINE, POINT, OTHER])
        board.begins(seats[5], 22, Phase.CONFIRM, [BASELINE, POINT, OTHER])
        board.goes(seats[5], LOST)
        yield board


def long_since(folder: RunFolder, held_s: float = 3000.0) -> None:
    """Move its seats into the past."""
    told = dict(folder.read_json("nodes.json"))
    for seat in told["seats"]:
        seat["since_at"] -= held_s
        if seat["block_since_at"] is not None:
            seat["block_since_at"] -= 140.0
    folder.write_json("nodes.json", told)


if __name__ == "__main__":
    with going_on(RunFolder(Path(sys.argv[1]))):
        long_since(RunFolder(Path(sys.argv[1])))
        time.sleep(float(sys.argv[2]))
