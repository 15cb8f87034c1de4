import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from analysis.statistics import (
    LOOKS,
    geometric_mean,
    look_alpha,
    quantiles,
    ratio,
    smallest_effect,
    t_interval,
    t_quantile,
)


@pytest.mark.parametrize("degrees", [1, 3, 7, 11, 19, 100])
@pytest.mark.parametrize("alpha", [0.1, 0.05, 0.0125, 0.05 / 12])
def test_t_quantile_agrees_with_scipy_and_knows_the_tables(degrees: int, alpha: float) -> None:
    assert t_quantile(degrees, 1 - alpha / 2) == pytest.approx(stats.t.ppf(1 - alpha / 2, degrees))


def test_t_quantile_of_a_printed_table() -> None:
    table = {(1, 0.975): 12.706, (3, 0.975): 3.182, (10, 0.95): 1.812, (19, 0.995): 2.861}
    for (degrees, probability), expected in table.items():
        assert t_quantile(degrees, probability) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("n", [2, 4, 8, 20])
def test_interval_is_scipy_s(n: int) -> None:
    values = np.random.default_rng(n).normal(0.03, 0.02, n)
    mean, low, high = t_interval(list(values), 0.05)
    expected = stats.t.interval(0.95, n - 1, values.mean(), stats.sem(values))
    assert (mean, low, high) == pytest.approx((values.mean(), *expected))


def test_equal_values_give_an_interval_without_width() -> None:
    assert t_interval([0.1, 0.1, 0.1], 0.05) == pytest.approx((0.1, 0.1, 0.1))


@pytest.mark.parametrize("values", [[], [0.1], [0.1, math.nan], [0.1, math.inf]])
def test_no_interval_of_nothing(values: list[float]) -> None:
    with pytest.raises(ValueError):
        t_interval(values, 0.05)


def test_alpha_is_split_over_looks_and_finalists() -> None:
    assert look_alpha(0.05, len(LOOKS), 3) == pytest.approx(0.05 / 12)
    assert look_alpha(0.05, 1, 1) == 0.05


@pytest.mark.parametrize("blocks", [4, 8, 20])
def test_smallest_effect_is_found_with_the_power_promised(blocks: int) -> None:
    alpha = look_alpha(0.05, 4, 1)
    effect = smallest_effect(0.02, blocks, alpha)
    runs = np.random.default_rng(7).normal(effect, 0.02, (20_000, blocks))
    half = stats.t.ppf(1 - alpha / 2, blocks - 1) * runs.std(axis=1, ddof=1) / math.sqrt(blocks)
    assert (runs.mean(axis=1) - half > 0).mean() == pytest.approx(0.8, abs=0.012)


def test_more_blocks_see_less_and_one_block_sees_nothing() -> None:
    assert smallest_effect(0.02, 20, 0.0125) < smallest_effect(0.02, 8, 0.0125)
    assert smallest_effect(0.04, 8, 0.0125) == pytest.approx(2 * smallest_effect(0.02, 8, 0.0125))
    with pytest.raises(ValueError):
        smallest_effect(0.02, 1, 0.0125)


def test_quantiles_are_numpy_s_and_skip_what_is_not_finite() -> None:
    values = list(np.random.default_rng(3).exponential(1.0, 57))
    found = quantiles([*values, math.nan, math.inf])
    assert found is not None
    assert (found.p50, found.p95, found.p99) == pytest.approx(tuple(np.quantile(values, [0.5, 0.95, 0.99])))
    assert quantiles([]) is None
    assert quantiles([math.nan]) is None


def test_geometric_mean() -> None:
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert geometric_mean([]) is None
    assert geometric_mean([1.0, 0.0]) is None
    assert geometric_mean([1.0, math.inf]) is None


def test_ratio_never_gives_nan_or_infinity() -> None:
    assert ratio(1.0, 4.0) == 0.25
    for part, whole in [(1, 0), (0, 0), (math.nan, 1), (1, math.inf), (1e308, 1e-308)]:
        assert ratio(part, whole) is None


def test_importing_the_analysis_does_not_import_scipy() -> None:
    code = "import sys, analysis.verdict, analysis.block, analysis.parity; print('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
