"""Texts that distort acceptance."""

import random

import pytest

from analysis.wiring.text_statistics import text_statistics

PROSE = (
    "The residual stream of a decoder is the sum of what its layers have written so far. A drafter that "
    "reads it at a few places can guess the next token well, because most of what the target knows "
    "about the next token is there long before the last layer. If the places are wrong, the guess is "
    "worse, and the more so the further they are from those that the drafter was trained on. The server "
    "does not notice: it verifies every guess, so its text stays right and only its speed falls."
)
CODE = """
def mean(values: list[float]) -> float:
    if not values:
        raise ValueError("no values")
    return sum(values) / len(values)


def variance(values: list[float]) -> float:
    middle = mean(values)
    return sum((value - middle) ** 2 for value in values) / (len(values) - 1)
"""
LOOP = "The answer is. " * 30
NAN = " the" + "!" * 120


@pytest.mark.parametrize("text", [PROSE, CODE, "Paris.", "42"])
def test_ordinary_texts(text: str) -> None:
    found = text_statistics([text])
    assert (found.looping, found.random) == ((), ())


@pytest.mark.parametrize("text", [LOOP, NAN, PROSE[:100] + " and so on" * 60])
def test_loops(text: str) -> None:
    assert text_statistics([PROSE, text]).looping == (1,)


def test_random_text() -> None:
    """Random tokens of a vocabulary: words never said twice, scripts mixed, characters of no text."""
    draw = random.Random(2)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 9))) for _ in range(150)]
    mixed = "".join(draw.choice("абвгдежзアイウエオ漢字語文αβγδεζ") for _ in range(200))
    broken = "".join(draw.choice("ab\ufffd") for _ in range(200))
    found = text_statistics([" ".join(words), mixed, broken, PROSE])
    assert found.random == (0, 1, 2)
    assert found.distorting == (0, 1, 2)
    assert found.share == 0.75


def test_figures_are_medians_of_the_texts_that_are_long_enough() -> None:
    found = text_statistics([PROSE, LOOP, "short"])
    assert found.texts == 3
    assert found.distinct_words is not None and 0.4 < found.distinct_words < 0.6  # of 1 and almost 0
    assert text_statistics([]).share == 0
    assert text_statistics(["short"]).distinct_words is None
