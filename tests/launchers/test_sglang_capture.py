"""SGLang's capture without an SGLang: what its plugin writes of passes made by hand; how it is started."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from launchers.engines import captures, instrumented
from launchers.engines.sglang import capture
from launchers.engines.sglang.engine import Sglang
from launchers.engines.sglang.inside_capture import Watch, decoder_of
from launchers.launcher import Launch
from results.errors import MeasurementInvalid, UsageError
from results.hidden_states import HiddenStates
from results.records import BASELINE, Point
from tests.launchers.sglang_folders import EAGLE3, STUB, model_folder

LAYERS, H = 3, 2
CHAIN = Point("EAGLE3", {"num_steps": 2, "topk": 1})
TREE = Point("EAGLE3", {"num_steps": 2, "topk": 4, "draft_tokens": 8})


class Module(nn.Module):  # type: ignore[misc]  # torch is not looked into
    """Any module."""


class Norm(Module):
    """Adds in place, as SGLang's kernels do, and gives the sum beside a third of it."""

    def forward(self, hidden: Tensor, residual: Tensor | None = None) -> Any:
        if residual is None:
            return hidden / 3
        residual += hidden
        return residual / 3, residual

    def forward_with_allreduce_fusion(self, hidden: Tensor, residual: Tensor) -> Any:
        return self.forward(hidden, residual)


class Layer(Module):
    """Adds one to the stream; `experts` is a list that is longer than that of the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = Norm()
        self.experts = nn.ModuleList(nn.Identity() for _ in range(LAYERS + 2))

    def forward(self, hidden: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        if residual is None:
            _, residual = self.input_layernorm(hidden), hidden.clone()
        else:
            _, residual = self.input_layernorm(hidden, residual)
        return torch.ones_like(hidden), residual


class FusedLayer(Layer):
    def forward(self, hidden: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        assert residual is not None
        _, residual = self.input_layernorm.forward_with_allreduce_fusion(hidden, residual)
        return torch.ones_like(hidden), residual


class BareLayer(Module):
    """Has no norm to begin with."""

    def forward(self, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ones_like(hidden), hidden + residual


class Decoder(Module):
    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.embed_tokens = nn.Identity()
        self.layers = nn.ModuleList(layers)
        self.norm = Norm()

    def forward(self, embedded: Tensor) -> Tensor:
        hidden, residual = embedded, None
        for layer in self.layers:
            hidden, residual = layer(hidden, residual)
        normed: Tensor = self.norm(hidden, residual)[0]
        return normed


class Model(Module):
    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.visual = nn.Module()
        self.model = Decoder(layers)


class Head(Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.fc = nn.Linear(2 * H, H, bias=False)
        nn.init.ones_(self.model.fc.weight)


class Server:
    """A scheduler's process: its target and its drafter, as SGLang's ModelRunner runs them."""

    def __init__(
        self, folder: Path, layers: Sequence[nn.Module] = (), boundaries: list[int] | None = None
    ) -> None:
        self.watch = Watch({"folder": str(folder), "layers": LAYERS, "boundaries": boundaries})
        layers = layers or [Layer() for _ in range(LAYERS)]
        self.target = SimpleNamespace(is_draft_worker=False, model=Model(layers))
        self.drafter = SimpleNamespace(is_draft_worker=True, model=Head(), draft_model_idx=None)
        for runner in (self.target, self.drafter):
            self.watch.loaded(None, runner)

    def run(self, runner: Any, run: Callable[[], object], batch: Any) -> object:
        return self.watch.passing(lambda _runner, **_batch: run(), runner, forward_batch=batch)

    def round(
        self, mode: str, requests: str, at: list[list[int]], kept: list[int] | None = None, size: int = 9
    ) -> None:
        """Positions of each request; its tokens are 10 times those, and embedded as such."""
        positions = torch.tensor([p for own in at for p in own])
        told: dict[str, Any] = {"rids": requests.split(), "positions": positions, "spec_info": None}
        told["extend_seq_lens"] = torch.tensor([len(own) for own in at])
        told["orig_seq_lens"] = torch.tensor([size] * len(at))
        embedded = (10.0 * positions)[:, None].repeat(1, H)
        batch = SimpleNamespace(forward_mode=SimpleNamespace(name=mode), input_ids=10 * positions, **told)
        self.run(self.target, lambda: self.target.model.model(embedded), batch)
        after = {"TARGET_VERIFY": "DRAFT_EXTEND_V2"}.get(mode, mode)
        spec = SimpleNamespace(hidden_states=torch.cat([embedded, embedded], dim=-1))
        spec.num_accept_tokens = None if kept is None else torch.tensor(kept)
        told["spec_info"] = spec
        batch = SimpleNamespace(
            forward_mode=SimpleNamespace(name=after), input_ids=10 * (positions + 1), **told
        )
        self.run(self.drafter, lambda: self.drafter.model.model.fc(spec.hidden_states), batch)


def in_rows(tensor: Tensor | None) -> list[float]:
    assert tensor is not None
    return [float(x) for x in tensor[:, 0]]


def only(folder: Path) -> HiddenStates:
    (found,) = captures.sequences(folder)
    return found


def test_rounds_of_one_request(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.round("EXTEND", "a", [[0, 1, 2]], size=3)
    server.round("TARGET_VERIFY", "a", [[3, 4, 5]], kept=[2])
    server.round("TARGET_VERIFY", "a", [[5, 6, 7]], kept=[1])
    found = only(tmp_path)
    assert found.token_ids.tolist() == [0, 10, 20, 30, 40, 50, 60]
    assert found.prompt_tokens == 3
    assert found.accepted == (1, 0)
    assert found.served_ids is not None and found.served_ids.tolist() == [10, 20, 30, 40, 50, 60]
    for boundary in range(LAYERS + 1):
        assert in_rows(found.states[boundary]) == [10.0 * p + boundary for p in range(6)]
    assert in_rows(found.states[LAYERS + 1]) == pytest.approx([(10.0 * p + LAYERS) / 3 for p in range(6)])
    assert in_rows(found.served_aux) == [10.0 * p for p in range(6)]
    assert in_rows(found.served_fc) == [40.0 * p for p in range(6)]
    assert captures.notes(tmp_path) == ("target: Model", "draft: Head")


def test_chunks_of_prompts_and_requests_side_by_side_are_told_apart(tmp_path: Path) -> None:
    server = Server(tmp_path, boundaries=[1, LAYERS])
    server.round("EXTEND", "a", [[0, 1]], size=4)
    server.round("EXTEND", "a b", [[2, 3], [0, 1, 2]], size=4)
    server.round("TARGET_VERIFY", "a b", [[4, 5], [3, 4]], kept=[1, 2])
    first, second = captures.sequences(tmp_path)
    assert first.token_ids.tolist() == [0, 10, 20, 30, 40, 50]
    assert second.token_ids.tolist() == [0, 10, 20, 30, 40, 50]
    assert (first.prompt_tokens, first.accepted, second.accepted) == (4, (0,), (1,))
    for found in (first, second):
        assert sorted(found.states) == [1, LAYERS]
        assert in_rows(found.states[LAYERS]) == [10.0 * p + LAYERS for p in range(5)]


@pytest.mark.parametrize("kind", [FusedLayer, BareLayer])
def test_where_the_first_norm_is_not_called_or_not_there(tmp_path: Path, kind: type[nn.Module]) -> None:
    server = Server(tmp_path, [Layer(), kind(), kind()])
    server.round("EXTEND", "a", [[0, 1]])
    found = only(tmp_path)
    for boundary in range(LAYERS + 1):
        assert in_rows(found.states[boundary]) == [10.0 * p + boundary for p in range(2)]


def test_what_is_made_up_and_the_steps_of_a_draft_leave_nothing(tmp_path: Path) -> None:
    server = Server(tmp_path)
    for mode in ("EXTEND", "IDLE", "DECODE"):
        server.round(mode, "", [[0, 1]])
    server.round("DECODE", "a", [[0, 1]])
    server.round("EXTEND", "HEALTH_CHECK_1", [[0]])
    assert not list(tmp_path.glob("*.safetensors"))
    with pytest.raises(MeasurementInvalid, match="did not run"):
        captures.sequences(tmp_path)


def test_a_fusion_of_a_state_with_the_embedding_is_none_of_states(tmp_path: Path) -> None:
    """As EAGLE's own heads do: a tensor of another width than what the drafter is given."""
    server = Server(tmp_path)
    server.drafter.model.model.fc.register_forward_pre_hook(
        lambda _, args: (args[0].repeat(1, 1)[:, : 2 * H],)
    )
    server.round("EXTEND", "a", [[0, 1]])
    assert only(tmp_path).served_fc is not None
    server.watch.now = {"served_aux": torch.zeros(2, H)}
    server.watch.on_fusion(None, (torch.zeros(2, 2 * H),), torch.zeros(2, H))
    assert "served_fc" not in server.watch.now


def test_other_ranks_write_what_their_drafter_is_given(tmp_path: Path) -> None:
    server = Server(tmp_path, boundaries=[])
    server.watch.rank = 1
    server.round("EXTEND", "a", [[0, 1]])
    (found,) = captures.sequences(tmp_path, rank=1)
    assert in_rows(found.served_aux) == [0, 10]
    assert not found.states


def test_a_fault_is_told_and_ends_nothing(tmp_path: Path) -> None:
    server = Server(tmp_path)
    strange = SimpleNamespace(forward_mode=SimpleNamespace(name="EXTEND"), rids=["a"])
    for _ in range(2):
        assert server.run(server.target, lambda: "its result", strange) == "its result"
    server.round("EXTEND", "a", [[0, 1]])
    with pytest.raises(MeasurementInvalid, match=r"AttributeError: .* 'orig_seq_lens'$"):
        captures.sequences(tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))


def test_no_room_ends_nothing(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.watch.folder = tmp_path / "absent"
    server.round("EXTEND", "a", [[0, 1]])
    assert server.watch.is_off


def half(_layer: Any, _args: Any, output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return output[0][:1], output[1][:1]


def test_states_of_another_number_of_rows_are_refused(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.target.model.model.layers[1].register_forward_hook(half)
    server.round("EXTEND", "a", [[0, 1]])
    with pytest.raises(MeasurementInvalid, match="1 rows of states for 2 tokens"):
        captures.sequences(tmp_path)


def test_a_model_with_other_layers_is_refused(tmp_path: Path) -> None:
    Server(tmp_path, [Layer()])
    with pytest.raises(MeasurementInvalid, match="Model has no list of 3 layers"):
        captures.sequences(tmp_path)


def test_layers_are_no_experts_and_no_tower_for_images() -> None:
    model = Model([Layer() for _ in range(LAYERS)])
    model.visual.blocks = nn.ModuleList(nn.Identity() for _ in range(LAYERS))
    parent, layers = decoder_of(model, LAYERS)
    assert isinstance(parent, Decoder)
    assert len(layers) == LAYERS


# How a server is started with it


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sglang:
    """The stand-in, with plugins."""
    site = tmp_path / "site"
    site.mkdir()
    for entry in STUB.iterdir():
        (site / entry.name).symlink_to(entry)
    (site / "sglang").unlink()
    (site / "sglang" / "srt" / "plugins").mkdir(parents=True)
    (site / "sglang" / "__init__.py").touch()
    (site / "sglang" / "srt" / "plugins" / "__init__.py").write_text("def load_plugins(): ...")
    for entry in (STUB / "sglang" / "srt").iterdir():
        (site / "sglang" / "srt" / entry.name).symlink_to(entry)
    monkeypatch.setenv("PYTHONPATH", str(site))
    return Sglang(sys.executable)


def served(sglang: Sglang, folder: Path, **args: Any) -> Any:
    model, draft = model_folder(folder / "model"), model_folder(folder / "draft", EAGLE3)
    return sglang.resolve(str(model), str(draft), args, {})


def test_the_launch_finds_the_plugin_beside_what_it_found_before(sglang: Sglang, tmp_path: Path) -> None:
    found = sglang.capture(TREE, served(sglang, tmp_path), tmp_path, boundaries=[5, 2, 2])
    assert found.point == CHAIN
    assert found.header.notes[1] == "captured with EAGLE3 num_steps=2 topk=1"
    assert (found.header.layers, found.header.drafts_per_round) == (8, 2)
    launch = instrumented(Launch(("python",), 1, Path("log")), found)
    assert launch.writes == (tmp_path,)
    plugin, before = str(launch.env["PYTHONPATH"]).split(":")
    assert before == str(tmp_path / "site")
    (entry,) = [
        entry
        for found_there in metadata.Distribution.discover(path=[plugin])
        for entry in found_there.entry_points
        if entry.group == "sglang.srt.plugins"
    ]
    assert entry.value == "tuner_sglang_capture:register"
    assert json.loads(str(launch.env["TUNER_CAPTURE"])) == {
        "folder": str(tmp_path),
        "layers": 8,
        "boundaries": [2, 5],
    }
    code = "import tuner_sglang_capture as c; c.Watch({'folder': '.', 'layers': 1, 'boundaries': None})"
    subprocess.run([sys.executable, "-P", "-c", code], check=True, cwd=plugin, env={"PYTHONPATH": plugin})


def test_a_choice_of_plugins_is_kept(sglang: Sglang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sglang.capture(CHAIN, served(sglang, tmp_path), tmp_path)
    assert "SGLANG_PLUGINS" not in found.variables
    monkeypatch.setenv("SGLANG_PLUGINS", "theirs")
    found = sglang.capture(CHAIN, served(sglang, tmp_path), tmp_path)
    assert found.variables["SGLANG_PLUGINS"] == "tuner_sglang_capture,theirs"
    assert len(found.header.notes) == 1  # it is a chain already


def test_what_shows_nothing_is_refused_before_the_start(
    sglang: Sglang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="none: no drafter"):
        sglang.capture(BASELINE, served(sglang, tmp_path), tmp_path)
    with pytest.raises(UsageError, match="STANDALONE: no drafter"):
        sglang.capture(Point("STANDALONE"), served(sglang, tmp_path), tmp_path)
    with pytest.raises(UsageError, match="0 to 9"):
        sglang.capture(CHAIN, served(sglang, tmp_path), tmp_path, boundaries=[10])
    with pytest.raises(UsageError, match="--pp-size 2: no one process"):
        capture.check(CHAIN, {"pp_size": 2, "tp_size": 8})
    monkeypatch.setenv("PYTHONPATH", str(STUB))
    with pytest.raises(UsageError, match="has no plugins"):
        sglang.capture(CHAIN, served(sglang, tmp_path), tmp_path)
