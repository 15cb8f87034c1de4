"""Write the search of a run folder as a landscape to replay.

python -m bench.record_landscape RUN FILE.csv [--cpu]

With --cpu a token costs what the server's processes computed for it, not what a clock on the wall saw: on
a machine that others use meanwhile, seconds are theirs as well.
"""

import argparse
import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.costmodel.observations import Observation, observe
from analysis.noise import block_noise
from results.records import ArmRun, Block, Measurement
from results.store import RunFolder
from sweeps.sweep import parse_sweep

COLUMNS = [
    "method",
    "knobs",
    "depth",
    "draft_tokens",
    "passes",
    "topk",
    "class",
    "pace",
    "log_speedup",
    "steps",
    "drafts",
    "drafted",
    "accepted",
    "accepted_per_position",
    "block_noise",
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    folder = RunFolder(args.run)
    blocks: Sequence[Block] = folder.blocks()
    objective = parse_sweep(folder.sweep_file.read_text(), where=str(folder.sweep_file)).objective
    if args.cpu:
        blocks, objective = (
            [replace(b, arms=tuple(map(_in_cpu_time, b.arms))) for b in blocks],
            "tokens_per_s",
        )
    noise = block_noise(blocks, objective)
    with args.target.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        rows.writerows(_row(o, noise.sd if noise else 0.05) for o in observe(blocks, objective))


def _in_cpu_time(arm: ArmRun) -> ArmRun:
    return replace(arm, measurements=tuple(map(_per_cpu_second, arm.measurements)))


def _per_cpu_second(measurement: Measurement) -> Measurement:
    host = measurement.telemetry
    tokens = sum(measurement.tokens_by_prompt.values())
    return replace(measurement, tokens_per_s=tokens / ((host.server_cores or 1.0) * host.wall_s))


def _row(o: Observation, noise: float) -> list[object]:
    shape, counts = o.shape, o.counts
    return [
        o.point.method,
        json.dumps(dict(o.point.knobs)),
        *(shape.depth, shape.draft_tokens, shape.passes, shape.topk),
        *(o.cell.workload_class, o.cell.pace, f"{o.log_speedup:.4f}", f"{o.steps:.0f}"),
        *(counts.drafts, counts.draft_tokens, counts.accepted_tokens),
        " ".join(map(str, counts.accepted_per_position)),
        f"{noise:.4f}",
    ]


if __name__ == "__main__":
    main()
