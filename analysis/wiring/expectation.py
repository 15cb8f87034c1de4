"""Whether acceptance is below what was expected of it at all, both told as conditional accuracy."""

import math
from dataclasses import dataclass
from enum import StrEnum

from analysis.wiring.definitions import accuracy_of_length
from analysis.wiring.estimate import Estimate
from results.errors import UsageError
from results.records import DraftShape

# Another set of prompts alone moves the accuracy by as much.
MARGIN = 0.03
FAR = 100  # times the rounds that were seen: more are no answer to how many would decide


class Figure(StrEnum):
    ACCURACY = "conditional accuracy"
    LENGTH = "accept length"  # with the bonus token


@dataclass(frozen=True, slots=True)
class Expectation:
    """What somebody expects of the drafter."""

    figure: Figure
    value: float

    def accuracy(self, shape: DraftShape) -> float | None:
        """As conditional accuracy in a run of this shape; None for a length that it cannot have."""
        if self.figure is Figure.ACCURACY:
            return self.value
        if self.value > shape.depth + 1:
            return None
        return accuracy_of_length(self.value, shape.depth)


def expectation(value: float) -> Expectation:
    """A figure up to 1 is a conditional accuracy, one above 1 an accept length. Raises UsageError."""
    if not math.isfinite(value) or value <= 0:
        raise UsageError(
            f"{value:g} is no expectation: give a conditional accuracy such as 0.75, or a length such as 3.2"
        )
    return Expectation(Figure.ACCURACY if value <= 1 else Figure.LENGTH, value)


class Standing(StrEnum):
    AS_EXPECTED = "as expected"
    BELOW = "below"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Judgement:
    standing: Standing
    more: float | None = None  # if undecided: how many times the rounds would decide; None = at the edge


def judge(accuracy: Estimate, expected: float) -> Judgement:
    """BELOW only if the whole interval is more than the margin below what was expected."""
    least = expected - MARGIN
    if accuracy.low >= least:
        return Judgement(Standing.AS_EXPECTED)
    if accuracy.high < least:
        return Judgement(Standing.BELOW)
    gap = accuracy.value - least
    half = accuracy.value - accuracy.low if gap > 0 else accuracy.high - accuracy.value
    times = (half / gap) ** 2 if gap else math.inf
    return Judgement(Standing.UNDECIDED, times if times <= FAR else None)
