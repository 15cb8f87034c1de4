from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from analysis.wiring.sanity import Flaw, Readout, find_flaws
from results.hidden_states import HiddenStates
from tests.analysis.wiring.dumps import beside, dump, pair_readout, random_target, the_pair

Spoil = Callable[[Tensor], Tensor]


def healthy(**how: object) -> Iterator[HiddenStates]:
    return dump(the_pair(), beside((2, 4, 5)), **how)  # type: ignore[arg-type]


def spoilt(boundary: int, spoil: Spoil) -> Iterator[HiddenStates]:
    for s in healthy():
        yield replace(s, states={**s.states, boundary: spoil(s.states[boundary].clone())})


def readout() -> Readout:
    lm_head, norm = pair_readout()
    return Readout(lm_head, norm, 1e-5)


def found(sequences: Iterator[HiddenStates], reads: bool = False) -> list[Flaw]:
    return [flawed.flaw for flawed in find_flaws(sequences, 8, readout() if reads else None)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("outlier", [False, True])
def test_a_healthy_dump_has_no_flaw(dtype: torch.dtype, outlier: bool) -> None:
    assert found(healthy(dtype=dtype, outlier=outlier)) == []
    assert found(healthy(dtype=dtype), reads=True) == []
    other = random_target()
    assert find_flaws(dump(other, beside((1, 3)), outlier=outlier), other.layers) == ()


def test_fewer_rows_than_tokens_are_healthy_more_are_not() -> None:
    assert found(replace(s, token_ids=s.token_ids[:-1]) for s in healthy()) == []
    more = find_flaws((replace(s, token_ids=s.token_ids[:-9]) for s in healthy()), 8)
    assert [flawed.flaw for flawed in more] == [Flaw.SHAPE]
    rows = len(the_pair().texts[0].ids) - 1
    assert more[0].seen == f"sequence 1: {rows} rows, {rows - 8} tokens"


@pytest.mark.parametrize("of", ["served_aux", "served_ids"])
def test_all_tensors_have_as_many_rows(of: str) -> None:
    assert found(replace(s, **{of: getattr(s, of)[:-1]}) for s in healthy()) == [Flaw.SHAPE]


def test_all_states_have_one_width() -> None:
    assert found(spoilt(3, lambda state: state[:, :64])) == [Flaw.SHAPE]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_every_number_must_be_finite(number: float) -> None:
    def spoil(state: Tensor) -> Tensor:
        state[5, 3:7] = number
        return state

    flawed = find_flaws(spoilt(3, spoil), 8)
    assert [one.flaw for one in flawed] == [Flaw.NOT_FINITE]
    assert flawed[0].seen.startswith("b3: 32 numbers in ")


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_columns_of_one_rank_and_zeros_are_seen(ranks: int) -> None:
    def spoil(state: Tensor) -> Tensor:
        state[:, 128 // ranks :] = 0.0
        return state

    flawed = find_flaws(spoilt(3, spoil), 8)
    assert Flaw.ZERO_BLOCK in [one.flaw for one in flawed]
    zeros = [one.seen for one in flawed if one.flaw is Flaw.ZERO_BLOCK]
    assert zeros == ["b3: 1 of 2 equal parts of every row are zeros"]


def test_zeros_in_some_rows_are_no_columns_of_zeros() -> None:
    def spoil(state: Tensor) -> Tensor:
        state[:3] = 0.0
        return state

    assert found(spoilt(3, spoil)) == []


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_columns_of_one_rank_side_by_side_are_seen(ranks: int) -> None:
    flawed = find_flaws(spoilt(3, lambda state: state[:, : 128 // ranks].repeat(1, ranks)), 8)
    twice = [one.seen for one in flawed if one.flaw is Flaw.REPEATED_BLOCK]
    assert twice == ["b3: the first two of 2 equal parts of every row are the same"]


@pytest.mark.parametrize("scale", [0.2, 5.0])
def test_a_boundary_out_of_line_with_its_neighbours_is_seen(scale: float) -> None:
    flawed = find_flaws(spoilt(4, lambda state: scale * state), 8)
    assert Flaw.UNEVEN in [one.flaw for one in flawed]
    assert any("b3, b4, b5" in one.seen for one in flawed)


def test_a_state_without_the_residual_is_out_of_line() -> None:
    source = the_pair()
    for s in (4, 6):
        sequences = (
            replace(d, states={**d.states, s: text.states[s] - text.states[s - 1]})
            for d, text in zip(healthy(), source.texts, strict=True)
        )
        assert Flaw.UNEVEN in found(sequences)


def test_boundaries_that_are_no_neighbours_are_not_compared() -> None:
    def apart() -> Iterator[HiddenStates]:
        for s in spoilt(4, lambda state: 5 * state):
            yield replace(s, states={b: s.states[b] for b in (0, 4, 8)})

    assert found(apart()) == []


@pytest.mark.parametrize("off", [-2, -1, 1, 2])
@pytest.mark.parametrize("without_last", [False, True])
def test_states_beside_other_tokens_are_seen(off: int, without_last: bool) -> None:
    def shifted() -> Iterator[HiddenStates]:
        for s in healthy():
            states = {b: state.roll(-off, 0) for b, state in s.states.items() if b < 9 or not without_last}
            yield replace(s, states=states)

    flawed = find_flaws(shifted(), 8, readout())
    assert [one.flaw for one in flawed] == [Flaw.SHIFTED]
    assert f"the tokens {abs(off)} {'later' if off > 0 else 'earlier'}" in flawed[0].seen


def test_a_loop_fits_at_every_shift_and_is_no_flaw() -> None:
    lm_head, norm = pair_readout()
    states = torch.randn(128, generator=torch.Generator().manual_seed(1)).expand(40, 128)
    token = int((states[0] @ lm_head.T).argmax())
    looping = HiddenStates(torch.full([41], token), 10, {9: states})
    assert find_flaws([looping], 8, Readout(lm_head, norm)) == ()


def test_states_of_another_model_are_seen() -> None:
    lm_head, norm = pair_readout()
    other = Readout(lm_head.roll(1, 0), norm, 1e-5)
    flawed = find_flaws(healthy(), 8, other)
    assert [one.flaw for one in flawed] == [Flaw.OTHER_MODEL]
    assert " of " in flawed[0].seen


def test_too_few_answers_prove_nothing() -> None:
    lm_head, norm = pair_readout()
    few = (replace(s, prompt_tokens=len(s.token_ids) - 3) for s in healthy())
    assert find_flaws(few, 8, Readout(lm_head.roll(1, 0), norm, 1e-5)) == ()
