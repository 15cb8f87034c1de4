"""What is captured inside vLLM on a CPU, against the tiny pair computed from its definition.

A server takes a quarter of a minute to start: three serve all tests of this file.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import pytest
import requests
import torch
from safetensors.torch import load_file
from torch import Tensor

from launchers.engines import instrumented, launch_of
from launchers.engines.engine import Served
from launchers.engines.vllm.capture import VllmCapture
from launchers.engines.vllm.engine import Vllm
from launchers.launcher import Endpoint
from launchers.port import free_port
from launchers.process import ProcessLauncher
from results.hidden_states import Dump, HiddenStates
from results.records import KnobValue, Point
from tests.rigs.needed import needed_rig
from tests.rigs.pair.model import target_logits, target_states
from tests.rigs.pair.replay import Pair, accepted_counts
from tests.waiting import wait_for

pytestmark = [pytest.mark.rig, pytest.mark.timeout(900)]
PAIR = Path(__file__).parent / "pair"
START_CAP_S = 300
ARGS: dict[str, KnobValue] = {
    "dtype": "float32",
    "max-model-len": 1024,
    "max-num-seqs": 8,
    "max-num-batched-tokens": 1024,
}
ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
DRAFTS, TOKENS = 3, 48
LAYERS = 8
CHUNK = 48  # tokens, fewer than the prompts have
PROMPTS = [json.loads(line)["prompt"] for line in (PAIR / "prompts.jsonl").read_text().splitlines()]
TARGET, HEAD = (load_file(PAIR / name / "model.safetensors") for name in ("target", "head"))


@dataclass(frozen=True)
class Captured:
    """What a server with a head of these files wrote, and what it said."""

    capture: VllmCapture
    sequences: Sequence[HiddenStates]
    answers: Sequence[Sequence[int]]
    log: str


def captured(
    folder: Path, head: Path, boundaries: Sequence[int] | None = None, prompts: int = 6, **args: KnobValue
) -> Captured:
    engine = Vllm(str(needed_rig("vllm")))
    named = {name.replace("_", "-"): value for name, value in args.items()}
    served = Served(PAIR / "target", head, {**ARGS, **named}, ENV)
    point = engine.canonical(Point("eagle3", {"num_speculative_tokens": DRAFTS}))
    capture = engine.capture(point, served, folder / "capture", boundaries)
    launch = launch_of(engine, served, point, free_port(), folder / "log")
    with ExitStack() as stack:
        endpoint = stack.enter_context(ProcessLauncher(folder).start(instrumented(launch, capture)))
        wait_for(lambda: engine.is_ready(endpoint) or endpoint.exit_code() is not None, START_CAP_S)
        answers = [answer(endpoint, prompt) for prompt in PROMPTS[:prompts]]
        sequences = list(capture.sequences())  # while it is up: what was answered is on disk
    return Captured(capture, sequences, answers, (folder / "log").read_text("utf-8", "replace"))


def answer(endpoint: Endpoint, prompt: str) -> list[int]:
    asked = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    told = requests.post(
        f"{endpoint.base_url}/v1/completions", json={**asked, "return_token_ids": True}, timeout=120
    ).json()
    return [*told["choices"][0]["prompt_token_ids"], *told["choices"][0]["token_ids"]]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    return captured(tmp_path_factory.mktemp("healthy"), PAIR / "head")


AS_SGLANG = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]}}


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """A head that names its layers as SGLang reads them: the outputs of 1, 3 and 4, which are b2, b4, b5.

    Its server takes prompts in chunks.
    """
    folder = tmp_path_factory.mktemp("nested")
    head = head_with(folder, AS_SGLANG)
    return captured(folder, head, boundaries=(1, 2, 3, 4, 5), max_num_batched_tokens=CHUNK)


@pytest.fixture(scope="module")
def top_level(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """The same head, which names others by the key that vLLM looks for first, in another order."""
    folder = tmp_path_factory.mktemp("top-level")
    head = head_with(folder, {**AS_SGLANG, "eagle_aux_hidden_state_layer_ids": [6, 3, 5]})
    return captured(folder, head, boundaries=(3, 5, 6), prompts=2)


def head_with(folder: Path, keys: Mapping[str, object]) -> Path:
    head = Path(copytree(PAIR / "head", folder / "head"))
    config = json.loads((head / "config.json").read_text())
    (head / "config.json").write_text(json.dumps({**config, **keys}))
    return head


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def truth(sequence: HiddenStates) -> dict[int, Tensor]:
    """The target's states, N among them, in float32."""
    with torch.no_grad():
        states = target_states(TARGET, sequence.token_ids[None])
        eye = {**TARGET, "lm_head.weight": torch.eye(states[0].shape[-1])}
        return {b: state[0] for b, state in enumerate([*states, target_logits(eye, states[-1])])}


def off(found: Tensor, right: Tensor) -> float:
    """The largest relative error of a row."""
    right = right[: len(found)]
    return float(((found - right).norm(dim=-1) / right.norm(dim=-1)).max())


def test_each_request_is_a_sequence_of_what_was_said(healthy: Captured) -> None:
    assert [s.token_ids.tolist() for s in healthy.sequences] == healthy.answers
    for sequence in healthy.sequences:
        assert sequence.prompt_tokens == len(sequence.token_ids) - TOKENS
        assert {len(state) for state in sequence.states.values()} == {len(sequence.token_ids) - 1}


def test_the_target_s_states_are_those_of_its_definition(healthy: Captured) -> None:
    for sequence in healthy.sequences:
        right = truth(sequence)
        assert sorted(sequence.states) == list(range(LAYERS + 2))
        for boundary, state in sequence.states.items():
            assert off(state, right[boundary]) < 1e-5


def test_the_drafter_is_given_the_default_boundaries_and_the_next_token(healthy: Captured) -> None:
    for sequence in healthy.sequences:
        assert sequence.served_aux is not None
        assert sequence.served_fc is not None
        assert sequence.served_ids is not None
        given = torch.cat([sequence.states[b] for b in (2, 4, 5)], dim=-1)
        assert torch.equal(sequence.served_aux, given)
        assert off(sequence.served_fc, given @ HEAD["fc.weight"].T) < 1e-5
        assert torch.equal(sequence.served_ids, sequence.token_ids[1:])


def test_the_accepted_drafts_are_those_of_the_replay(healthy: Captured) -> None:
    pair = Pair(TARGET, HEAD)
    for sequence in healthy.sequences:
        prompt = sequence.token_ids[: sequence.prompt_tokens].tolist()
        with torch.no_grad():
            assert list(sequence.accepted) == accepted_counts(pair, prompt, DRAFTS, TOKENS)


def test_the_header_says_what_ran(healthy: Captured, tmp_path: Path) -> None:
    header = healthy.capture.header
    assert (header.layers, header.engine, header.drafts_per_round) == (LAYERS, "vLLM 0.32.0", DRAFTS)
    assert "auxiliary layers from" not in healthy.log  # of a default the older runner says nothing
    assert "layers the target passes on: (2, 4, 5)" in header.notes
    assert any("CPUModelRunner" in note for note in header.notes)
    dump = Dump.write(tmp_path / "dump", header, iter(healthy.sequences))
    assert dump.header == header
    assert [s.accepted for s in dump] == [s.accepted for s in healthy.sequences]


@pytest.mark.parametrize(("named", "served"), [((1, 3, 4), (1, 3, 4)), ((6, 3, 5), (3, 5, 6))])
def test_ids_of_layers_are_boundaries_here(
    named: tuple[int, ...], served: tuple[int, ...], nested: Captured, top_level: Captured
) -> None:
    found = nested if served == (1, 3, 4) else top_level
    assert f"Using auxiliary layers from speculative config: {named}" in found.log
    for sequence in found.sequences:
        assert sequence.served_aux is not None
        right = truth(sequence)
        for given, boundary in zip(sequence.served_aux.chunk(3, dim=-1), served, strict=True):
            assert torch.equal(given, sequence.states[boundary])
            assert off(given, right[boundary]) < 1e-5
            assert off(given, right[boundary + 1]) > 0.05


def test_the_boundaries_asked_for_are_kept(nested: Captured, top_level: Captured) -> None:
    assert {tuple(sorted(s.states)) for s in nested.sequences} == {(1, 2, 3, 4, 5)}
    assert {tuple(sorted(s.states)) for s in top_level.sequences} == {(3, 5, 6)}


def test_at_the_end_of_a_chunk_the_drafter_is_given_the_prompt_s_last_token(nested: Captured) -> None:
    """So vLLM 0.32.0 does, and acceptance suffers: it is seen here, and nothing is put right on the way."""
    for sequence in nested.sequences:
        assert sequence.served_ids is not None
        expected = sequence.token_ids[1:].clone()
        last = sequence.prompt_tokens - 1
        expected[CHUNK - 1 : last : CHUNK] = sequence.token_ids[last]
        assert torch.equal(sequence.served_ids, expected)
