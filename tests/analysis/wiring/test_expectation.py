"""Whether acceptance is low at all."""

import math

import pytest

from analysis.wiring.estimate import Estimate
from analysis.wiring.expectation import (
    MARGIN,
    Expectation,
    Figure,
    Judgement,
    Standing,
    expectation,
    judge,
)
from results.errors import UsageError
from results.records import DraftShape

CHAIN = DraftShape(5, 5, 5)


def test_a_figure_up_to_one_is_an_accuracy_and_a_greater_one_a_length() -> None:
    assert expectation(0.75) == Expectation(Figure.ACCURACY, 0.75)
    assert expectation(1) == Expectation(Figure.ACCURACY, 1)
    assert expectation(3.4) == Expectation(Figure.LENGTH, 3.4)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_what_nobody_can_expect(value: float) -> None:
    with pytest.raises(UsageError, match="no expectation"):
        expectation(value)


def test_a_length_becomes_an_accuracy_at_the_runs_own_k() -> None:
    assert expectation(0.75).accuracy(CHAIN) == 0.75
    assert expectation(3.43).accuracy(CHAIN) == pytest.approx(0.769, abs=1e-3)
    assert expectation(6.2).accuracy(CHAIN) is None
    tree = DraftShape(4, 15, 4, 4)
    assert expectation(5).accuracy(tree) == pytest.approx(1)


@pytest.mark.parametrize(
    ("estimate", "standing"),
    [
        (Estimate(0.76, 0.74, 0.78), Standing.AS_EXPECTED),
        (Estimate(0.90, 0.88, 0.92), Standing.AS_EXPECTED),
        (Estimate(0.50, 0.46, 0.54), Standing.BELOW),
        (Estimate(0.73, 0.725, 0.735), Standing.AS_EXPECTED),  # within what other prompts do
        (Estimate(0.73, 0.65, 0.80), Standing.UNDECIDED),
        (Estimate(0.60, 0.45, 0.74), Standing.UNDECIDED),
    ],
)
def test_only_a_whole_interval_below_is_low(estimate: Estimate, standing: Standing) -> None:
    assert judge(estimate, 0.75).standing is standing


def test_undecided_says_how_many_more_would_decide() -> None:
    """Half a width of 0.2 and a gap of 0.1: four times the rounds halve the interval."""
    least = 0.75 - MARGIN
    assert judge(Estimate(least - 0.1, 0.4, least + 0.1), 0.75).more == pytest.approx(4)
    assert judge(Estimate(least + 0.1, least - 0.1, 0.9), 0.75).more == pytest.approx(4)
    assert judge(Estimate(least, 0.6, 0.8), 0.75) == Judgement(Standing.UNDECIDED, None)
    assert judge(Estimate(least + 0.001, 0.6, 0.8), 0.75).more is None
