"""How vLLM is told to capture, and what its plugin sees of both model runners, played by small ones."""

import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from launchers.engines.captures import sequences
from launchers.engines.engine import Served
from launchers.engines.vllm.capture import ASKED, SPLIT
from launchers.engines.vllm.capture import check as check_capture
from launchers.engines.vllm.inside_capture import ASKED as ASKED_INSIDE
from launchers.engines.vllm.inside_capture import Watch
from results.errors import MeasurementInvalid, UsageError
from results.hidden_states import HiddenStates
from results.records import Point
from tests.launchers.hf_folders import EAGLE3, LLAMA, write_folder
from tests.launchers.test_vllm import ENGINE

LAYERS, WIDTH, DRAFTS = 3, 4, 2
POINT = ENGINE.canonical(Point("eagle3", {"num_speculative_tokens": DRAFTS}))


@pytest.fixture
def served(tmp_path: Path) -> Served:
    target = write_folder(tmp_path / "target", {**LLAMA, "num_hidden_layers": 61})
    return Served(target, write_folder(tmp_path / "head", EAGLE3), {}, {})


@pytest.fixture(autouse=True)
def no_plugins_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "VLLM_PLUGINS"):
        monkeypatch.delenv(name, raising=False)


# How it is told


def test_the_words_win_over_those_of_the_command(served: Served, tmp_path: Path) -> None:
    capture = ENGINE.capture(POINT, served, tmp_path / "c")
    assert capture.words == ("--enforce-eager", "--no-enable-prefix-caching", "--no-async-scheduling")
    said = ENGINE.command(POINT, served, 1)
    assert "--no-enforce-eager" in said
    assert "--enable-prefix-caching" in said


def test_what_is_said_already_is_not_said_twice(served: Served, tmp_path: Path) -> None:
    given = replace(served, args={"enforce-eager": True, "no-enable-prefix-caching": True})
    assert ENGINE.capture(POINT, given, tmp_path / "c").words == ("--no-async-scheduling",)


def test_a_python_finds_the_plugin_by_the_variables(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = ENGINE.capture(POINT, served, tmp_path / "c", boundaries=(5, 2, 2))
    assert json.loads(capture.variables[ASKED]) == {"folder": str(tmp_path / "c"), "boundaries": [2, 5]}
    assert "VLLM_PLUGINS" not in capture.variables
    assert ASKED == ASKED_INSIDE
    monkeypatch.syspath_prepend(capture.variables["PYTHONPATH"])
    [found] = importlib.metadata.entry_points(group="vllm.general_plugins", name="tuner_vllm_capture")
    assert found.load().__name__ == "install"


def test_paths_and_plugins_of_the_user_stay(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/the/shell")
    plugin = str(tmp_path / "c" / "plugin")
    assert ENGINE.capture(POINT, served, tmp_path / "c").variables["PYTHONPATH"] == f"{plugin}:/of/the/shell"
    given = replace(served, env={"PYTHONPATH": "/of/the/sweep", "VLLM_PLUGINS": "mine"})
    variables = ENGINE.capture(POINT, given, tmp_path / "c").variables
    assert variables["PYTHONPATH"] == f"{plugin}:/of/the/sweep"
    assert variables["VLLM_PLUGINS"] == "tuner_vllm_capture,mine"


def test_the_header_is_known_before_a_server_runs(served: Served, tmp_path: Path) -> None:
    given = replace(served, args={"tensor-parallel-size": 8})
    header = ENGINE.capture(POINT, given, tmp_path / "c").header
    assert (header.layers, header.engine, header.tensor_parallel) == (61, "vLLM 0.32.0", 8)
    assert (header.drafts_per_round, header.notes) == (DRAFTS, ())


@pytest.mark.parametrize("flag", SPLIT)
def test_a_pass_split_over_processes_is_refused(flag: str) -> None:
    check_capture("eagle3", {flag: 1})
    with pytest.raises(UsageError, match=f"{flag} 2: .* capture with {flag} 1"):
        check_capture("eagle3", {flag: 2})


@pytest.mark.parametrize("method", ["none", "ngram"])
def test_without_a_drafter_of_states_there_is_nothing_to_see(
    served: Served, tmp_path: Path, method: str
) -> None:
    with pytest.raises(UsageError, match=f"{method}: no drafter that is given states"):
        ENGINE.capture(Point(method, {}), served, tmp_path / "c")


# What it sees


class Layer(nn.Module):  # type: ignore[misc]  # torch is not read by mypy
    """Adds the residual late and in place, as fused norms do."""

    def forward(self, positions: Tensor, hidden: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        if residual is None:
            residual = hidden.clone()
        else:
            residual += hidden
        return residual * 0.5 + 1, residual


class Norm(nn.Module):  # type: ignore[misc]  # torch is not read by mypy
    def forward(self, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        return (hidden + residual) / 7, residual


class Decoder(nn.Module):  # type: ignore[misc]  # torch is not read by mypy
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()

    def forward(self, ids: Tensor, positions: Tensor) -> list[Tensor]:
        hidden, residual = torch.outer(ids.float(), torch.arange(1.0, WIDTH + 1)), None
        given = []
        for layer in self.layers:
            hidden, residual = layer(positions, hidden, residual)
            given.append(hidden + residual)
        self.norm(hidden, residual)
        return given[:2]  # b1 and b2


class Twice(Decoder):
    def forward(self, ids: Tensor, positions: Tensor) -> list[Tensor]:
        super().forward(ids, positions)
        return super().forward(ids, positions)


class Target(nn.Module):  # type: ignore[misc]  # torch is not read by mypy
    def __init__(self) -> None:
        super().__init__()
        self.model = Decoder()


class Head(nn.Module):  # type: ignore[misc]  # torch is not read by mypy
    def combine_hidden_states(self, states: Tensor) -> Tensor:
        return states[:, :WIDTH] - states[:, WIDTH:]

    def forward(self, *, input_ids: Tensor, hidden_states: Tensor) -> Tensor:
        return hidden_states


class Drafter:
    """What both runners' drafters have in common; `ids` is a buffer that is used again for each draft."""

    def __init__(self) -> None:
        self.model = Head()
        self.ids = torch.zeros(64, dtype=torch.int32)

    def draft(self, states: Tensor, ids: Tensor, ends: Sequence[int], next_ids: Tensor) -> str:
        fused = self.model.combine_hidden_states(states)
        self.ids[: len(ids) - 1] = ids[1:]
        self.ids[torch.tensor(ends) - 1] = next_ids.int()
        for _ in range(DRAFTS):
            self.model(input_ids=self.ids[: len(ids)], hidden_states=fused)
            self.ids += 1
        return "drafts"


class OlderDrafter(Drafter):
    def propose(
        self,
        *,
        target_token_ids: Tensor,
        target_positions: Tensor,
        target_hidden_states: Tensor,
        next_token_ids: Tensor,
        common_attn_metadata: Any,
        num_rejected_tokens_gpu: Tensor | None = None,
    ) -> str:
        starts = common_attn_metadata.query_start_loc
        dropped = torch.zeros(len(starts) - 1) if num_rejected_tokens_gpu is None else num_rejected_tokens_gpu
        ends = (starts[1:] - dropped).long().tolist()
        common_attn_metadata.query_start_loc = None  # it is changed for the next steps
        return self.draft(target_hidden_states, target_token_ids, ends, next_token_ids)


class NewerDrafter(Drafter):
    def propose(
        self,
        input_batch: Any,
        aux_hidden_states: list[Tensor],
        num_sampled: Tensor,
        num_rejected: Tensor,
        last_sampled: Tensor,
        next_prefill_tokens: Tensor,
        dummy_run: bool = False,
    ) -> str:
        ends = (input_batch.query_start_loc[1:] - num_rejected).long().tolist()
        slots = input_batch.idx_mapping
        next_ids = torch.where(num_sampled > 0, last_sampled[slots, 0], next_prefill_tokens[slots])
        return self.draft(torch.cat(aux_hidden_states, -1), input_batch.input_ids, ends, next_ids)


class Server:
    """One worker, of which `newer` says how its runner calls the drafter."""

    def __init__(
        self, folder: Path, newer: bool, rank: int = 0, decoder: Decoder | None = None, **asked: Any
    ) -> None:
        self.newer = newer
        self.target = Target()
        self.target.model = decoder or Decoder()
        self.drafter: Any = NewerDrafter() if newer else OlderDrafter()
        runner = SimpleNamespace(get_model=lambda: self.target, input_batch=SimpleNamespace(req_ids=[]))
        setattr(runner, "speculator" if newer else "drafter", self.drafter)
        self.runner = runner
        parallel = SimpleNamespace(tensor_parallel_size=2, data_parallel_rank=0)
        worker = SimpleNamespace(
            model_runner=runner,
            rank=rank,
            parallel_config=parallel,
            speculative_config=SimpleNamespace(parallel_drafting=asked.pop("parallel_drafting", False)),
        )
        self.watch = Watch(worker, {"folder": str(folder), "boundaries": None, **asked})

    def dummy(self) -> None:
        """Runs the models on nobody's behalf, as idle data-parallel ranks do."""
        aux = self.target.model(torch.tensor([1, 1]), torch.tensor([0, 1]))
        if self.newer:
            batch = SimpleNamespace(
                idx_mapping=torch.tensor([0]),
                query_start_loc=torch.tensor([0, 2]),
                input_ids=torch.tensor([1, 1]),
            )
            one = torch.tensor([1])
            self.drafter.propose(batch, aux, one, one * 0, one[None], one, dummy_run=True)

    def step(
        self,
        parts: Mapping[str, tuple[Sequence[int], int, int, int]],
        new: Mapping[str, int] | None = None,
        compacted: bool = False,
    ) -> None:
        """One pass over several requests: (ids, position of the first, rejected, next id) of each.

        `compacted`: the drafter is given no rejected rows at all.
        """
        ids = torch.tensor([i for part, *_ in parts.values() for i in part])
        positions = torch.tensor([at + i for part, at, *_ in parts.values() for i in range(len(part))])
        scheduled = {name: len(part[0]) for name, part in parts.items()}
        started = new or {}
        self.watch.begin(
            SimpleNamespace(
                scheduled_new_reqs=[
                    SimpleNamespace(
                        req_id=name,
                        prompt_token_ids=[0] * tokens,
                        sampling_params=SimpleNamespace(max_tokens=9),
                    )
                    for name, tokens in started.items()
                ],
                finished_req_ids=set(),
                total_num_scheduled_tokens=len(ids),
                num_scheduled_tokens=scheduled,
                scheduled_spec_decode_tokens={
                    name: [-1] * (n - 1) for name, n in scheduled.items() if name not in started and n > 1
                },
            )
        )
        padding = torch.zeros(2, dtype=torch.long)
        aux = self.target.model(torch.cat([ids, padding]), torch.cat([positions, padding]))
        self.watch.is_in_pass = False
        rejected = torch.tensor([part[2] for part in parts.values()])
        next_ids = torch.tensor([part[3] for part in parts.values()])
        starts = torch.tensor([0, *scheduled.values()]).cumsum(0)
        if compacted:
            kept = torch.cat(
                [torch.arange(s, e) for s, e in zip(starts[:-1], starts[1:] - rejected, strict=True)]
            )
            aux = [state[kept] for state in aux]
            ids, positions = ids[kept], positions[kept]
            starts = torch.cat([starts[:1], (starts[1:] - starts[:-1] - rejected).cumsum(0)])
        self.propose(list(parts), ids, positions, aux, starts, None if compacted else rejected, next_ids)

    def propose(
        self,
        requests: list[str],
        ids: Tensor,
        positions: Tensor,
        aux: list[Tensor],
        starts: Tensor,
        rejected: Tensor | None,
        next_ids: Tensor,
    ) -> None:
        if self.newer:
            assert rejected is not None
            slots = torch.arange(len(requests)).flip(0)  # requests lie elsewhere than in the batch
            at = torch.zeros(len(requests), dtype=torch.long)
            at[slots] = next_ids
            batch = SimpleNamespace(
                req_ids=requests,
                idx_mapping=slots,
                query_start_loc=starts,
                input_ids=ids,
                positions=positions,
            )
            sampled = torch.ones(len(requests))
            done = self.drafter.propose(batch, aux, sampled, rejected, at[:, None], at * 0 - 1)
        else:
            self.runner.input_batch.req_ids = requests
            done = self.drafter.propose(
                target_token_ids=ids,
                target_positions=positions,
                target_hidden_states=torch.cat(aux, -1)[: len(ids)],
                next_token_ids=next_ids,
                common_attn_metadata=SimpleNamespace(query_start_loc=starts),
                num_rejected_tokens_gpu=rejected,
            )
        assert done == "drafts"


def check(found: HiddenStates, ids: Sequence[int]) -> None:
    """Against the boundaries of the small target, computed anew."""
    given = torch.tensor(ids[:-1]).float().outer(torch.arange(1.0, WIDTH + 1))
    states = {0: given}
    for layer in range(LAYERS):
        states[layer + 1] = states[layer] * 1.5 + 1
    states[LAYERS + 1] = states[LAYERS] / 7
    assert found.token_ids.tolist() == list(ids)
    assert sorted(found.states) == list(range(LAYERS + 2))
    assert all(torch.allclose(found.states[b], state) for b, state in states.items())
    aux = torch.cat([states[1], states[2]], -1)
    assert found.served_aux is not None
    assert found.served_fc is not None
    assert found.served_ids is not None
    assert torch.allclose(found.served_aux, aux)
    assert torch.allclose(found.served_fc, aux[:, :WIDTH] - aux[:, WIDTH:])
    assert found.served_ids.tolist() == list(ids[1:])


@pytest.mark.parametrize(("newer", "compacted"), [(False, False), (False, True), (True, False)])
def test_two_requests_in_one_pass_with_rejected_drafts(tmp_path: Path, newer: bool, compacted: bool) -> None:
    server = Server(tmp_path, newer)
    server.dummy()
    server.step({"a": ([5, 6, 7], 0, 0, 8), "b": ([3, 4], 0, 0, 5)}, new={"a": 3, "b": 2})
    server.dummy()
    server.step({"a": ([8, 9, 99], 3, 1, 10), "b": ([5, 98, 99], 2, 2, 6)}, compacted=compacted)
    server.step({"a": ([10, 11, 12], 5, 0, 13), "b": ([6, 7, 99], 3, 1, 8)}, compacted=compacted)
    first, second = sequences(tmp_path)
    check(first, [5, 6, 7, 8, 9, 10, 11, 12, 13])
    check(second, [3, 4, 5, 6, 7, 8])
    assert (first.accepted, second.accepted) == ((1, 2), (0, 1))
    assert (first.prompt_tokens, second.prompt_tokens) == (3, 2)


@pytest.mark.parametrize("newer", [False, True])
def test_only_what_is_asked_for_and_on_one_rank(tmp_path: Path, newer: bool) -> None:
    for rank in (0, 1):
        Server(tmp_path, newer, rank, boundaries=[2]).step({"a": ([5, 6, 7], 0, 0, 8)}, new={"a": 3})
    [first], [second] = sequences(tmp_path), sequences(tmp_path, rank=1)
    assert list(first.states) == [2]
    assert second.states == {}
    assert second.served_aux is not None
    assert first.served_aux is not None
    assert torch.equal(first.served_aux, second.served_aux)


def test_a_head_without_a_fusion_layer_is_given_the_state_itself(tmp_path: Path) -> None:
    server = Server(tmp_path, newer=False)
    state = torch.ones(3, WIDTH)
    server.drafter.draft = lambda states, ids, ends, next_ids: str(
        server.drafter.model(input_ids=ids, hidden_states=state) is state and "drafts"
    )
    server.step({"a": ([5, 6, 7], 0, 0, 8)}, new={"a": 3})
    [found] = sequences(tmp_path)
    assert found.served_aux is not None
    assert torch.equal(found.served_aux, state)
    assert found.served_fc is None


def test_what_it_cannot_follow_is_told_and_the_server_goes_on(tmp_path: Path) -> None:
    def reason(folder: Path) -> str:
        with pytest.raises(MeasurementInvalid) as refused:
            sequences(folder)
        return refused.value.evidence

    folders = [tmp_path / name for name in ("twice", "parallel")]
    for folder in folders:
        folder.mkdir()
    Server(folders[0], newer=False, decoder=Twice()).step({"a": ([5, 6, 7], 0, 0, 8)}, new={"a": 3})
    assert "micro-batches cannot be captured" in reason(folders[0])
    Server(folders[1], False, parallel_drafting=True).step({"a": ([5], 0, 0, 8)}, new={"a": 1})
    assert "no token stands for" in reason(folders[1])
