"""The probability of each version to be the first bad one, and which one to measure next."""

import math

import pytest

from analysis.nightly.first_bad import AT_LEAST, likeliest, next_probe, plausible, shares

LOSS = math.log(0.92)
BAD = [LOSS - 0.01, LOSS, LOSS + 0.01, LOSS]
GOOD = [0.01, -0.01]


def test_with_nothing_measured_between_the_ends_all_are_as_likely() -> None:
    found = shares([[], [], [], [], BAD])
    assert found[0] == 0.0
    assert found[1:] == pytest.approx([0.25] * 4)
    assert next_probe([[], [], [], [], BAD]) == 2


def test_a_bad_one_speaks_of_all_behind_it_and_a_good_one_of_all_before_it() -> None:
    bad = shares([[], [], [LOSS, LOSS + 0.01], [], BAD])
    assert bad[1] == pytest.approx(bad[2]) and bad[1] > 0.49
    good = shares([[], [], GOOD, [], BAD])
    assert good[3] == pytest.approx(good[4]) and good[3] > 0.49
    assert next_probe([[], [], [LOSS, LOSS + 0.01], [], BAD]) == 1
    assert next_probe([[], [], GOOD, [], BAD]) == 3


def test_the_answer_needs_both_of_its_neighbours_measured_twice() -> None:
    """One Block may be an outlier, however sure it looks."""
    assert AT_LEAST == 2
    once = [[], GOOD[:1], [LOSS], BAD]
    assert shares(once)[2] > 0.97
    assert next_probe(once) == 2
    assert next_probe([[], GOOD[:1], [LOSS, LOSS], BAD]) == 1
    assert next_probe([[], GOOD, [LOSS, LOSS], BAD]) is None


def test_two_versions_need_no_probe() -> None:
    assert shares([[], BAD]) == [0.0, 1.0]
    assert next_probe([[], BAD]) is None


def test_wide_noise_leaves_it_open() -> None:
    wide = [LOSS - 0.08, LOSS + 0.08, LOSS - 0.08, LOSS + 0.08]
    groups = [[], [LOSS / 2], wide]
    found = shares(groups)
    assert 0.2 < found[1] < 0.8
    assert next_probe(groups) == 1
    assert plausible(found) == (1, 2)


def test_figures_without_any_noise_are_no_crash() -> None:
    groups = [[], [0.0, 0.0], [-1.0, -1.0], [-1.0, -1.0]]
    assert likeliest(shares(groups)) == 2
    assert next_probe(groups) is None


def test_half_of_the_loss_is_no_evidence_either_way() -> None:
    assert shares([[], [LOSS / 2, LOSS / 2], BAD])[1] == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize(("found", "answer"), [([0, 0.5, 0.48, 0.02], (1, 2)), ([0, 0.01, 0.99], (2, 2))])
def test_the_smallest_range_that_holds_it(found: list[float], answer: tuple[int, int]) -> None:
    assert plausible(found) == answer
