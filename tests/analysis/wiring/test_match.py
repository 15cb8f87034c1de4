from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from analysis.wiring.fused import find_inputs
from analysis.wiring.match import ServedWiring, served_wiring
from analysis.wiring.sample import take
from results.hidden_states import HiddenStates
from results.wiring import Cause, boundary_name
from tests.analysis.wiring.dumps import (
    Give,
    Source,
    States,
    beside,
    dump,
    fused,
    pair_fc,
    random_target,
    the_pair,
)

SOURCES = {"pair": the_pair, "other": random_target}
WIRINGS = {"pair": (2, 4, 5), "other": (1, 3, 4)}
TORN: Mapping[
    str, Callable[[Tensor, int], Tensor]
] = {  # how ranks can hand over their columns; of [rows, slots, ranks, width]
    "tiled": lambda x, r: x[:, :, r : r + 1].expand_as(x),
    "zeros": lambda x, r: x * (torch.arange(x.shape[2]) == r)[:, None],
    "zeros after": lambda x, r: torch.cat([x[:, :, r : r + 1], torch.zeros_like(x[:, :, 1:])], dim=2),
    "alone": lambda x, r: x[:, :, r],
    "by rank": lambda x, _: x.transpose(1, 2),
}


def _torn_at(tear: str, rank: int, x: Tensor) -> Tensor:
    return TORN[tear](x, rank)


@pytest.fixture(params=sorted(SOURCES))
def which(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def asked(source: Source, sequences: Iterator[HiddenStates], slots: int | None = 3) -> ServedWiring:
    return served_wiring(sequences, source.layers, slots)


def causes(wiring: ServedWiring) -> list[Cause]:
    return [fault.cause for fault in wiring.faults]


def torn(boundaries: Sequence[int], ranks: int, tear: Callable[[Tensor], Tensor]) -> Give:
    def give(states: States) -> Tensor:
        beside_each_other = torch.stack([states[b] for b in boundaries], dim=1)
        return tear(beside_each_other.unflatten(-1, (ranks, -1))).flatten(1)

    return give


@pytest.mark.parametrize(
    ("dtype", "noise", "least", "most"),
    [
        (torch.float32, 0.0, 0.0, 1e-6),
        (torch.bfloat16, 0.0, 0.0, 0.003),
        (torch.bfloat16, 0.004, 0.003, 0.006),
    ],
)
def test_the_right_wiring_is_named_with_its_errors(
    which: str, dtype: torch.dtype, noise: float, least: float, most: float
) -> None:
    source, boundaries = SOURCES[which](), WIRINGS[which]
    found = asked(source, dump(source, beside(boundaries), dtype=dtype, noise=noise))
    assert (found.decided, found.boundaries, found.faults, found.why) == (True, boundaries, (), "")
    assert all(least <= slot.error <= most for slot in found.slots)
    assert all(slot.runner_up_error > 0.2 for slot in found.slots)
    assert (found.hidden_lag, found.token_shift, found.token_agreement) == (0, 1, 1.0)
    assert found.rows > 100
    assert found.captured == tuple(range(source.layers + 2))


@pytest.mark.parametrize(
    "boundaries", [(3, 5, 6), (1, 3, 4), (0, 2, 4), (5, 4, 2), (2, 4, 9), (8, 9, 0), (4, 4, 4)]
)
def test_every_other_wiring_is_named_as_it_is(boundaries: tuple[int, ...]) -> None:
    source = the_pair()
    found = asked(source, dump(source, beside(boundaries), dtype=torch.bfloat16, noise=0.004))
    assert (found.decided, found.boundaries, found.faults) == (True, boundaries, ())


@settings(max_examples=25, deadline=None)
@given(
    boundaries=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    noise=st.floats(0.0, 0.01),
    seed=st.integers(1, 5),
)
def test_a_random_wiring_of_a_random_target_is_named_exactly(
    boundaries: list[int], noise: float, seed: int
) -> None:
    source = random_target(seed=seed)
    found = asked(source, dump(source, beside(boundaries), noise=noise), len(boundaries))
    assert (found.decided, found.boundaries, found.faults) == (True, tuple(boundaries), ())


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.floats(1e-3, 1e3), slots=st.integers(1, 4))
def test_noise_names_nothing(seed: int, scale: float, slots: int) -> None:
    source = random_target()
    generator = torch.Generator().manual_seed(seed)

    def give(states: States) -> Tensor:
        return torch.randn(len(states[0]), slots * source.hidden, generator=generator) * scale

    found = asked(source, dump(source, give), slots)
    assert (found.decided, found.boundaries, found.faults) == (False, None, ())
    assert "none of the captured b0 to b5, N" in found.why


@settings(max_examples=40, deadline=None)
@given(
    wired=st.lists(st.integers(0, 9), min_size=3, max_size=3),
    captured=st.sets(st.integers(0, 9), min_size=1),
    lag=st.sampled_from([0, 0, 0, -2, 1, 3]),
    noise=st.sampled_from([0.0, 0.004, 0.02]),
)
def test_whatever_was_captured_no_name_is_wrong(
    wired: list[int], captured: set[int], lag: int, noise: float
) -> None:
    for source in (the_pair(), random_target(layers=8, seed=9)):
        given = dump(
            source, lambda states: beside(wired)(states).roll(lag, 0), captured=sorted(captured), noise=noise
        )
        found = asked(source, given)
        assert causes(found) in ([], [Cause.TOKEN_SHIFT])
        assert found.boundaries in (None, tuple(wired))
        assert not found.decided or found.hidden_lag == lag
        if noise == 0.0 and abs(lag) <= 2 and set(wired) <= captured:
            assert found.decided


@pytest.mark.parametrize("share", [0.05, 0.15, 0.3])
def test_a_state_with_too_much_noise_is_not_named(which: str, share: float) -> None:
    source, boundaries = SOURCES[which](), WIRINGS[which]
    found = asked(source, dump(source, beside(boundaries), noise=share))
    assert (found.decided, found.boundaries, found.faults) == (False, None, ())
    assert tuple(slot.boundary for slot in found.slots) == boundaries
    assert f"nearest {boundary_name(boundaries[0], source.layers)}" in found.why


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("tear", sorted(TORN))
def test_what_ranks_do_not_put_together_is_recognised(which: str, tear: str, ranks: int) -> None:
    source, boundaries = SOURCES[which](), WIRINGS[which]
    for rank in (0, ranks - 1):
        give = torn(boundaries, ranks, partial(_torn_at, tear, rank))
        found = asked(source, dump(source, give, dtype=torch.bfloat16, noise=0.004))
        assert (found.decided, found.boundaries, causes(found)) == (True, boundaries, [Cause.TENSOR_PARALLEL])
        assert f"of {ranks}" in found.faults[0].seen
        if tear != "by rank":
            assert f"rank {rank + 1} of {ranks}" in found.faults[0].seen


def test_an_unusual_number_of_ranks_is_tried_if_it_is_told() -> None:
    source = random_target()
    give = torn((1, 3, 4), 6, lambda x: x.transpose(1, 2))
    assert not served_wiring(dump(source, give), source.layers, 3).decided
    found = served_wiring(dump(source, give), source.layers, 3, tensor_parallel=6)
    assert (found.boundaries, causes(found)) == ((1, 3, 4), [Cause.TENSOR_PARALLEL])


def test_parts_in_an_order_of_no_kind_are_a_fault_without_a_wiring() -> None:
    source = the_pair()
    give = torn((2, 4, 5), 2, lambda x: x.flip(2))
    found = asked(source, dump(source, give))
    assert (found.decided, found.boundaries, causes(found)) == (True, None, [Cause.TENSOR_PARALLEL])
    assert "no order" in found.faults[0].seen


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_states_before_the_last_sum_over_ranks_are_recognised(
    which: str, ranks: int, dtype: torch.dtype
) -> None:
    source, boundaries = SOURCES[which](), WIRINGS[which]
    for rank in (0, ranks - 1):
        found = served_wiring(
            _summed_in_part(source, boundaries, ranks, rank, dtype), source.layers, 3, ranks
        )
        assert (found.decided, found.boundaries, causes(found)) == (True, boundaries, [Cause.TENSOR_PARALLEL])
        assert "% of the way from" in found.faults[0].seen


def test_the_embedding_has_no_sum_that_could_be_incomplete() -> None:
    source = the_pair()
    found = asked(source, _summed_in_part(source, (0, 1, 5), 4, 1, torch.float32))
    assert (found.boundaries, causes(found)) == ((0, 1, 5), [Cause.TENSOR_PARALLEL])


def test_one_rank_has_no_incomplete_sums() -> None:
    source = the_pair()
    found = served_wiring(_summed_in_part(source, (2, 4, 5), 4, 1, torch.float32), source.layers, 3, 1)
    assert (found.decided, found.faults) == (False, ())
    assert "way from b1 to b2; " in found.why
    assert "one rank" in found.why


@pytest.mark.parametrize("missing", [1, 3])
def test_an_incomplete_sum_is_not_claimed_where_the_layers_around_it_were_not_captured(missing: int) -> None:
    source = the_pair()
    sequences = _summed_in_part(source, (2, 5, 6), 4, 1, torch.float32)
    partly = (
        replace(s, states={b: state for b, state in s.states.items() if b != missing}) for s in sequences
    )
    found = asked(source, partly)
    assert (found.decided, found.faults) == (False, ())


def test_an_incomplete_sum_is_recognised_also_where_little_is_missing() -> None:
    source = the_pair()
    found = asked(source, dump(source, lambda s: s[4] - 0.08 * (s[4] - s[3])), 1)
    assert found.slots[0].exact  # by its distance alone
    assert (found.boundaries, causes(found)) == ((4,), [Cause.TENSOR_PARALLEL])


def test_a_state_on_two_ways_is_not_named() -> None:
    source = the_pair()
    found = asked(source, dump(source, lambda s: s[5] + 0.3 * (s[6] - s[5]) - 0.3 * (s[5] - s[4])), 1)
    assert (found.decided, found.faults) == (False, ())


def test_next_to_nothing_is_not_on_the_way_from_a_state_to_its_opposite() -> None:
    text = torch.randn(60, 64, generator=torch.Generator().manual_seed(4))
    turned = HiddenStates(torch.arange(61), 30, {0: text, 1: -3 * text, 2: -4 * text}, 1e-3 * text.roll(1, 1))
    found = served_wiring([turned], 2, 1)
    assert (found.decided, found.faults) == (False, ())


def _summed_in_part(
    source: Source, boundaries: Sequence[int], ranks: int, rank: int, dtype: torch.dtype
) -> Iterator[HiddenStates]:
    healthy = dump(source, beside(boundaries), dtype=dtype)
    for text, sequence in zip(source.texts, healthy, strict=True):
        parts = text.states | source.partial(text, ranks, rank)
        yield replace(sequence, served_aux=torch.cat([parts[b] for b in boundaries], dim=-1).to(dtype))


@pytest.mark.parametrize("factors", [(2.5, 2.5, 2.5), (4.0, 2.0, 4.0), (-2.0, -2.0, -2.0)])
def test_a_multiple_that_no_number_of_ranks_makes_is_no_fault(factors: tuple[float, ...]) -> None:
    source = the_pair()
    scale = torch.tensor(factors).repeat_interleave(source.hidden)
    found = asked(source, dump(source, lambda states: scale * beside((2, 4, 5))(states)))
    assert (found.decided, found.boundaries, found.faults) == (False, None, ())


@pytest.mark.parametrize(("ranks", "fault"), [(None, True), (4, True), (8, False)])
def test_a_sum_taken_once_too_often_is_a_whole_multiple(ranks: int | None, fault: bool) -> None:
    source = the_pair()
    sequences = dump(source, lambda states: 4 * beside((2, 4, 5))(states), dtype=torch.bfloat16, noise=0.004)
    found = served_wiring(sequences, source.layers, 3, ranks)
    assert (found.decided, causes(found)) == (fault, [Cause.TENSOR_PARALLEL] if fault else [])
    assert "4 times" in (found.faults[0].seen if fault else found.why)


@pytest.mark.parametrize("lag", [-2, -1, 1, 2])
def test_states_of_other_positions_are_a_shift(which: str, lag: int) -> None:
    source, boundaries = SOURCES[which](), WIRINGS[which]
    found = asked(source, dump(source, lambda states: beside(boundaries)(states).roll(lag, 0)))
    assert (found.decided, found.boundaries, found.hidden_lag) == (True, boundaries, lag)
    assert causes(found) == [Cause.TOKEN_SHIFT]
    assert (
        f"{abs(lag)} position{'s' * (abs(lag) > 1)} {'before' if lag > 0 else 'after'}"
        in found.faults[0].seen
    )


@pytest.mark.parametrize("shift", [-2, -1, 0, 2, 3])
def test_tokens_of_other_positions_are_a_shift(shift: int) -> None:
    source = the_pair()
    found = asked(source, dump(source, beside((2, 4, 5)), token_shift=shift))
    assert (found.boundaries, found.token_shift, causes(found)) == ((2, 4, 5), shift, [Cause.TOKEN_SHIFT])
    assert found.token_agreement is not None
    assert found.token_agreement < 0.5


def test_in_a_loop_every_shift_fits_and_the_right_one_is_believed() -> None:
    source = the_pair()
    looping = (
        replace(
            s, token_ids=torch.full_like(s.token_ids, 7), served_ids=torch.full([len(s.token_ids) - 1], 7)
        )
        for s in dump(source, beside((2, 4, 5)))
    )
    found = asked(source, looping)
    assert (found.token_shift, found.faults) == (1, ())


def test_tokens_of_another_text_have_no_shift() -> None:
    source = the_pair()
    other = (replace(s, served_ids=s.token_ids.flip(0)[1:]) for s in dump(source, beside((2, 4, 5))))
    found = asked(source, other)
    assert (found.token_shift, found.faults) == (None, ())
    assert found.token_agreement is not None
    assert found.token_agreement < 0.2


def test_the_first_position_may_be_as_long_as_all_others_together() -> None:
    source = the_pair()
    sequences = list(dump(source, beside((2, 4, 5)), dtype=torch.bfloat16, noise=0.004, outlier=True))
    found = asked(source, iter(sequences))
    assert (found.decided, found.boundaries) == (True, (2, 4, 5))
    spoilt = [replace(s, served_aux=_nonsense_first(s.served_aux)) for s in sequences]
    assert asked(source, iter(spoilt)).boundaries == (2, 4, 5)


def test_rows_much_longer_than_the_others_count_as_one_row_each() -> None:
    source = the_pair()

    def spoilt() -> Iterator[HiddenStates]:
        for s in dump(source, beside((2, 4, 5))):
            states = {b: state.clone() for b, state in s.states.items()}
            for state in states.values():
                state[s.prompt_tokens + 1] *= 150
            given = beside((2, 4, 5))(states)
            given[s.prompt_tokens + 1] *= 1.1
            yield replace(s, states=states, served_aux=given)

    found = asked(source, spoilt())
    assert (found.decided, found.boundaries, found.faults) == (True, (2, 4, 5), ())


def test_a_sequence_of_another_width_is_left_out() -> None:
    source = the_pair()
    first, *others = dump(source, beside((2, 4, 5)))
    narrow = replace(first, served_aux=beside((2, 4))(first.states))
    found = asked(source, iter([*others, narrow]))
    assert (found.decided, found.boundaries, found.sequences) == (True, (2, 4, 5), 8)


def _nonsense_first(given: Tensor | None) -> Tensor:
    assert given is not None
    return torch.cat([-given[:1], given[1:]])


@pytest.mark.parametrize("noise", [0.0, 0.004])
def test_where_only_some_boundaries_were_captured_they_alone_are_named(noise: float) -> None:
    source = random_target(layers=24)
    captured = (0, 1, 2, 3, 11, 12, 13, 20, 21, 22, 24, 25)
    found = asked(source, dump(source, beside((2, 12, 21)), captured=captured, noise=noise))
    assert (found.decided, found.boundaries) == (True, (2, 12, 21))
    for elsewhere in range(4, 11):
        found = asked(source, dump(source, beside((2, elsewhere, 21)), captured=captured, noise=noise))
        assert (found.decided, found.boundaries) == (False, None)
        assert "slot 2 is none of the captured b0 to b3, b11 to b13, b20" in found.why


def test_layers_that_add_next_to_nothing_are_not_told_apart_where_noise_could_be_the_layer() -> None:
    states = _slow_stream(layers=40, step=0.01)
    sequences = [HiddenStates(torch.arange(61), 30, {b: states[b] for b in (2, 30)}, states[31])]
    assert not served_wiring(sequences, 40, 1).decided  # 1 % from b30, and yet b31
    sequences = [HiddenStates(torch.arange(61), 30, {b: states[b] for b in (2, 30)}, states[30] * (1 + 1e-4))]
    assert served_wiring(sequences, 40, 1).boundaries == (30,)


def _slow_stream(layers: int, step: float) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    states = [torch.randn(60, 64, generator=generator)]
    for _ in range(layers):
        states.append(states[-1] + step * torch.randn(60, 64, generator=generator))
    return states


def test_boundaries_that_are_the_same_are_not_told_apart() -> None:
    source = the_pair()
    same = (replace(s, states={**s.states, 3: s.states[2]}) for s in dump(source, beside((2, 4, 5))))
    found = asked(source, same)
    assert (found.decided, found.boundaries) == (False, None)
    assert "slot 1" in found.why


@pytest.mark.parametrize("boundary", [8, 9])
def test_one_state_means_that_the_fusion_layer_is_skipped(boundary: int) -> None:
    source = the_pair()
    found = asked(source, dump(source, beside((boundary,))))
    assert (found.decided, found.boundaries, causes(found)) == (True, (boundary,), [Cause.ALGORITHM])
    assert boundary_name(boundary, 8) in found.faults[0].seen


@pytest.mark.parametrize(
    ("give", "boundaries"),
    [(beside((2, 4)), (2, 4)), (lambda states: torch.randn(len(states[0]), 200), None)],
)
def test_a_wrong_width_is_a_fault_whatever_it_holds(give: Give, boundaries: tuple[int, ...] | None) -> None:
    source = the_pair()
    found = asked(source, dump(source, give))
    assert (found.decided, found.boundaries, causes(found)) == (True, boundaries, [Cause.FC_WIDTH])


def test_zeros_are_said_to_be_zeros() -> None:
    source = the_pair()
    found = asked(source, dump(source, lambda states: 0 * beside((2, 4, 5))(states)))
    assert (found.decided, found.why) == (False, "the drafter was given 384 zeros a token")


def test_where_prompt_and_answer_differ_both_are_said() -> None:
    source = the_pair()
    sequences = [
        replace(s, served_aux=_other_answer(s, beside((3, 5, 6))(s.states)))
        for s in dump(source, beside((2, 4, 5)))
    ]
    found = asked(source, iter(sequences))
    assert (found.decided, found.boundaries) == (False, None)
    assert "prompt: b2, b4, b5" in found.why
    assert "answer: b3, b5, b6" in found.why


def _other_answer(sequence: HiddenStates, other: Tensor) -> Tensor:
    assert sequence.served_aux is not None
    border = sequence.prompt_tokens
    return torch.cat([sequence.served_aux[:border], other[border:]])


@pytest.mark.parametrize("boundaries", [(2, 4, 5), (3, 5, 6), (0, 2, 4), (5, 4, 2), (2, 4, 9)])
@pytest.mark.parametrize("noise", [0.0, 0.004])
def test_the_fusion_layers_output_alone_names_the_wiring(boundaries: tuple[int, ...], noise: float) -> None:
    source, weight = the_pair(), pair_fc()
    sequences = fused(dump(source, beside(boundaries)), weight, noise)
    found = served_wiring(sequences, source.layers, 3, fc_weight=weight)
    assert (found.decided, found.boundaries, found.faults) == (True, boundaries, ())
    assert all(slot.error < max(1e-5, 1.2 * noise) for slot in found.slots)


def test_the_output_of_a_layer_of_other_widths_too() -> None:
    source = random_target()
    weight = torch.randn(72, 4 * source.hidden, generator=torch.Generator().manual_seed(2))
    sequences = fused(dump(source, beside((1, 3, 4, 6))), weight, 0.004)
    assert served_wiring(sequences, source.layers, 4, fc_weight=weight).boundaries == (1, 3, 4, 6)


def test_the_output_shows_a_lag_too() -> None:
    source, weight = the_pair(), pair_fc()
    sequences = fused(dump(source, lambda states: beside((2, 4, 5))(states).roll(1, 0)), weight)
    found = served_wiring(sequences, source.layers, 3, fc_weight=weight)
    assert (found.boundaries, found.hidden_lag, causes(found)) == ((2, 4, 5), 1, [Cause.TOKEN_SHIFT])


def test_the_output_of_other_weights_names_nothing() -> None:
    source, weight = the_pair(), pair_fc()
    sequences = fused(dump(source, beside((2, 4, 5))), torch.randn(weight.shape))
    found = served_wiring(sequences, source.layers, 3, fc_weight=weight)
    assert (found.decided, found.boundaries, found.faults) == (False, None, ())


def test_a_slot_that_the_layer_does_not_read_is_not_named() -> None:
    source, weight = the_pair(), pair_fc().clone()
    weight[:, 128:256] = 0.0
    sequences = fused(dump(source, beside((2, 4, 5))), weight)
    found = served_wiring(sequences, source.layers, 3, fc_weight=weight)
    assert (found.decided, found.boundaries) == (False, None)
    assert "slot" in found.why


def test_slots_that_the_layer_reads_alike_are_in_no_order() -> None:
    source, weight = the_pair(), pair_fc().clone()
    weight[:, :128] = weight[:, 128:256]
    sequences = fused(dump(source, beside((2, 4, 5))), weight)
    sample = take(sequences, ())
    output = sample.fc()
    assert output is not None
    found = find_inputs(output, weight, sample, source.layers)
    assert {slot.boundary for slot in found} == {2, 4, 5}
    assert not any(slot.exact for slot in found)


def test_states_and_output_together_tell_whether_the_weights_are_the_ones() -> None:
    source, weight = the_pair(), pair_fc()
    both = [
        replace(f, served_aux=d.served_aux)
        for f, d in zip(
            fused(dump(source, beside((2, 4, 5))), weight), dump(source, beside((2, 4, 5))), strict=True
        )
    ]
    assert served_wiring(both, source.layers, 3, fc_weight=weight).fc_error == pytest.approx(0.0, abs=1e-5)
    other = served_wiring(both, source.layers, 3, fc_weight=weight.roll(1, 0))
    assert other.boundaries == (2, 4, 5)
    assert other.fc_error is not None
    assert other.fc_error > 0.5


def test_what_is_missing_is_said() -> None:
    source = the_pair()
    bare = [replace(s, served_aux=None) for s in dump(source, beside((2, 4, 5)))]
    assert "nothing of what the drafter was given" in asked(source, iter(bare)).missing
    alone = [replace(s, served_aux=None, served_fc=s.served_aux) for s in dump(source, beside((2,)))]
    assert "without its weights" in asked(source, iter(alone)).missing
    stateless = [replace(s, states={}) for s in dump(source, beside((2,)))]
    assert "no states of the target" in asked(source, iter(stateless)).missing
    assert "no states of the target" in asked(source, iter([])).missing


def test_no_more_sequences_are_read_than_needed() -> None:
    source = the_pair()
    read = []

    def endless() -> Iterator[HiddenStates]:
        while True:
            for sequence in dump(source, beside((2, 4, 5))):
                read.append(sequence)
                yield sequence

    found = served_wiring(endless(), source.layers, 3)
    assert (found.boundaries, found.sequences, len(read)) == ((2, 4, 5), 8, 8)
