"""All sequences, one after the other; what lags clearly is given up, what must be compared is not."""

from dataclasses import replace

import pytest

from analysis.wiring.race import race
from analysis.wiring.replay import Text
from results.hidden_states import HiddenStates
from results.wiring import Reading
from tests.analysis.wiring import other_pair

RIGHT = other_pair.RIGHT
FAR = replace(RIGHT, boundaries=(4, 0))
REVERSED = replace(RIGHT, boundaries=(3, 1))
UNREADABLE = replace(RIGHT, uses_fc=False)


@pytest.fixture(scope="module")
def sequences() -> list[HiddenStates]:
    return other_pair.text(10, rows=12)


def raced(
    sequences: list[HiddenStates], *readings: Reading, kept: tuple[Reading, ...] = ()
) -> dict[str, int]:
    made = other_pair.pair()
    found = race(readings, kept, (Text(made, sequence) for sequence in sequences), 1)
    return {repr(reading): len(losses) for reading, losses in found}


def test_a_reading_far_behind_is_given_up_at_a_look_and_one_to_be_kept_is_not(
    sequences: list[HiddenStates],
) -> None:
    found = raced(sequences, RIGHT, FAR, REVERSED, UNREADABLE, kept=(REVERSED,))
    assert found == {repr(RIGHT): 10, repr(REVERSED): 10, repr(FAR): 8}


def test_before_the_first_look_all_stay(sequences: list[HiddenStates]) -> None:
    assert raced(sequences[:7], RIGHT, FAR) == {repr(RIGHT): 7, repr(FAR): 7}
