"""A reading is named where it is better, hardly ever where it is not, and sequences are the witnesses."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from analysis.wiring.paired import HARMLESS_NATS, NAMED_Z, Comparison, compare

Noise = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


@dataclass(frozen=True)
class Seen:
    nats: float
    rows: int


def of(*per_row: float, rows: int = 100) -> list[Seen]:
    return [Seen(x * rows, rows) for x in per_row]


def test_excess_and_error_are_those_of_the_means_of_sequences() -> None:
    found = compare(of(1.0, 1.0, 1.0, 1.0), of(1.1, 1.2, 1.3, 1.4))
    assert found.excess == pytest.approx(0.25)
    error = math.sqrt(sum((x - 0.25) ** 2 for x in (0.1, 0.2, 0.3, 0.4)) / 3 / 4)
    assert found.half_width == pytest.approx(9.219 * error, rel=1e-3)  # Student's t of 3 degrees where z is 3
    assert (found.sequences, found.same) == (4, False)


def test_a_long_sequence_weighs_by_its_rows() -> None:
    best = [Seen(100.0, 100), Seen(300.0, 300), Seen(100.0, 100)]
    other = [Seen(110.0, 100), Seen(390.0, 300), Seen(110.0, 100)]
    assert compare(best, other).excess == pytest.approx(110 / 500)


def test_many_rows_of_one_sequence_are_no_many_witnesses() -> None:
    few, many = (
        compare(of(1, 1, 1), of(1.1, 1.2, 1.15)),
        compare(of(1, 1, 1, rows=10**6), of(1.1, 1.2, 1.15, rows=10**6)),
    )
    assert few.z == pytest.approx(many.z)


def test_z_of_few_sequences_is_smaller_than_their_t() -> None:
    differences = [0.1, 0.2, 0.3, 0.15]
    t = np.mean(differences) / (np.std(differences, ddof=1) / 2)
    assert 1.5 < compare(of(1, 1, 1, 1), of(*(1 + d for d in differences))).z < t - 1


def test_losses_on_other_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="other rows"):
        compare(of(1.0, rows=10), of(1.0, rows=11))


def test_one_sequence_decides_nothing() -> None:
    found = compare(of(1.0), of(2.0))
    assert math.isnan(found.z) and not found.decided and found.matters
    assert found.more_sequences() is None


def test_equal_losses_are_one_reading_and_no_tie() -> None:
    found = compare(of(1.0, 2.0, 3.0), of(1.000001, 1.999999, 3.0))
    assert found.same and not found.matters and not found.decided


def test_a_small_difference_that_is_sure_is_decided() -> None:
    found = compare(of(*[1.0] * 24), of(*(1.001 + 1e-4 * (n % 3) for n in range(24))))
    assert found.decided and not found.matters


def test_what_can_only_be_a_little_better_does_not_matter() -> None:
    found = compare(of(*[1.0] * 24), of(*(1.0 + 1e-3 * (-1) ** n for n in range(24))))
    assert not found.decided and found.stake < HARMLESS_NATS and not found.matters


def comparison(excess: float, half_width: float, sequences: int = 24) -> Comparison:
    return Comparison(excess, NAMED_Z * excess / half_width, half_width, sequences, same=False)


def test_further_sequences_are_as_many_as_take_z_to_three() -> None:
    assert (
        comparison(excess=0.1, half_width=0.15).more_sequences() == math.ceil(24 * (0.15 / 0.105) ** 2) - 24
    )
    assert comparison(excess=1.0, half_width=1.5).more_sequences() == pytest.approx(
        24 * 1.25, abs=1
    )  # z 2: N (3/2)^2


def test_two_that_are_equal_need_as_many_as_make_it_harmless() -> None:
    assert comparison(excess=0.0, half_width=2 * HARMLESS_NATS).more_sequences() == 3 * 24


NOISES: dict[str, Noise] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "heavy tails": lambda rng, shape: rng.standard_t(3, shape),
    "skewed": lambda rng, shape: rng.exponential(1.0, shape),
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("others", "sequences"), [(1, 8), (1, 24), (4, 24)])
def test_a_wrong_reading_as_good_as_the_right_one_is_hardly_ever_named(
    noise: str, others: int, sequences: int
) -> None:
    """One that is better by luck must beat the right one by z >= 3: at most 1 in 370."""
    rng, worlds = np.random.default_rng(1), 1500
    wrong = sum(_named(NOISES[noise](rng, (others + 1, sequences))) not in (None, 0) for _ in range(worlds))
    assert wrong / worlds <= 0.0027 + 3 * math.sqrt(0.0027 / worlds)


def test_the_right_reading_is_named_when_it_is_better_by_enough() -> None:
    rng, gap = (
        np.random.default_rng(1),
        np.array([[0.0], [5.5 / math.sqrt(12)]]),
    )  # 5.5 errors of their difference
    named = [_named(rng.standard_normal((2, 24)) + gap) for _ in range(300)]
    assert named.count(0) > 270 and named.count(1) == 0


def _named(losses: np.ndarray) -> int | None:
    """The row that beats all others; 0 is the right one."""
    best = int(losses.mean(1).argmin())
    beaten = [compare(of(*losses[best]), of(*row)).decided for n, row in enumerate(losses) if n != best]
    return best if all(beaten) else None
