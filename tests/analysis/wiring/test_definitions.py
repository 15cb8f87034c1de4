"""The arithmetic of acceptance: one run told as rate, length and conditional accuracy."""

from itertools import accumulate
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.wiring.definitions import (
    accepted_per_round,
    accuracy_of_length,
    accuracy_of_rate,
    conditional_accuracies,
    counted_shape,
    full_accuracies,
    highest_rate,
    length_of,
    old_sglang_rate,
    rate_of,
    table,
)
from results.records import DraftShape, SpecCounters

CHAIN = DraftShape(depth=3, draft_tokens=3, passes=3)
TREE = DraftShape(depth=4, draft_tokens=15, passes=4, topk=4)

accuracies = st.floats(0, 1)
depths = st.integers(1, 16)


@pytest.mark.parametrize(
    ("k", "of_769", "of_341", "from_19", "from_30", "from_47"),
    [
        (3, 0.605, 0.166, 0.376, 0.510, 0.668),
        (4, 0.541, 0.128, 0.442, 0.574, 0.720),
        (5, 0.487, 0.103, 0.495, 0.624, 0.759),
        (6, 0.440, 0.086, 0.539, 0.663, 0.788),
    ],
)
def test_the_known_table(
    k: int, of_769: float, of_341: float, from_19: float, from_30: float, from_47: float
) -> None:
    assert (round(rate_of(0.769, k), 3), round(rate_of(0.341, k), 3)) == (of_769, of_341)
    found = [accuracy_of_rate(rate, k) for rate in (0.19, 0.30, 0.47)]
    assert found == pytest.approx([from_19, from_30, from_47], abs=1.2e-3)  # printed a last digit too high


@given(accuracies, depths)
def test_rate_and_length_give_the_accuracy_back(accuracy: float, k: int) -> None:
    """Near 0 only as well as a number near 0 can be told: the rate is flat in nothing there."""
    assert accuracy_of_rate(rate_of(accuracy, k), k) == pytest.approx(accuracy, abs=1e-9)
    for with_bonus in (True, False):
        length = length_of(accuracy, k, with_bonus=with_bonus)
        assert accuracy_of_length(length, k, with_bonus=with_bonus) == pytest.approx(accuracy, abs=1e-9)


@given(accuracies, accuracies, depths)
def test_a_better_head_has_a_higher_rate_and_length(a: float, b: float, k: int) -> None:
    low, high = sorted((a, b))
    assert rate_of(low, k) <= rate_of(high, k)
    assert 1 <= length_of(low, k) <= length_of(high, k) <= k + 1


@given(accuracies, depths)
def test_the_bonus_token_is_exactly_one_and_a_rate_is_below_its_accuracy(accuracy: float, k: int) -> None:
    assert length_of(accuracy, k) - length_of(accuracy, k, with_bonus=False) == pytest.approx(1)
    assert rate_of(accuracy, k) <= accuracy
    assert rate_of(accuracy, k + 1) <= rate_of(accuracy, k)  # one step more, and the same head looks worse


def test_ends_of_the_scale() -> None:
    assert [accuracy_of_rate(rate, 5) for rate in (0, 1)] == pytest.approx([0, 1])
    assert accepted_per_round(1, 5) == 5
    with pytest.raises(ValueError, match="between 0 and 1"):
        accuracy_of_rate(1.2, 5)
    with pytest.raises(ValueError, match=r"between 1 and 6, not 6\.5"):
        accuracy_of_length(6.5, 5)
    with pytest.raises(ValueError, match="between 0 and 5, not 6"):
        accuracy_of_length(6, 5, with_bonus=False)


def test_full_and_conditional_accuracies_are_two_tellings_of_one_curve() -> None:
    """The counts that both engines gave of the tiny pair at k = 3."""
    conditional = conditional_accuracies(733, (403, 267, 132))
    full = full_accuracies(733, (403, 267, 132))
    assert [round(a or 0, 3) for a in conditional] == [0.550, 0.663, 0.494]
    assert [round(share, 3) for share in full] == [0.550, 0.364, 0.180]
    assert list(accumulate((a or 0 for a in conditional), mul)) == pytest.approx(full)
    assert 1 + sum(full) == pytest.approx(2.094, abs=5e-4)


def test_no_draft_got_so_far() -> None:
    assert conditional_accuracies(50, (10, 0, 0)) == (0.2, 0.0, None)


def test_one_run_has_two_rates_in_two_versions_of_sglang() -> None:
    assert round(old_sglang_rate(2.17, 3), 2) == 0.54
    assert round((2.17 - 1) / 3, 2) == 0.39


def test_the_rate_of_a_tree_has_a_ceiling_that_a_chain_has_not() -> None:
    assert [highest_rate(shape) for shape in (TREE, CHAIN)] == pytest.approx([4 / 15, 1])


def test_a_table_for_the_runs_own_shape() -> None:
    (chain,) = table(DraftShape(5, 5, 5), [0.769])
    assert (round(chain.rate, 3), round(chain.length, 2)) == (0.487, 3.43)
    assert chain.old_rate == pytest.approx(chain.length / 6)
    (tree,) = table(TREE, [1.0])
    assert [tree.length, tree.rate] == pytest.approx([5, 4 / 15])


@pytest.mark.parametrize(
    ("counters", "shape"),
    [
        (SpecCounters(733, 2199, 802, (403, 267, 132)), (3, 3, 1)),
        (SpecCounters(22, 66, 42), (3, 3, 1)),
        (SpecCounters(565, 565 * 11, 976, (500, 300, 176)), (3, 11, 2)),
    ],
)
def test_the_counts_tell_the_shape(counters: SpecCounters, shape: tuple[int, int, int]) -> None:
    found = counted_shape(counters)
    assert found is not None
    assert (found.depth, found.draft_tokens, found.topk) == shape


def test_no_counts_no_shape() -> None:
    assert counted_shape(SpecCounters(0, 0, 0)) is None
    assert counted_shape(SpecCounters(100, 0, 0)) is None
