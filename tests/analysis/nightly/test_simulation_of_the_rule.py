"""What the rule promises, by simulation of forty series (docs/nightly-rule.md has the larger table)."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.nightly.rule import breaches, judge
from results.nights import Night
from tests.analysis.nightly.simulated import World, night, rates, sequence, simulated, values

INDEPENDENT = World(0.01)
HALF = World(0.01, memory=0.5)
LONG = World(0.01, memory=0.8)
TOGETHER = World(0.01, memory=0.8, common=0.7)
NO_NEW_NOISE = World(0.01, level=1.0)  # the rerun only repeats the night's deviation
WORLDS = pytest.mark.parametrize("world", [INDEPENDENT, HALF, LONG, TOGETHER])


@WORLDS
@pytest.mark.parametrize("noise", [0.01, 0.03])
@pytest.mark.parametrize("history", [14, 30])
def test_fewer_than_one_night_in_a_hundred_has_a_false_alarm(
    world: World, noise: float, history: int
) -> None:
    nights = simulated(np.random.default_rng(history), replace(world, noise=noise), 60, history, 30)
    assert rates(world, nights)[1] < 0.01


@WORLDS
@pytest.mark.parametrize("history", [14, 30])
def test_a_loss_of_five_percent_at_one_percent_noise_is_caught_the_first_night(
    world: World, history: int
) -> None:
    nights = simulated(np.random.default_rng(6), world, 200, history, 2)
    assert rates(world, nights, loss=0.05)[2] >= 0.9


def test_a_rerun_that_tells_nothing_new_still_leaves_few_false_alarms() -> None:
    nights = simulated(np.random.default_rng(7), NO_NEW_NOISE, 100, 20, 30)
    assert rates(NO_NEW_NOISE, nights)[1] < 0.02


def test_without_the_second_look_alarms_would_be_false_every_few_nights() -> None:
    """The simulation can fail: most nights at 3 % noise need the rerun they get."""
    world = World(0.03)
    nights = simulated(np.random.default_rng(8), world, 30, 14, 20)
    assert rates(world, nights)[0] > 0.2


@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_two_months_of_nights_one_after_the_other(noise: float) -> None:
    """The whole rule with its own history: reruns, alarms, leaks and outliers go into what follows."""
    world = replace(HALF, noise=noise)
    alarms = 0
    for seed in range(4):
        history: list[Night] = []
        firsts, agains = sequence(np.random.default_rng(seed), world, 60)
        for number, (first, again) in enumerate(zip(firsts, agains, strict=True)):
            tonight = night(number, values(world.series, first))
            if breaches(history, tonight):
                tonight = replace(tonight, again=values(world.series, again))
            history.append(judge(history, tonight).night)
        alarms += sum(bool(found.alarms) for found in history)
    assert alarms <= 2  # of 184 nights with an interval
