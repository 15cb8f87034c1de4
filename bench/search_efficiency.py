"""Launches that a search needs until one of its finalists is within 2 % of the best configuration there is.

python -m bench.search_efficiency [--landscapes FOLDER] [--seeds 50] [--only TEXT]

Tables of real measurements are replayed with the noise of one Block: ours, against a grid in fixed
order, random order, and Optuna's TPE with its defaults over the same conditional space. A Point that
was launched is never paid for twice, also by TPE. Finalists: the three best as measured.
"""

import argparse
import math
import os
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import optuna

from bench.landscapes import own, published
from bench.replay import Landscape, grid
from results.records import Block, Point, Trial
from sweeps.study import Search

WITHIN = math.log(0.98)
FINALISTS = 3
MAX_REPEATS = 50  # of TPE in a row, before it is given another Point
Strategy = Callable[[Landscape, int], Iterator[tuple[Point, Callable[[float], None]]]]


def grid_order(landscape: Landscape, seed: int) -> Iterator[tuple[Point, Callable[[float], None]]]:
    for point in grid(landscape):
        yield point, lambda value: None


def random_order(landscape: Landscape, seed: int) -> Iterator[tuple[Point, Callable[[float], None]]]:
    points = [*landscape.space.points.values()]
    random.Random(seed).shuffle(points)
    for point in points:
        yield point, lambda value: None


def plain_tpe(landscape: Landscape, seed: int) -> Iterator[tuple[Point, Callable[[float], None]]]:
    """Optuna's defaults, ask and tell; what it asks again is answered from memory."""
    sampler = optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    rng, known, repeats = random.Random(seed), dict[str, float](), 0
    while len(known) < len(landscape.points):
        if repeats > MAX_REPEATS:  # it asks for what it knows only
            study.enqueue_trial(landscape.space.parameters(_unseen(landscape, known, rng)))
        trial = study.ask()
        point = landscape.space.suggest(trial)
        if point is None:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        elif point.key in known:
            repeats += 1
            study.tell(trial, known[point.key])
        else:
            repeats = 0
            told: list[float] = []
            yield point, told.append
            known[point.key] = told[0]
            study.tell(trial, told[0])


def _unseen(landscape: Landscape, known: Mapping[str, float], rng: random.Random) -> Point:
    return rng.choice([p for key, p in landscape.points.items() if key not in known])


def launches(landscape: Landscape, strategy: Strategy, seed: int) -> int:
    """Until a finalist is good enough."""
    rng = random.Random(f"{landscape.name} {seed}")
    seen: list[tuple[float, float]] = []
    for point, tell in strategy(landscape, seed):
        value = landscape.truth[point.key] + rng.gauss(0.0, landscape.noise)
        tell(value)
        seen.append((value, landscape.truth[point.key]))
        if _is_found(landscape, seen):
            break
    return len(seen)


def our_launches(landscape: Landscape, seed: int) -> int:
    """The same with the search of a sweep, which sees whole Blocks."""
    return len(our_search(landscape, seed))


def without_guesses(landscape: Landscape, seed: int) -> int:
    """The same without the engine's starting points."""
    return our_launches(replace(landscape, starts=()), seed)


def our_search(landscape: Landscape, seed: int) -> list[Trial]:
    """Trials until a finalist is good enough."""
    rng = random.Random(f"{landscape.name} {seed}")
    with tempfile.TemporaryDirectory() as folder:
        blocks: list[Block] = []
        journal = Path(folder) / "study.log"
        search = Search(
            landscape.space, trials=len(landscape.points), seed=seed, journal=journal, blocks=blocks
        )
        seen: list[tuple[float, float]] = []
        trials: list[Trial] = []
        while (asked := search.ask()) is not None:
            point, source = asked
            block = landscape.block(len(seen) + 1, point, rng)
            trial = landscape.trial(len(seen) + 1, point, source, block)
            blocks.append(block)
            search.tell(trial)
            trials.append(trial)
            assert trial.log_speedup is not None
            seen.append((trial.log_speedup, landscape.truth[point.key]))
            if _is_found(landscape, seen):
                break
    return trials


def _is_found(landscape: Landscape, seen: Sequence[tuple[float, float]]) -> bool:
    top = sorted(seen, reverse=True)[:FINALISTS]
    return max(truth for _, truth in top) >= landscape.best + WITHIN


def _spread(counts: Sequence[int]) -> str:
    ordered = sorted(counts)
    low, high = ordered[int(0.05 * len(ordered))], ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)]
    return f"{statistics.median(ordered):g} ({low} to {high})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--landscapes", type=Path, default=os.environ.get("TUNER_LANDSCAPES"))
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    tables: dict[str, list[Landscape]] = {}
    for landscape in [*own(), *(published(Path(args.landscapes)) if args.landscapes else [])]:
        tables.setdefault(landscape.table_name, []).append(landscape)
    print("| table | landscapes | Points | ours | ours, without guesses | plain TPE | random | grid |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, landscapes in tables.items():
        if args.only in name:
            print(_row(name, landscapes, args.seeds), flush=True)


def _row(name: str, landscapes: Sequence[Landscape], seeds: int) -> str:
    """Median, and where nine of ten runs lie."""
    runs = [(landscape, seed) for landscape in landscapes for seed in range(seeds)]
    counts = [[of(*run) for run in runs] for of in (our_launches, without_guesses)]
    for of in (plain_tpe, random_order, grid_order):
        counts += [[launches(landscape, of, seed) for landscape, seed in runs]]
    sizes = [len(landscape.points) for landscape in landscapes]
    points = str(sizes[0]) if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    return f"| {' | '.join([name, str(len(landscapes)), points, *map(_spread, counts)])} |"


if __name__ == "__main__":
    main()
