import numpy as np
import pytest

from analysis.nightly.judgement import State
from analysis.nightly.leak import is_due, leaks
from analysis.nightly.rule import judge
from results.nights import SPEED_UP, Night, NightVerdict
from tests.analysis.nightly.by_hand import of, steady
from tests.analysis.nightly.simulated import World, leak_rate, places_of, simulated


def leaking(nights: int) -> list[Night]:
    """An eighth of a percent a night: none of them is out."""
    history: list[Night] = []
    for number, calm in enumerate(steady(nights)):
        tonight = of(number, calm.values[SPEED_UP] * 0.99875**number)
        history.append(judge(history, tonight).night)
    return history


def test_it_is_checked_weekly_from_the_third_week_on() -> None:
    assert [n for n in range(40) if is_due(n)] == [21, 28, 35]


def test_a_slow_leak_is_found_though_no_night_is_out() -> None:
    history = leaking(49)
    first = [night.verdict for night in history].index(NightVerdict.REGRESSION)
    assert is_due(first + 1)
    assert [night.breached for night in history[: first + 1]] == [()] * (first + 1)
    judgement = judge(history[:first], history[first])
    assert judgement.series[0].state is State.LEAK
    assert judgement.night.alarms == (SPEED_UP,)


def test_a_leak_is_one_every_night_until_it_is_mended() -> None:
    history = leaking(44)
    assert history[-1].alarms == (SPEED_UP,)
    for number in range(44, 47):
        history.append(judge(history, of(number, 1.42)).night)
        assert history[-1].alarms == (SPEED_UP,)
    assert judge(history, of(47, 1.5)).verdict is NightVerdict.PASS


def test_what_is_too_small_to_matter_or_better_is_no_leak() -> None:
    rng = np.random.default_rng(4)
    steady_nights = rng.normal(0, 0.001, 21)
    for step, found in ((-0.02, ()), (-0.04, (SPEED_UP,)), (0.04, ())):
        shifted = steady_nights + step * (np.arange(21) >= 14)
        assert leaks({SPEED_UP: shifted.tolist()}) == found


def test_a_week_that_is_not_over_is_not_checked() -> None:
    shifted = [0.0] * 14 + [-0.2] * 6
    assert leaks({SPEED_UP: shifted}) == ()
    assert leaks({SPEED_UP: [*shifted, -0.2]}) == (SPEED_UP,)


@pytest.mark.parametrize("noise", [0.01, 0.03])
@pytest.mark.parametrize("memory", [0.0, 0.5])
def test_nights_without_a_leak_rarely_look_like_one(noise: float, memory: float) -> None:
    """Under 1 % a check of 40 series, so under 0.15 % a night."""
    assert leak_rate(World(noise, memory), checks=400, nights=21) <= 0.015


def test_a_leak_of_five_percent_is_found_the_first_time() -> None:
    world = World(0.01, memory=0.5)
    runs = simulated(np.random.default_rng(5), world, 100, 21, 1).before
    runs[:, -7:, 0] += np.log(0.95)
    assert np.mean([SPEED_UP in leaks(places_of(world.series, run)) for run in runs]) >= 0.9
