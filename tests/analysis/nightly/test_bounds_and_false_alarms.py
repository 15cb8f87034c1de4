from dataclasses import replace

import pytest
from scipy import stats

from analysis.nightly.bounds import all_bounds, bounds
from analysis.nightly.false_alarms import exact_interval, false_alarms
from analysis.nightly.rule import judge
from results.nights import SPEED_UP, Accepted, Night, NightKind, NightVerdict
from tests.analysis.nightly.by_hand import of, steady
from tests.analysis.nightly.simulated import DAY_S


def test_every_night_has_the_bound_it_was_judged_by() -> None:
    history = steady(40)
    found = bounds(history, SPEED_UP)
    assert found[:14] == [None] * 14
    for place in (14, 25, 39):
        judged, bound = judge(history[:place], history[place]).series[0], found[place]
        assert bound is not None
        assert (bound.centre, bound.lowest, bound.nights) == (judged.expected, judged.lowest, judged.nights)
    assert [bound.nights for bound in found if bound is not None][-1] == 30


def test_a_shift_and_a_night_without_the_series_have_no_bound() -> None:
    history = steady(40)
    history[20] = replace(history[20], values={}, verdict=NightVerdict.INVALID)
    found = bounds(history, SPEED_UP, [Accepted(22 * DAY_S, "all", "wanted")])
    assert [place for place, bound in enumerate(found) if bound is not None] == [
        *range(14, 20),
        21,
        36,
        37,
        38,
        39,
    ]
    assert bounds(history, "acceptance_length") == [None] * 40


def test_all_at_once_is_one_after_the_other() -> None:
    history = [
        replace(n, values={SPEED_UP: n.values[SPEED_UP], "speed_up/chat": 1.3, "identical_share": 1.0})
        for n in steady(16)
    ]
    found = all_bounds(history)
    assert list(found) == [SPEED_UP, "speed_up/chat"]
    assert all(found[series] == bounds(history, series) for series in found)


def aa(count: int) -> list[Night]:
    return [replace(n, kind=NightKind.AA, values={SPEED_UP: n.values[SPEED_UP] / 1.5}) for n in steady(count)]


def test_nights_of_the_baseline_against_itself_tell_the_false_breaches() -> None:
    history = [*aa(11), replace(of(11, 0.9), kind=NightKind.AA), *steady(20, first=20)]
    found = false_alarms(history)
    assert (found.nights, found.breached, found.rate) == (12, 1, 1 / 12)
    assert str(found) == (
        "1 of 12 A/A nights would have been measured again: 8\N{NO-BREAK SPACE}% false breaches "
        "(0.2\N{NO-BREAK SPACE}% to 38\N{NO-BREAK SPACE}% with 95 % confidence); "
        "an alarm needs two of them in one night."
    )


def test_few_a_a_nights_or_unlike_ones_tell_nothing() -> None:
    unlike = [replace(n, machine=f"m{i % 2}") for i, n in enumerate(aa(10))]
    for history in ([], steady(20), aa(5), unlike):
        found = false_alarms(history)
        assert (found.nights, found.rate, found.low, found.high) == (0, None, 0.0, 1.0)
        assert str(found) == "Too few A/A nights to tell false alarms: it takes 6 that are alike."


@pytest.mark.parametrize(("hits", "of_all"), [(0, 12), (1, 12), (12, 12), (3, 40)])
def test_the_interval_is_clopper_and_pearson_s(hits: int, of_all: int) -> None:
    """By quantiles of the beta distribution."""
    low = 0.0 if hits == 0 else stats.beta.ppf(0.025, hits, of_all - hits + 1)
    high = 1.0 if hits == of_all else stats.beta.ppf(0.975, hits + 1, of_all - hits)
    assert exact_interval(hits, of_all) == pytest.approx((low, high))
