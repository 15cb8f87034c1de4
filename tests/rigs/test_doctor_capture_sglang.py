"""What a real SGLang passes to the drafter of the pair, captured: equal to the pair's own arithmetic."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from results.hidden_states import HiddenStates
from results.records import Cell, Point
from results.store import RunFolder
from sweeps.arm import measure, up
from sweeps.doctor.capture import Captured, capture, usual_prompts
from sweeps.doctor.loaders import open_dump
from sweeps.pace import Closed
from sweeps.prepare import prepare
from sweeps.setup import Setup
from sweeps.sweep import Sweep
from sweeps.windows import Window
from tests.rigs.needed import needed_rig
from tests.rigs.pair.model import features, target_states
from tests.rigs.pair.replay import Pair, accepted_counts
from tests.rigs.test_sglang import ARGS, ENV, PAIR

pytestmark = [pytest.mark.rig, pytest.mark.timeout(600)]

STEPS, ANSWER_TOKENS, PROMPTS = 3, 40, 4
NORM = 9  # after the final norm
CHAIN = {"num_steps": STEPS, "topk": 1}
TREE = {"num_steps": STEPS, "topk": 4, "draft_tokens": 12}


@pytest.fixture(scope="module")
def pair() -> Pair:
    torch.set_num_threads(1)
    target, head = (load_file(PAIR / name / "model.safetensors") for name in ("target", "head"))
    return Pair(target, head)


def setup_of(folder: Path, head: Path, temperature: float = 0.7) -> Setup:
    workload = {"files": [str(PAIR / "prompts.jsonl")], "classes": ["code"], "endpoint": "completions"}
    sweep = Sweep.model_validate(
        {
            "engine": "sglang",
            "server": str(needed_rig("sglang")),
            "model": str(PAIR / "target"),
            "draft": str(head),
            "args": ARGS,
            "env": ENV,
            "space": {"EAGLE3": {"num_steps": [STEPS], "topk": [1]}},
            "workload": {**workload, "lengths": "fixed", "prompts_per_class": 4, "temperature": temperature},
            "load": [{"closed": 4}],
        }
    )
    run = RunFolder(folder)
    run.create()
    return prepare(sweep).setup(run)


def captured(
    folder: Path, point: Point, head: Path = PAIR / "head", *, chosen: tuple[int, ...] = ()
) -> Captured:
    setup = setup_of(folder / "run", head)
    prompts = usual_prompts(setup, PROMPTS)
    found = capture(
        setup, point, prompts, folder / "dump", boundaries=chosen or None, answer_tokens=ANSWER_TOKENS
    )
    assert len(found.dump) == len(found.texts) == len(prompts) == PROMPTS
    assert found.notes == ()  # passes and counters agree
    assert not list((folder / "run").glob("traces/*"))
    return found


def check_tokens(found: Captured) -> None:
    """Prompt and answer, each row beside the token after it; every round counted."""
    rounds = 0
    for sequence, text in zip(found.dump, found.texts, strict=True):
        rows = len(sequence.token_ids) - 1
        assert rows + 1 == sequence.prompt_tokens + ANSWER_TOKENS
        assert len(text) > ANSWER_TOKENS
        assert sequence.served_ids is not None
        assert sequence.served_ids.tolist() == sequence.token_ids[1:].tolist()
        assert {len(state) for state in sequence.states.values()} == {rows}
        rounds += len(sequence.accepted)
    assert found.counted is not None
    assert found.counted.drafts == rounds


def truth(pair: Pair, sequence: HiddenStates) -> list[torch.Tensor]:
    with torch.no_grad():
        return [state[0, :-1] for state in target_states(pair.target, sequence.token_ids[None])]


def check_states(pair: Pair, sequence: HiddenStates) -> None:
    for boundary, expected in enumerate(truth(pair, sequence)):
        error = (sequence.states[boundary] - expected).norm(dim=-1) / expected.norm(dim=-1)
        assert float(error.max()) < 1e-5, boundary


def check_rounds(pair: Pair, sequence: HiddenStates, boundaries: tuple[int, ...]) -> None:
    wired = Pair(pair.target, pair.head, boundaries)
    prompt = sequence.token_ids[: sequence.prompt_tokens].tolist()
    assert list(sequence.accepted) == accepted_counts(wired, prompt, STEPS, ANSWER_TOKENS)


def test_of_a_tree_the_chain_is_captured_as_the_pair_was_trained(pair: Pair, tmp_path: Path) -> None:
    found = captured(tmp_path, Point("EAGLE3", TREE))
    header = found.dump.header
    assert (header.layers, header.drafts_per_round, header.temperature) == (8, STEPS, 0.0)
    assert header.engine.startswith("SGLang 0.")
    assert "captured with EAGLE3 num_steps=3 topk=1" in header.notes
    check_tokens(found)
    for sequence in found.dump:
        assert sorted(sequence.states) == [*range(NORM + 1)]
        check_states(pair, sequence)
        bn, after = sequence.states[NORM - 1], sequence.states[NORM]
        scale = torch.rsqrt(bn.square().mean(-1, keepdim=True) + 1e-5)
        assert torch.allclose(after, bn * scale * pair.target["model.norm.weight"], rtol=1e-4, atol=1e-5)
        given = torch.cat([sequence.states[b] for b in (2, 4, 5)], dim=-1)
        assert sequence.served_aux is not None and sequence.served_fc is not None
        assert torch.equal(sequence.served_aux, given)
        assert torch.allclose(sequence.served_fc, given @ pair.head["fc.weight"].T, rtol=1e-4, atol=1e-4)
        check_rounds(pair, sequence, (2, 4, 5))


def test_ids_one_too_high_are_seen_in_what_is_given(pair: Pair, tmp_path: Path) -> None:
    head = tmp_path / "head"
    shutil.copytree(PAIR / "head", head)
    config = json.loads((head / "config.json").read_text())
    config["eagle_config"] = {
        "eagle_aux_hidden_state_layer_ids": [2, 4, 5]
    }  # outputs of these layers: one more
    (head / "config.json").write_text(json.dumps(config))
    found = captured(tmp_path, Point("EAGLE3", CHAIN), head, chosen=(2, 5))
    check_tokens(found)
    for sequence in found.dump:
        assert sorted(sequence.states) == [2, 5]
        assert sequence.served_aux is not None
        given = features([state[None] for state in truth(pair, sequence)], (3, 5, 6))[0]
        assert torch.allclose(sequence.served_aux, given, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(sequence.served_aux[:, :128], sequence.states[2], rtol=1e-1, atol=1e-1)
        check_rounds(pair, sequence, (3, 5, 6))


def test_with_the_algorithm_eagle_the_last_state_is_given_and_no_fusion_runs(tmp_path: Path) -> None:
    found = captured(tmp_path, Point("EAGLE", CHAIN), chosen=(8, NORM))
    check_tokens(found)
    for sequence in found.dump:
        assert sequence.served_fc is None
        assert sequence.served_aux is not None
        assert torch.equal(sequence.served_aux, sequence.states[NORM])
    assert found.counted is not None
    assert found.counted.accepted_tokens < found.counted.drafts / 3


@dataclass
class TensorDump:
    """SGLang's own dump, as an Instrument."""

    folder: Path

    @property
    def words(self) -> tuple[str, ...]:
        off = ("--disable-cuda-graph", "--disable-radix-cache", "--disable-overlap-schedule")
        return ("--debug-tensor-dump-output-folder", str(self.folder), *off)

    @property
    def variables(self) -> Mapping[str, str]:
        return {"TENSOR_DUMP_TOP_LEVEL_MODULE_NAME": "logits_processor"}


def test_sglangs_own_tensor_dump_is_read_as_the_same(pair: Pair, tmp_path: Path) -> None:
    setup = setup_of(tmp_path / "run", PAIR / "head", temperature=0.0)
    (prompt,) = usual_prompts(setup, 1)
    window = Window(Cell("dump", "closed(1)"), Closed(1), [replace(prompt, max_tokens=12)])
    quiet = replace(setup, windows={}, warm_up=[prompt])
    with up(quiet, Point("EAGLE3", CHAIN), "dump", instrument=TensorDump(tmp_path / "dump")) as arm:
        measure(quiet, arm, window, None)
    assert arm.failure is None
    warm_up, found = open_dump(tmp_path / "dump", layers=8)
    prompt_ids = found.token_ids[: found.prompt_tokens].tolist()
    assert prompt_ids == warm_up.token_ids[: found.prompt_tokens].tolist()
    assert sorted(found.states) == [*range(NORM + 1)]
    check_states(pair, found)
    assert found.served_ids is not None and found.served_fc is not None
    assert found.served_ids.tolist() == found.token_ids[1:].tolist()
    given = torch.cat([found.states[b] for b in (2, 4, 5)], dim=-1)
    assert torch.allclose(found.served_fc, given @ pair.head["fc.weight"].T, rtol=1e-4, atol=1e-4)
    expected = accepted_counts(pair, prompt_ids, STEPS, ANSWER_TOKENS)
    assert 1 < len(found.accepted) < len(expected)
    assert list(found.accepted) == expected[: len(found.accepted)]
