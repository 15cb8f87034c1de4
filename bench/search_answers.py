"""What a search must answer on three published tables: baseline, equals, and the parent knob.

python -m bench.search_answers --landscapes FOLDER [--seeds 50]

01: no configuration beats the baseline, so the confirmation calls none BETTER.
08: n_max 32 and 128 at p_min 0.75 are one server twice: they are named as equals.
11: the engine's own all-reduce decides, NCCL's variables below it little: the winner has it off.
"""

import argparse
import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.noise import BlockNoise
from analysis.ties import as_good
from analysis.verdict import conclude
from bench.landscapes import published
from bench.replay import Landscape
from results.records import Block, Phase, Point, Trial, VerdictKind
from sweeps.study import Search, best_of, finalists

LOOKS = (4, 8, 12, 20)
FINALISTS, MARGIN = 3, 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--landscapes", type=Path, default=os.environ.get("TUNER_LANDSCAPES"))
    parser.add_argument("--seeds", type=int, default=50)
    args = parser.parse_args()
    tables = published(args.landscapes)
    seeds = range(args.seeds)
    losing = [t for t in tables if t.name.startswith("01")]
    right = [_answers_baseline(t, seed) for t in losing for seed in seeds]
    _say("01 ends with the baseline", right, least=0.95)
    (run_h,) = [t for t in tables if t.name.endswith("run H")]
    _say("08 calls n_max 32 and 128 equal", [_calls_equal(run_h, seed) for seed in seeds], least=0.9)
    (kimi,) = [t for t in tables if t.name.startswith("11 Kimi") and t.name.endswith("P2Pdriver=0")]
    _say("11 ends with the parent knob off", [_finds_parent(kimi, seed) for seed in seeds], least=0.95)


def _say(what: str, right: Sequence[bool], *, least: float) -> None:
    share = sum(right) / len(right)
    print(f"{what}: {share:.0%} of {len(right)} runs")
    assert share >= least, f"{what}: {least:.0%} are asked for"


def _search(landscape: Landscape, seed: int, budget: int) -> list[Trial]:
    rng, trials, blocks = random.Random(seed), list[Trial](), list[Block]()
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "study.log"
        search = Search(landscape.space, trials=budget, seed=seed, journal=journal, blocks=blocks)
        while (asked := search.ask()) is not None:
            blocks.append(landscape.block(len(trials) + 1, asked[0], rng))
            trials.append(landscape.trial(len(trials) + 1, *asked, blocks[-1]))
            search.tell(trials[-1])
    return trials


def _answers_baseline(landscape: Landscape, seed: int) -> bool:
    """Whether nothing is called better than the baseline, at any planned look."""
    found = finalists(_search(landscape, seed, len(landscape.points)), FINALISTS, MARGIN)
    rng = random.Random(f"confirm {seed}")
    blocks = [_confirming(landscape, number, found, rng) for number in range(LOOKS[-1])]
    verdicts = [v for look in LOOKS for v in conclude(blocks[:look], found)]
    return all(v.kind is not VerdictKind.BETTER for v in verdicts)


def _confirming(landscape: Landscape, number: int, points: Sequence[Point], rng: random.Random) -> Block:
    """One Block of the baseline and every finalist."""
    each = [landscape.block(number, point, rng) for point in points]
    arms = (each[0].arms[0], *(block.arms[1] for block in each))
    return replace(each[0], arms=arms, phase=Phase.CONFIRM)


def _calls_equal(landscape: Landscape, seed: int) -> bool:
    trials = _search(landscape, seed, len(landscape.points))
    twins = [t for t in trials if t.point.knobs["num_steps"] in (32, 128)]
    noise = BlockNoise(landscape.noise, 20, "")
    return as_good(twins[0], trials, noise).count(twins[1]) == 1


def _finds_parent(landscape: Landscape, seed: int) -> bool:
    best = best_of(_search(landscape, seed, (len(landscape.points) + 1) // 2))
    return best is not None and best.point.knobs["customar"] == 0


if __name__ == "__main__":
    main()
