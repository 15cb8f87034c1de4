"""The search finds the best reading of a made-up score, whatever it starts from, without trying them all."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from analysis.wiring.candidates import Ranking, neighbours
from results.wiring import Reading

RIGHT = Reading((3, 31, 59), rope_theta=5e5, norm_before_residual=True)
THETAS = (1e4, 5e5, 1e6)


def vary(reading: Reading) -> list[Reading]:
    made = [replace(reading, rope_theta=theta) for theta in THETAS]
    made.append(replace(reading, norm_before_residual=not reading.norm_before_residual))
    made.append(replace(reading, norm_output=not reading.norm_output))
    return [r for r in made if r != reading]


class Scored:
    """Far layers cost more; a wrong rotation costs, and blurs the difference that layers make."""

    def __init__(self) -> None:
        self.tried = 0

    def __call__(self, readings: Sequence[Reading], steps: int) -> list[float]:
        self.tried += len(readings)
        return [self.score(reading, steps) for reading in readings]

    def score(self, reading: Reading, steps: int) -> float:
        if len(reading.boundaries) != 3:
            return math.inf
        layers = sum(abs(b - r) for b, r in zip(reading.boundaries, RIGHT.boundaries, strict=True)) / 20
        rotation = abs(math.log10(reading.rope_theta / RIGHT.rope_theta))
        norm = reading.norm_before_residual != RIGHT.norm_before_residual
        fed_back = 0.3 * (reading.norm_output and steps > 1)
        return (layers + 0.2) * (0.5 if rotation else 1) + rotation + 0.3 * norm + fed_back


FEW = (0, 2, 3, 4, 30, 31, 32, 58, 59, 60)
ALL = tuple(range(0, 62))


@pytest.mark.parametrize("captured", [FEW, ALL])
@pytest.mark.parametrize("start", [(3, 31, 59), (2, 30, 58), (0, 2, 4), (59, 31, 3)])
@pytest.mark.parametrize("theta", THETAS)
def test_finds_layers_and_the_rest_together(
    captured: tuple[int, ...], start: tuple[int, ...], theta: float
) -> None:
    scored = Scored()
    served = Reading(start, rope_theta=theta, norm_output=True)
    assert Ranking(scored, vary, captured).search([served]) == RIGHT
    assert scored.tried < (5_000 if captured is ALL else 2_000)


def test_a_server_that_reads_as_trained_is_found_to() -> None:
    assert Ranking(Scored(), vary, FEW).search([RIGHT]) == RIGHT


def test_nothing_is_scored_twice() -> None:
    seen: list[tuple[str, int]] = []
    scored = Scored()

    def score(readings: Sequence[Reading], steps: int) -> Sequence[float]:
        seen.extend((repr(reading), steps) for reading in readings)
        return scored(readings, steps)

    ranking = Ranking(score, vary, FEW)
    ranking.search([Reading((0, 2, 4))])
    assert len(seen) == len(set(seen))
    best = ranking.top(3)
    assert best[0] == RIGHT and len(best) == 3
    assert ranking.of(best, 1) == sorted(ranking.of(best, 1))


def test_what_cannot_be_read_is_never_best() -> None:
    unfused = Reading((61,), uses_fc=False)
    ranking = Ranking(Scored(), lambda r: [replace(RIGHT, uses_fc=True)] if not r.uses_fc else vary(r), FEW)
    assert ranking.search([unfused]) == RIGHT
    assert all(len(reading.boundaries) == 3 for reading in ranking.top(100))


def test_neighbours_change_one_slot_or_exchange_two_and_repeat_none() -> None:
    found = [r.boundaries for r in neighbours(Reading((1, 2)), (0, 1, 2, 3))]
    assert found == [(0, 2), (3, 2), (1, 0), (1, 3), (2, 1)]
