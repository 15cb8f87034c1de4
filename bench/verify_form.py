"""Does verification cost what the model says? Its form, fitted to measured latencies of another's GPU.

python -m bench.verify_form --landscapes FOLDER

Table 13 has the time of one verification by width and batch. Every width is predicted from the others.
"""

import argparse
import csv
import math
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from analysis.costmodel.drafting import Drafting
from analysis.costmodel.observations import Observation
from analysis.costmodel.steps import fit_step_cost
from results.records import Cell, DraftShape, Point, SpecCounters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--landscapes", type=Path, default=os.environ.get("TUNER_LANDSCAPES"))
    (path,) = Path(parser.parse_args().landscapes).glob("13_*.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    print("| batch | a draft at all | each draft token | held-out error, median | worst |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for batch in dict.fromkeys(row["batch"] for row in rows):
        seen = [
            _verified(int(row["verify_width_q"]), float(row["ratio_vs_q1"]), batch)
            for row in rows
            if row["batch"] == batch and row["verify_width_q"] != "1"
        ]
        errors = [_held_out(seen, i) for i in range(len(seen))]
        cost = fit_step_cost(seen)
        print(
            f"| {batch} | {cost.host['lookup']:.3f} | {cost.verify:.4f} |"
            f" {statistics.median(errors):.1%} | {max(errors):.1%} |"
        )


def _verified(width: int, ratio: float, batch: str) -> Observation:
    """A step that verifies `width` tokens and accepts none."""
    drafted = width - 1
    return Observation(
        Point("lookup", {"width": width}),
        DraftShape(drafted, drafted, passes=0),
        Cell("", f"closed({batch})"),
        -math.log(ratio),
        0.0,
        1.0,
        SpecCounters(1, drafted, 0),
    )


def _held_out(seen: Sequence[Observation], at: int) -> float:
    held = seen[at]
    cost = fit_step_cost([o for o in seen if o is not held])
    one = Drafting(np.ones(1), np.array([float(held.counts.draft_tokens)]), np.zeros(1))
    return abs(float(cost.of("lookup", [held.shape], one)[0]) / held.step_cost - 1.0)


if __name__ == "__main__":
    main()
