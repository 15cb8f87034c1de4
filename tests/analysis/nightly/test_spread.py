"""The parts of the interval, each against scipy, a published example, or simulation."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import polygamma

from analysis.nightly.discoveries import discoveries
from analysis.nightly.expectation import expectations
from analysis.nightly.memory import lasting, mixed, share_of_level
from analysis.nightly.moderation import Variance, moderated, trigamma_inverse
from analysis.nightly.outliers import outliers, without_outliers
from analysis.nightly.spread import spreads

ROSNER = [  # 54 values of Rosner 1983; also NIST/SEMATECH e-Handbook, section 1.3.5.17.3: three outliers
    *(-0.25, 0.68, 0.94, 1.15, 1.20, 1.26, 1.26, 1.34, 1.38, 1.43, 1.49, 1.49, 1.55, 1.56, 1.58, 1.65, 1.69),
    *(1.70, 1.76, 1.77, 1.81, 1.91, 1.94, 1.96, 1.99, 2.06, 2.09, 2.10, 2.14, 2.15, 2.23, 2.24, 2.26, 2.35),
    *(2.37, 2.40, 2.47, 2.54, 2.62, 2.64, 2.90, 2.92, 2.92, 2.93, 3.21, 3.26, 3.30, 3.59, 3.68, 4.30, 4.64),
    *(5.34, 5.42, 6.01),
]


def restless(n: int, sd: float) -> NDArray[np.float64]:
    """Normal quantiles, high and low by turns: neighbours do not resemble each other."""
    ordered = stats.norm.ppf((np.arange(n) + 0.5) / n) * sd
    return np.array([ordered[i // 2] if i % 2 else ordered[-1 - i // 2] for i in range(n)])


@pytest.mark.parametrize("nights", [14, 22, 30])
def test_a_series_alone_has_scipy_s_prediction_interval(nights: int) -> None:
    """Student's t with the error of one more observation: s * sqrt(1 + 1/n)."""
    values = 0.4 + restless(nights, 0.03)
    found = expectations({"speed_up": values.tolist()})["speed_up"]
    error = values.std(ddof=1) * math.sqrt(1 + 1 / nights)
    assert found.centre == pytest.approx(values.mean())
    assert found.lowest == pytest.approx(stats.t.ppf(0.01, nights - 1, values.mean(), error))
    assert found.p_value(0.35) == pytest.approx(stats.t.cdf(0.35, nights - 1, values.mean(), error))


@pytest.mark.parametrize(("series", "least"), [("speed_up", 0.97), ("baseline_tokens_per_s", 0.95)])
def test_what_is_too_small_to_matter_is_not_out_however_steady(series: str, least: float) -> None:
    found = expectations({series: (2.0 + restless(20, 1e-4)).tolist()})[series]
    assert found.lowest == pytest.approx(2.0 + math.log(least))


def test_of_a_share_three_points_matter() -> None:
    found = expectations({"acceptance_at_1": (0.2 + restless(20, 1e-4)).tolist()})["acceptance_at_1"]
    assert found.lowest == pytest.approx(0.17)


def test_only_the_last_thirty_nights_count_and_fourteen_are_needed() -> None:
    old, new = (5.0 + restless(30, 0.03)).tolist(), (0.4 + restless(30, 0.03)).tolist()
    assert expectations({"speed_up": old + new}) == expectations({"speed_up": new})
    assert expectations({"speed_up": new[:13]}) == {}
    assert expectations({"speed_up": new[:14]}) != {}


def test_a_figure_that_never_changes_is_out_only_where_it_matters() -> None:
    found = expectations({"acceptance_length": [0.5] * 14})["acceptance_length"]
    assert found.lowest == pytest.approx(0.5 + math.log(0.97))
    assert found.p_value(0.4) < 1e-12


def test_rosner_s_own_example_has_three_outliers() -> None:
    assert outliers(ROSNER, 10, 0.05) == {51, 52, 53}


def test_two_outliers_alike_do_not_hide_each_other_and_few_nights_are_left_alone() -> None:
    values = [*restless(22, 0.01), -0.2, -0.2]
    assert outliers(values, 2, 0.01) == {22, 23}
    assert outliers([0.0, 0.1, 9.0], 1, 0.01) == set()
    assert outliers([0.5] * 14, 2, 0.01) == set()


def test_normal_nights_lose_one_in_a_hundred_histories() -> None:
    runs = np.random.default_rng(1).normal(0, 1, (2000, 20)).tolist()
    assert np.mean([len(without_outliers(run)) < 20 for run in runs]) == pytest.approx(0.01, abs=0.007)


@pytest.mark.parametrize("value", [1e-3, 0.15, 1.0, 40.0])
def test_trigamma_is_inverted(value: float) -> None:
    assert float(polygamma(1, trigamma_inverse(value))) == pytest.approx(value)


def drawn(rng: np.random.Generator, variances: Sequence[float], degrees: int) -> list[Variance]:
    scaled = np.asarray(variances) * rng.chisquare(degrees, len(variances)) / degrees
    return [Variance(float(v), degrees) for v in scaled]


def test_variances_that_differ_as_the_model_says_are_moved_as_it_says() -> None:
    """Drawn with 6 degrees around 2: (13 s^2 + 6 * 2) / 19 with 19 degrees (Smyth 2004)."""
    rng = np.random.default_rng(2)
    found = drawn(rng, (6 * 2.0 / rng.chisquare(6, 20_000)).tolist(), 13)
    own, moved = found[0], moderated(found)[0]
    assert moved.degrees == pytest.approx(19, rel=0.03)
    assert moved.value == pytest.approx((13 * own.value + 6 * 2.0) / 19, rel=0.03)


def test_alike_series_share_one_variance_with_no_more_degrees_than_all_have() -> None:
    alike = [Variance(v, 13) for v in (0.9, 1.0, 1.1)]
    found = moderated(alike)
    assert [v.value for v in found] == pytest.approx([found[0].value] * 3)
    assert [v.degrees for v in found] == [39] * 3


def test_series_that_differ_keep_their_own_variance_nearly() -> None:
    """Plain Student t: noise of 1 and of 30 in one kind."""
    found = drawn(np.random.default_rng(3), [1.0] * 5 + [900.0] * 5, 13)
    for own, moved in zip(found, moderated(found), strict=True):
        assert moved.degrees == pytest.approx(13, abs=1)
        assert moved.value == pytest.approx(own.value, rel=0.3)


def test_one_series_or_one_without_noise_tells_nothing_of_others() -> None:
    alone = [Variance(2.0, 13)]
    assert moderated(alone) == alone
    with_constant = moderated([Variance(v, 13) for v in (0.0, 0.9, 1.0, 1.1)])
    assert with_constant[1:] != [Variance(v, 13) for v in (0.9, 1.0, 1.1)]
    assert with_constant[1].value == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.8])
def test_what_few_nights_make_of_a_lasting_level(memory: float) -> None:
    """Against plain matrices."""
    n = 9
    places = np.arange(n + 1)
    covariance = np.where(places[:, None] == places, 1.0, memory ** np.abs(places[:, None] - places))
    among, centred = covariance[:n, :n], np.eye(n) - 1 / n
    residual = centred @ among @ centred
    found = lasting(n, memory)
    assert found.mean == pytest.approx(among.mean())
    assert found.squares == pytest.approx(np.trace(residual))
    assert found.neighbours == pytest.approx(np.diag(residual, 1).sum())
    assert found.next == pytest.approx(covariance[n, :n].mean())


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_the_share_of_the_level_is_found(share: float) -> None:
    sizes = (14, 7)
    expected = [mixed(share, 0.8, n) for n in sizes]
    correlation = sum(e.neighbours for e in expected) / sum(e.squares for e in expected)
    assert share_of_level(correlation, sizes, 0.8) == pytest.approx(share)
    assert share_of_level(-0.9, sizes, 0.8) == 0.0
    assert share_of_level(0.99, sizes, 0.8) == 1.0


def test_nights_that_resemble_their_neighbours_widen_the_interval() -> None:
    values = restless(20, 0.02)
    waves = np.sort(values)  # the same nights in another order
    calm, moody = (spreads({"speed_up": [v.tolist()]}, 0.6)["speed_up"] for v in (values, waves))
    assert calm.share == 0.0
    assert moody.share == 1.0
    assert moody.of_next(20) > 1.1 * calm.of_next(20)
    assert moody.of_mean(20) > 2 * calm.of_mean(20)


def test_discoveries_are_scipy_s() -> None:
    p_values = dict(zip("abcdefgh", [0.001, 0.8, 0.012, 0.2, 0.004, 0.03, 0.5, 1.0], strict=True))
    adjusted = stats.false_discovery_control(list(p_values.values()))
    assert discoveries(p_values, 0.05) == tuple(
        n for n, p in zip(p_values, adjusted, strict=True) if p <= 0.05
    )
    assert discoveries(p_values, 0.05) == ("a", "c", "e")
    assert discoveries({}, 0.05) == ()
