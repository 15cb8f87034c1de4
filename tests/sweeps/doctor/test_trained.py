"""What a head was trained with is named from a dump: of the committed pair and of one nothing like it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from analysis.wiring.chain import predict
from analysis.wiring.race import Raced, race
from analysis.wiring.replay import Text
from analysis.wiring.trained import judge
from analysis.wiring.variants import published_reading, variants
from results.checkpoint import Checkpoint
from results.hidden_states import Dump, DumpHeader, HiddenStates
from results.wiring import Cause, D2t, Source, Step
from sweeps.doctor.replay import beside_counted, distinct, examine
from sweeps.doctor.trained import doubts, section
from tests.analysis.wiring import other_pair, pair
from tests.rigs.pair.replay import HERE

RIGHT = pair.RIGHT
CAPTURED = (2, 3, 4, 5, 6, 9)  # fewer than all, for the tests' time
EMBEDDINGS = torch.randn(1024, 128, generator=torch.Generator().manual_seed(1))
RANDOM_HEAD = 0.02 * torch.randn(640, 128, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def text() -> list[HiddenStates]:
    return pair.ordinary_text(24)


@pytest.fixture(scope="module")
def dump(text: list[HiddenStates], tmp_path_factory: pytest.TempPathFactory) -> Dump:
    fewer = (replace(s, states={b: s.states[b] for b in CAPTURED}) for s in text)
    return Dump.write(tmp_path_factory.mktemp("dump"), DumpHeader(layers=8, drafts_per_round=3), fewer)


@pytest.fixture(scope="module")
def small(text: list[HiddenStates], tmp_path_factory: pytest.TempPathFactory) -> Dump:
    """For what is clear from little."""
    fewer = (replace(s, states={b: s.states[b] for b in (2, 3, 4, 5, 9)}) for s in text[:9])
    return Dump.write(tmp_path_factory.mktemp("small"), DumpHeader(layers=8, drafts_per_round=1), fewer)


def folder(part: str) -> Checkpoint:
    return Checkpoint(HERE / part, pair.config(part), {})


def edited(into: Path, tensors: Mapping[str, Tensor]) -> Checkpoint:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, into / "model.safetensors")
    return Checkpoint(into, pair.config("head"), {})


def test_right_layers_are_named_from_a_wrong_start(dump: Dump) -> None:
    served = replace(RIGHT, boundaries=(3, 5, 6))
    found, trained = section(dump, folder("target"), folder("head"), served)
    assert trained is not None
    assert (trained.best, trained.named, trained.sequences) == (RIGHT, True, 24)
    assert trained.z >= 3 and trained.differences(served) == (Cause.LAYERS,)
    assert not trained.clears(served) and trained.clears(RIGHT)
    assert found.step is Step.TRAINED and [f.cause for f in found.findings] == [Cause.LAYERS]
    assert "b2, b4, b5" in found.follows[0] and "b3, b5, b6" in found.findings[0].seen
    assert "24 sequences" in found.checked[0] and len(found.seen) == 9
    assert found.seen[0].startswith("b2, b4, b5: ") and found.seen[8].startswith("b3, b5, b6: ")


def test_fusion_columns_reversed_is_another_order(small: Dump, tmp_path: Path) -> None:
    weights = pair.weights("head")
    weights["fc.weight"] = torch.cat(weights["fc.weight"].split(128, dim=1)[::-1], dim=1)
    found, trained = section(small, folder("target"), edited(tmp_path, weights), RIGHT)
    assert trained is not None and trained.best == replace(RIGHT, boundaries=(5, 4, 2))
    assert [f.cause for f in found.findings] == [Cause.ORDER]


def test_layers_and_rotation_wrong_at_once_are_both_named(small: Dump) -> None:
    """The search goes on from one to the other: a wrong rotation does not make wrong layers look right."""
    served = replace(RIGHT, boundaries=(3, 4, 5), rope_theta=1e2)
    trained = examine(small, pair.pair(), [served])
    assert trained.best == RIGHT and trained.differences(served) == (Cause.LAYERS, Cause.ROPE)


def absolute() -> dict[str, Tensor]:
    weights = pair.weights("head")
    return weights | {"d2t": weights["d2t"] + torch.arange(640)}


def without(*names: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in pair.weights("head").items() if name not in names}


READ_WRONG: dict[str, tuple[dict[str, Any], Cause]] = {
    "fusion skipped": ({"boundaries": (9,), "uses_fc": False}, Cause.ALGORITHM),
    "embedding first": ({"boundaries": (0, 4, 5)}, Cause.LAYERS),
    "reversed": ({"boundaries": (5, 4, 2)}, Cause.ORDER),
    "theta 1e6": ({"rope_theta": 1e6}, Cause.ROPE),
    "theta 1e2": ({"rope_theta": 1e2}, Cause.ROPE),
    "scaled": ({"rope_scaling": {"type": "linear", "factor": 8.0}}, Cause.ROPE),
    "fed back normed": ({"norm_output": True}, Cause.FEEDBACK_NORM),
    "norm before fusion": ({"norm_before_fc": True}, Cause.NORM_BEFORE_FC),
    "norms of the states": ({"fc_norm": True}, Cause.FC_NORM),
    "norm before residual": ({"norm_before_residual": True}, Cause.NORM_BEFORE_RESIDUAL),
    "no residual": ({"adds_residual": False}, Cause.RESIDUAL),
    "tokens not shifted": ({"token_shift": 0}, Cause.TOKEN_SHIFT),
    "states late": ({"hidden_lag": 1}, Cause.TOKEN_SHIFT),
    "context too short": ({"max_positions": 20}, Cause.CONTEXT),
    "four bits": ({"weight_bits": 4}, Cause.QUANTISATION),
    "map not read": ({"d2t": D2t.ABSENT}, Cause.D2T_MISSING),
    "lm_head not loaded": ({"lm_head": Source.RANDOM}, Cause.LM_HEAD),
}


@pytest.fixture(scope="module")
def raced(text: list[HiddenStates]) -> Raced:
    """The right reading, all its variants, and every way to read wrongly."""
    made = pair.pair()
    wrong = [replace(RIGHT, **changed) for changed, _ in READ_WRONG.values()]
    tried = distinct([RIGHT, *wrong, *variants(RIGHT, made)])
    return race(tried, wrong, (Text(made, sequence) for sequence in text), 3)


@pytest.mark.parametrize("fault", READ_WRONG)
def test_a_server_that_reads_wrongly_is_told_in_what(raced: Raced, fault: str) -> None:
    changed, cause = READ_WRONG[fault]
    served = replace(RIGHT, **changed)
    trained = judge(raced, [served, RIGHT])
    assert (trained.best, trained.named, trained.differences(served)) == (RIGHT, True, (cause,))
    assert not trained.clears(served) and trained.clears(RIGHT)


def test_draft_positions_one_too_high_hardly_matter_and_are_not_named(raced: Raced) -> None:
    served = replace(RIGHT, step_position_shift=1)
    trained = judge(raced, [served, RIGHT])
    assert trained.differences(served) == () and trained.clears(served)
    assert RIGHT in trained.harmless


BROKEN: dict[str, tuple[dict[str, Tensor], dict[str, Any], Cause]] = {
    "d2t missing": (without("d2t"), {"d2t": D2t.ABSENT}, Cause.D2T_MISSING),
    "d2t absolute": (absolute(), {}, Cause.D2T_ABSOLUTE),
    "lm_head random": (pair.weights("head") | {"lm_head.weight": RANDOM_HEAD}, {}, Cause.LM_HEAD),
    "lm_head missing": (without("lm_head.weight"), {"lm_head": Source.RANDOM}, Cause.LM_HEAD),
    "embedding random": (
        pair.weights("head") | {"embed_tokens.weight": EMBEDDINGS},
        {"embedding": Source.OWN},
        Cause.EMBEDDING,
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_weights_are_told_from_how_they_are_read(text: list[HiddenStates], fault: str) -> None:
    weights, changed, cause = BROKEN[fault]
    made, served = pair.pair(weights), replace(RIGHT, **changed)
    tried = distinct([served, published_reading(made), *variants(served, made)])
    trained = judge(race(tried, [served], (Text(made, s) for s in text[:16]), 1), [served])
    assert trained.differences(served) == (cause,) and not trained.clears(served)


def test_a_healthy_server_is_cleared(small: Dump) -> None:
    found, trained = section(small, folder("target"), folder("head"), RIGHT)
    assert trained is not None and trained.clears(RIGHT) and found.findings == ()
    assert any("as the head was trained" in line for line in found.follows)


def test_random_weights_fit_in_no_reading_and_none_is_named(small: Dump, tmp_path: Path) -> None:
    weights = pair.weights("head")
    noise = {n: torch.randn_like(t) if t.is_floating_point() else t for n, t in weights.items()}
    found, trained = section(small, folder("target"), edited(tmp_path, noise), RIGHT)
    assert trained is not None and not trained.predicts and not trained.named and not trained.clears(RIGHT)
    assert "in no reading" in found.follows[0] and found.findings == ()


def test_a_pair_of_other_sizes_is_named_as_it_was_built(tmp_path: Path) -> None:
    made = other_pair.pair()
    header = DumpHeader(other_pair.LAYERS, drafts_per_round=1)
    trained = examine(
        Dump.write(tmp_path, header, iter(other_pair.text(10))), made, [published_reading(made)]
    )
    served = published_reading(made)
    assert served.boundaries == (2, 3)
    assert trained.best == other_pair.RIGHT and trained.named and trained.z >= 3
    assert trained.differences(served) == (Cause.LAYERS,)


def test_what_cannot_be_replayed_is_skipped_with_the_reason(dump: Dump, tmp_path: Path) -> None:
    latent = pair.weights("head") | {"midlayer.self_attn.kv_b_proj.weight": torch.ones(1)}
    found, trained = section(dump, folder("target"), edited(tmp_path, latent), RIGHT)
    assert trained is None and "latent attention" in found.skipped
    empty = Dump.write(tmp_path / "empty", DumpHeader(8), iter([]))
    found, trained = section(empty, folder("target"), folder("head"), RIGHT)
    assert trained is None and "holds no sequences" in found.skipped


def test_text_that_loops_or_is_random_is_cautioned_against(tmp_path: Path, dump: Dump) -> None:
    generator = torch.Generator().manual_seed(4)
    random = [pair.states_of(torch.randint(2, 1024, (40,), generator=generator), 30) for _ in range(8)]
    looping = [pair.states_of(torch.tensor([0, 5, *[7, 8] * 20]), 2) for _ in range(8)]
    for name, sequences, said in (
        ("r", random, "random to the target"),
        ("l", looping, "of 8 sequences loop"),
    ):
        made = Dump.write(tmp_path / name, DumpHeader(8), iter(sequences))
        assert any(line.startswith("caution") and said in line for line in doubts(made, pair.pair()))
    assert list(doubts(dump, pair.pair())) == []


def test_predicted_counts_stand_beside_those_of_the_server(tmp_path: Path) -> None:
    """Each answer's last round is left out of both if the text ends within it: a server counts it in full."""
    answers = pair.answered(3, 20)
    ones = [predict(pair.pair(), RIGHT, answer, 3) for answer in answers]
    counts = [(*one.counts[:-1], 3) if one.cut_short else one.counts for one in ones]
    assert 0 < sum(one.cut_short for one in ones) < 3
    told = (replace(a, accepted=c) for a, c in zip(answers, counts, strict=True))
    made = Dump.write(tmp_path, DumpHeader(8), told)
    found, counted = beside_counted(made, pair.pair(), RIGHT, 3)
    assert found == counted and len(found.counts) == sum(map(len, counts)) - sum(o.cut_short for o in ones)
    wrong, counted = beside_counted(made, pair.pair(), replace(RIGHT, boundaries=(5, 4, 2)), 3)
    assert wrong.by_position != counted.by_position
