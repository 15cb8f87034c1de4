"""False alarms and power of the nightly rule, simulated: the table of docs/nightly-rule.md.

python -m bench.nightly_rule [--histories 400 --nights 25 --checks 1000]

Every history is judged by the rule itself, with several nights that could follow it.
"""

import argparse
from dataclasses import replace

import numpy as np

from tests.analysis.nightly.simulated import SEVEN, World, leak_rate, rates, simulated

WORLDS = {
    "independent nights": World(0.0),
    "memory 0.5": World(0.0, memory=0.5),
    "memory 0.8": World(0.0, memory=0.8),
    "memory 0.8, kinds vary together": World(0.0, memory=0.8, common=0.7),
    "memory 0.5, rerun shares 80 %": World(0.0, memory=0.5, level=0.8),
    "independent, rerun equal to the first": World(0.0, level=1.0),
    "memory 0.5, rerun equal to the first": World(0.0, memory=0.5, level=1.0),
    "memory 0.8, rerun equal to the first": World(0.0, memory=0.8, level=1.0),
    "independent, heavy tails (t, 4 degrees)": World(0.0, tail=4),
    "one Cell: seven series": World(0.0, series=SEVEN),
    "one Cell, memory 0.5": World(0.0, series=SEVEN, memory=0.5),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=400)
    parser.add_argument("--nights", type=int, default=25, help="that follow each history")
    parser.add_argument("--checks", type=int, default=1000, help="for leaks")
    asked = parser.parse_args()
    columns = ("nights", "noise", "history", "reruns", "false alarms", "5 % caught", "10 % caught")
    print(f"| {' | '.join(columns)} | leaks at 21 | at 56 |\n{'|---' * 9}|")
    for name, kind in WORLDS.items():
        for noise in (0.01, 0.03):
            world = replace(kind, noise=noise)
            leak = [leak_rate(world, asked.checks, n) for n in (21, 56)]
            for history in (14, 30):
                rng = np.random.default_rng(history)
                nights = simulated(rng, world, asked.histories, history, asked.nights)
                reruns, alarms, _ = rates(world, nights)
                caught = [rates(world, nights, loss)[2] for loss in (0.05, 0.10)]
                shown = " | ".join(f"{100 * x:.1f} %" for x in (reruns, alarms, *caught, *leak))
                print(f"| {name} | {100 * noise:.0f} % | {history} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
