"""False alarms and power of the nightly rule, simulated: the table of docs/nightly-rule.md.

python -m bench.nightly_rule [--histories 400 --nights 25]

Every history is judged by the rule itself, with several nights that could follow it.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analysis.nightly.leak import leaks
from analysis.nightly.rule import out, out_twice
from tests.analysis.nightly.simulated import SEVEN, Simulated, World, expected_after, simulated, values

WORLDS = {
    "independent nights": World(0.0),
    "memory 0.5": World(0.0, memory=0.5),
    "memory 0.8": World(0.0, memory=0.8),
    "memory 0.8, kinds vary together": World(0.0, memory=0.8, common=0.7),
    "independent, rerun equal to the first": World(0.0, level=1.0),
    "memory 0.5, rerun equal to the first": World(0.0, memory=0.5, level=1.0),
    "memory 0.8, rerun equal to the first": World(0.0, memory=0.8, level=1.0),
    "independent, heavy tails (t, 4 degrees)": World(0.0, tail=4),
    "one Cell: seven series": World(0.0, series=SEVEN),
    "one Cell, memory 0.5": World(0.0, series=SEVEN, memory=0.5),
}


def rates(world: World, nights: Simulated, loss: float = 0.0) -> tuple[float, float, float]:
    """Shares of nights: with a rerun, with any alarm, with an alarm in the first series, which has a loss."""
    found = []
    for before, firsts, agains in zip(nights.before, nights.first, nights.again, strict=True):
        expected = expected_after(world.series, before)
        for first, again in zip(firsts, agains, strict=True):
            figures, rerun = values(world.series, first), values(world.series, again)
            lost = world.series[0]
            figures[lost], rerun[lost] = figures[lost] * (1 - loss), rerun[lost] * (1 - loss)
            alarms = out_twice(figures, rerun, expected)
            found.append((bool(out(figures, expected)), bool(alarms), lost in alarms))
    reruns, any_alarm, caught = np.mean(found, axis=0)
    return float(reruns), float(any_alarm), float(caught)


def leak_rate(world: World, checks: int, nights: int) -> float:
    """Share of weekly checks with any leak, though nothing leaks."""
    before = simulated(np.random.default_rng(nights), world, checks, nights, 1).before
    return float(np.mean([bool(leaks(_places(world.series, run))) for run in before]))


def _places(series: Sequence[str], run: np.typing.NDArray[np.float64]) -> dict[str, list[float]]:
    return {s: run[:, column].tolist() for column, s in enumerate(series)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=400)
    parser.add_argument("--nights", type=int, default=25, help="that follow each history")
    asked = parser.parse_args()
    print(
        "| nights | noise | history | reruns | false alarms | 5 % caught | 10 % caught | leaks at 21 |"
        " at 56 |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, kind in WORLDS.items():
        for noise in (0.01, 0.03):
            world = replace(kind, noise=noise)
            leak = [leak_rate(world, asked.histories * 3, n) for n in (21, 56)]
            for history in (14, 30):
                rng = np.random.default_rng(history)
                nights = simulated(rng, world, asked.histories, history, asked.nights)
                reruns, alarms, _ = rates(world, nights)
                caught = [rates(world, nights, loss)[2] for loss in (0.05, 0.10)]
                shown = " | ".join(f"{100 * x:.1f} %" for x in (reruns, alarms, *caught, *leak))
                print(f"| {name} | {100 * noise:.0f} % | {history} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
