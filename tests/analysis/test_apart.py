"""Which places differ: against scipy where scipy has the test, and by simulation where it has not."""

import math
import random
from collections.abc import Sequence

import pytest

from analysis.anchor import Place
from analysis.apart import ALPHA, Gap, Value, at_least_by_node, gaps


def values(places: Sequence[Sequence[float]], kind: str = "") -> list[Value]:
    return [Value((str(i), ()), log, kind) for i, logs in enumerate(places) for log in logs]


def drawn(
    chance: random.Random, counts: Sequence[int], levels: Sequence[float], sd: float = 0.01
) -> list[Value]:
    return values(
        [[level + chance.gauss(0, sd) for _ in range(n)] for n, level in zip(counts, levels, strict=True)]
    )


def odd(found: Sequence[Gap]) -> set[Place]:
    return {g.place for g in found if g.differs}


def test_two_alike_places_are_compared_by_student_t() -> None:
    """Equal spreads: the interval is scipy's, a little wider for few launches (see moderation)."""
    from scipy.stats import ttest_ind

    for repeats, wider in ((1, 1.25), (10, 1.02)):
        a, b = [0.1, 0.12, 0.11, 0.13] * repeats, [0.02, 0.04, 0.03, 0.05] * repeats
        expected = ttest_ind(a, b).confidence_interval(1 - ALPHA)
        (found,) = (g for g in gaps(values([a, b]), 0.02) if g.differs)
        assert found.place[0] == "1" and found.log_ratio == pytest.approx(-0.08)
        assert 1 <= (found.high - found.low) / (expected.high - expected.low) < wider


def test_the_lower_of_two_is_named_and_the_other_is_the_reference() -> None:
    found = gaps(values([[0.0, 0.001, 0.002], [-0.1, -0.101, -0.102]]), 0.02)
    assert odd(found) == {("1", ())}


def test_a_difference_that_nobody_cares_for_is_none() -> None:
    exact = values([[0.0, 0.0001, 0.0002], [-0.01, -0.0101, -0.0102]])
    assert odd(gaps(exact, 0.02)) == set()
    assert odd(gaps(exact, 0.005)) == {("1", ())}


def test_figures_that_never_change_differ_where_they_do() -> None:
    assert odd(gaps(values([[0.0, 0.0], [0.0, 0.0], [-0.08, -0.08]]), 0.02)) == {("2", ())}
    assert odd(gaps(values([[0.0, 0.0], [0.0, 0.0]]), 0.02)) == set()


def test_one_launch_on_each_tells_no_noise() -> None:
    assert gaps(values([[0.0], [-0.1], [0.0]]), 0.02) == []
    assert gaps(values([[0.0, 0.1]]), 0.02) == []


def test_a_place_with_one_launch_is_compared_by_the_noise_of_the_others() -> None:
    found = gaps(values([[0.0, 0.01, -0.01, 0.0], [0.005, -0.005, 0.0, 0.0], [-0.2]]), 0.02)
    assert odd(found) == {("2", ())}


def test_other_prompts_are_no_difference_between_places() -> None:
    """The second kind is 0.5 higher everywhere, and one place has more of it."""
    chance = random.Random(1)
    found = [
        *drawn(chance, (4, 1), (0.0, 0.0)),
        *(Value(v.place, v.log + 0.5, "other") for v in drawn(chance, (1, 4), (0.0, 0.0))),
    ]
    assert odd(gaps(found, 0.02)) == set()


def test_places_without_a_kind_in_common_are_not_compared() -> None:
    apart = [
        *values([[0.0, 0.01, 0.02]], "a"),
        *(Value(("b", ()), v.log, "b") for v in values([[0.5, 0.51]])),
    ]
    assert gaps(apart, 0.02) == []


def test_an_odd_place_does_not_make_the_others_look_odd() -> None:
    chance = random.Random(2)
    found = gaps(drawn(chance, (4, 4, 4), (0.0, 0.0, -0.3), 0.005), 0.02)
    assert odd(found) == {("2", ())}
    by_place = {g.place[0]: g for g in found}
    assert by_place["2"].log_ratio == pytest.approx(-0.3, abs=0.02)
    assert (
        abs(by_place["0"].log_ratio) < 0.02
    )  # against the other good one, not against a mean with the odd one


def test_many_places_are_told_by_node() -> None:
    crowded = [Value((node, (str(i),)), 0.0) for node in "ab" for i in range(3)]
    assert {v.place for v in at_least_by_node(crowded)} == {("a", ()), ("b", ())}
    assert at_least_by_node([*crowded, *crowded]) == [*crowded, *crowded]


@pytest.mark.parametrize(("counts", "most"), [((4, 4), 0.08), ((3, 3, 3), 0.08), ((2,) * 6, 0.11)])
def test_false_alarms_are_rare_even_without_a_margin(counts: tuple[int, ...], most: float) -> None:
    chance, level = random.Random(3), [0.0] * len(counts)
    alarms = sum(bool(odd(gaps(drawn(chance, counts, level), 0.0))) for _ in range(300))
    assert 0 < alarms <= most * 300


def test_a_slow_node_is_seen() -> None:
    chance, slow = random.Random(4), math.log(0.92)
    found = [odd(gaps(drawn(chance, (3, 3, 3), (0.0, 0.0, slow)), 0.02)) for _ in range(200)]
    assert sum(hit == {("2", ())} for hit in found) >= 0.95 * 200
