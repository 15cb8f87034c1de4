"""What a server would accept, predicted: on the committed pair the very counts of SGLang and vLLM."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from analysis.wiring.chain import Prediction, predict
from results.hidden_states import HiddenStates
from results.wiring import D2t, Reading, Source
from tests.analysis.wiring import pair

PROMPTS, TOKENS = 24, 64


@pytest.fixture(scope="module")
def answers() -> list[HiddenStates]:
    """With the tokens after the answer's end, which judge the last round as a server does."""
    return pair.answered(PROMPTS, TOKENS + 5)


def summed(answers: Sequence[HiddenStates], reading: Reading, drafts: int) -> Prediction:
    found = Prediction(drafts, ())
    for answer in answers:
        found += predict(pair.pair(), reading, answer, drafts, TOKENS)
    return found


@pytest.mark.parametrize(
    ("boundaries", "drafts", "rounds", "accepted"),
    [
        ((2, 4, 5), 3, 528, (421, 338, 261)),
        ((2, 4, 5), 5, 441, (347, 280, 214, 155, 132)),
        ((3, 5, 6), 3, 595, (416, 300, 218)),
    ],
)
def test_counts_are_those_that_engines_were_seen_to_give(
    answers: list[HiddenStates],
    boundaries: tuple[int, ...],
    drafts: int,
    rounds: int,
    accepted: tuple[int, ...],
) -> None:
    found = summed(answers, replace(pair.RIGHT, boundaries=boundaries), drafts)
    assert (len(found.counts), found.by_position) == (rounds, accepted)
    assert found.accept_length == pytest.approx(1 + sum(accepted) / rounds)
    assert found.cut_short == 0


@pytest.mark.parametrize("changed", [{"d2t": D2t.ABSENT}, {"lm_head": Source.RANDOM}, {"d2t": D2t.IDS}])
def test_a_wrong_map_or_a_random_head_is_accepted_nothing(
    answers: list[HiddenStates], changed: dict[str, Any]
) -> None:
    length = summed(answers[:4], replace(pair.RIGHT, **changed), 3).accept_length
    assert length is not None and length < 1.1


@pytest.mark.parametrize(
    "changed",
    [
        {"adds_residual": False},
        {"token_shift": 0},
        {"hidden_lag": 1},
        {"embedding": Source.RANDOM},
        {"rope_theta": 1e2},
    ],
)
def test_other_faults_cost_acceptance(answers: list[HiddenStates], changed: dict[str, Any]) -> None:
    right, wrong = (
        summed(answers[:8], reading, 3).accept_length
        for reading in (pair.RIGHT, replace(pair.RIGHT, **changed))
    )
    assert right is not None and wrong is not None and wrong < right - 0.2


def test_where_the_text_ends_a_round_is_counted_as_far_as_it_is_known(answers: list[HiddenStates]) -> None:
    """All rounds but the last are those that the longer text gives; the last is cut short, or whole."""
    cut = 0
    for answer in answers:
        known = answer.prompt_tokens + TOKENS
        states = {b: s[: known - 1] for b, s in answer.states.items()}
        short = predict(
            pair.pair(), pair.RIGHT, HiddenStates(answer.token_ids[:known], answer.prompt_tokens, states), 3
        )
        whole = predict(pair.pair(), pair.RIGHT, answer, 3, TOKENS)
        assert short.counts[:-1] == whole.counts[:-1]
        assert short.counts[-1] <= whole.counts[-1]
        assert short.cut_short or short.counts[-1] == whole.counts[-1]
        cut += short.cut_short
    assert 0 < cut < PROMPTS


def test_an_answer_of_one_token_has_no_round() -> None:
    ids = torch.tensor([0, 5, 6])
    states = {b: torch.zeros(2, 128) for b in range(10)}
    found = predict(pair.pair(), pair.RIGHT, HiddenStates(ids, 2, states), 3)
    assert found.counts == () and found.accept_length is None
