"""What the form of the counts hints at."""

import random
from collections.abc import Sequence

import pytest

from analysis.wiring.estimate import by_position
from analysis.wiring.expectation import Standing, judge
from analysis.wiring.replies import Reply
from analysis.wiring.shapes import HINTS, Shape, shapes
from results.records import SpecCounters

ROUNDS = 4000


def counted(*conditional: float) -> SpecCounters:
    positions, left = [], float(ROUNDS)
    for accuracy in conditional:
        left *= accuracy
        positions.append(round(left))
    return SpecCounters(ROUNDS, ROUNDS * len(conditional), sum(positions), tuple(positions))


def of_curve(curve: Sequence[float], expected: float | None) -> tuple[Shape, ...]:
    counters = counted(*curve)
    positions = by_position(counters, ())
    is_below = expected is not None and positions[0] is not None
    is_below = is_below and judge(positions[0], expected or 0).standing is Standing.BELOW  # type: ignore[arg-type]
    return shapes(counters, positions, (), expected=expected, is_below=is_below, depth=len(curve))


@pytest.mark.parametrize(
    ("curve", "expected", "found"),
    [
        ((0.77, 0.85, 0.83, 0.75), 0.77, ()),  # healthy: a curve that rises and falls is no sign
        ((0.751, 0.755, 0.799), None, ()),
        ((0.55, 0.66, 0.49), None, ()),  # the tiny pair
        ((0.0, 0.0, 0.0), 0.75, (Shape.EXACTLY_ONE,)),
        ((0.036, 0.017, 0.0), None, (Shape.COLLAPSE,)),  # default layers used
        ((0.14, 0.36, 0.62, 0.80), 0.77, (Shape.COLLAPSE,)),  # algorithm EAGLE
        ((0.10, 0.15, 0.0, 0.0), None, (Shape.COLLAPSE,)),  # random embedding
        ((0.23, 0.30, 0.29), 0.70, (Shape.COLLAPSE,)),  # head overwritten
        ((0.72, 0.30, 0.25), 0.75, (Shape.LATER_LOW,)),
        ((0.72, 0.30, 0.25), None, (Shape.LATER_LOW,)),
        ((0.49, 0.55, 0.5, 0.5), 0.75, (Shape.ALL_LOWER,)),
        ((0.49, 0.55, 0.5, 0.5), None, ()),  # low against what?
    ],
)
def test_curves(curve: Sequence[float], expected: float | None, found: tuple[Shape, ...]) -> None:
    assert of_curve(curve, expected) == found


def test_every_shape_has_a_hint() -> None:
    assert set(HINTS) == set(Shape)
    assert all("," in hint for hint in HINTS.values()), "a group of causes, never one"


def by_rounds(accepted: Sequence[Sequence[int]], k: int = 4) -> tuple[Shape, ...]:
    """Shapes of replies that tell their rounds."""
    replies = [Reply(accepted_by_round=rounds) for rounds in accepted]
    total = sum(sum(rounds) for rounds in accepted)
    rounds = sum(len(r) for r in accepted)
    return shapes(
        SpecCounters(rounds, rounds * k, total), (), replies, expected=None, is_below=False, depth=k
    )


def drawn(draw: random.Random, length: int, *means: int) -> list[int]:
    return [max(0, min(4, mean + draw.choice((-1, 0, 1)))) for mean in means for _ in range(length)]


def test_the_first_round_alone_and_a_fall_along_the_reply() -> None:
    draw = random.Random(3)
    even = [drawn(draw, 20, 2, 2) for _ in range(12)]
    assert by_rounds(even) == ()
    assert by_rounds([[0, *rounds] for rounds in even]) == (Shape.FIRST_ROUND,)
    assert by_rounds([drawn(draw, 20, 3, 1) for _ in range(12)]) == (Shape.FALLS_WITH_POSITION,)
    assert by_rounds([[0, *rounds] for rounds in even[:5]]) == (), "five replies are too few"


def test_long_prompts() -> None:
    def replies(short: int, long: int, long_tokens: int) -> list[Reply]:
        draw = random.Random(5)
        sides = [(100, short), (long_tokens, long)]
        return [
            Reply(counters=SpecCounters(50, 150, n + draw.randint(-5, 5)), prompt_tokens=tokens + i)
            for tokens, n in sides
            for i in range(10)
        ]

    def found(some: list[Reply]) -> tuple[Shape, ...]:
        whole = SpecCounters(1000, 3000, 1500)
        return shapes(whole, (), some, expected=None, is_below=False, depth=3)

    assert found(replies(100, 40, 3000)) == (Shape.BY_PROMPT_LENGTH,)
    assert found(replies(40, 100, 3000)) == ()
    assert found(replies(100, 40, 110)) == (), "prompts of one length say nothing about length"
    assert found(replies(100, 100, 3000)) == ()
