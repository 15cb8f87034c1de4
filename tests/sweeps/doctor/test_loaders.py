"""Dumps of others: whose layers are which boundaries, and what is said of files that are damaged."""

import gzip
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from results.errors import UsageError
from results.hidden_states import Dump, DumpHeader, HiddenStates
from sweeps.doctor.loaders import open_dump

LAYERS, S, H = 61, 5, 4
IDS = torch.arange(10, 10 + S)
MASK = torch.tensor([0, 0, 1, 1, 1])


def state(number: int) -> torch.Tensor:
    return torch.full((S, H), float(number))


def packed(content: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    torch.save(dict(content), file)
    return file.getvalue()


def in_order(found: HiddenStates) -> dict[int, float]:
    """The number by which each state was made, by boundary."""
    return {boundary: float(tensor[0, 0]) for boundary, tensor in found.states.items()}


def test_tuners_own_needs_nothing_said(tmp_path: Path) -> None:
    own = HiddenStates(IDS, 2, {3: state(1)})
    Dump.write(tmp_path, DumpHeader(LAYERS), iter([own]))
    (found,) = open_dump(tmp_path)
    assert in_order(found) == {3: 1.0}


def test_speculators_now_writes_boundaries_and_the_last_before_the_norm(tmp_path: Path) -> None:
    for number in (2, 10, 9):
        slots = torch.stack([state(number + slot) for slot in range(4)], dim=1)
        save_file({"hidden_states": slots, "token_ids": IDS}, tmp_path / f"hs_{number}.safetensors")
    found = open_dump(tmp_path, layers=LAYERS)
    assert found.header.engine == "speculators"
    assert [in_order(s) for s in found] == [{2: n, 30: n + 1, 58: n + 2, 61: n + 3} for n in (2, 9, 10)]
    assert all(s.token_ids.tolist() == IDS.tolist() and s.served_aux is None for s in found)


def test_speculators_before_wrote_outputs_of_layers(tmp_path: Path) -> None:
    """Of four tensors none is the embedding: the first is b3."""
    states = [state(slot) for slot in range(4)]
    content = {"input_ids": IDS, "loss_mask": MASK, "hidden_states": states}
    (tmp_path / "data_0.pt").write_bytes(packed(content))
    (found,) = open_dump(tmp_path, layers=LAYERS)
    assert in_order(found) == {3: 0, 31: 1, 59: 2, 61: 3}
    assert found.prompt_tokens == 2


@pytest.mark.parametrize("is_batch", [False, True], ids=["as on disk", "as in a batch"])
@pytest.mark.parametrize("name", ["data_0.ckpt", "data_0.ckpt.gz"])
def test_specforge_calls_two_things_hidden_state(tmp_path: Path, name: str, is_batch: bool) -> None:
    wide, last = torch.cat([state(0), state(1), state(2)], dim=-1)[None], state(3)[None]
    content = (
        {"hidden_state": wide, "target": last}
        if is_batch
        else {"aux_hidden_state": wide, "hidden_state": last}
    )
    content |= {"input_ids": IDS[None], "loss_mask": MASK[None]}
    data = packed(content)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (found,) = open_dump(tmp_path, layers=LAYERS)
    assert in_order(found) == {2: 0, 30: 1, 58: 2, 62: 3}
    assert found.token_ids.shape == (S,)
    assert found.prompt_tokens == 2


def test_the_connector_of_vllm_writes_what_it_was_told(tmp_path: Path) -> None:
    slots = torch.stack([state(0), state(1)], dim=1)
    file = tmp_path / "cmpl-1.safetensors"
    save_file({"hidden_states": slots, "token_ids": IDS}, file)
    with pytest.raises(UsageError, match="name their boundaries"):
        open_dump(tmp_path, layers=LAYERS)
    (found,) = open_dump(file, layers=LAYERS, boundaries=[0, 62])
    assert in_order(found) == {0: 0, 62: 1}


def test_other_layers_than_by_habit_are_named(tmp_path: Path) -> None:
    slots = torch.stack([state(0), state(1), state(2)], dim=1)
    save_file({"hidden_states": slots, "token_ids": IDS}, tmp_path / "hs_0.safetensors")
    (found,) = open_dump(tmp_path, layers=LAYERS, boundaries=[1, 0, 61])
    assert in_order(found) == {1: 0, 0: 1, 61: 2}
    with pytest.raises(UsageError, match="3 states a token, for boundaries"):
        list(open_dump(tmp_path, layers=LAYERS))
    with pytest.raises(UsageError, match="0 to 62"):
        open_dump(tmp_path, layers=LAYERS, boundaries=[1, 2, 63])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("hs_0.safetensors", b"\x08\0\0\0\0\0\0\0nonsense", "token_ids \\[S\\]"),
        ("data_0.pt", b"nonsense", "a list hidden_states"),
        ("data_0.pt", packed({"input_ids": IDS, "hidden_states": torch.zeros(2, S, H)}), "not a list"),
        ("data_0.pt", packed({"input_ids": IDS}), "hidden_states"),
        (
            "data_0.pt",
            packed({"input_ids": IDS[:2], "hidden_states": [state(0)] * 4}),
            "5 rows .* for 2 tokens",
        ),
        ("a.ckpt", packed({"input_ids": IDS, "hidden_state": state(0)}), "aux_hidden_state"),
        ("a.ckpt.gz", gzip.compress(b"nonsense" * 9)[:-9], "SpecForge"),
        ("notes.txt", b"", "expected dump.json"),
    ],
)
def test_damaged_and_foreign_files_are_told_apart(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=said):
        list(open_dump(tmp_path, layers=LAYERS))


class Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("harm"),)


def test_nothing_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data_0.pt").write_bytes(packed({"input_ids": IDS, "hidden_states": Harm()}))
    with pytest.raises(UsageError, match="speculators before"):
        list(open_dump(tmp_path, layers=LAYERS))
    assert not (tmp_path / "harm").exists()


def test_layers_and_folder_are_needed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such dump"):
        open_dump(tmp_path / "absent", layers=LAYERS)
    with pytest.raises(UsageError, match="how many layers"):
        open_dump(tmp_path)


# SGLang's tensor dump


def dumped(folder: Path, number: int, positions: list[int], ids: list[int], **tensors: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "logits_processor.forward_batch_info.input_ids": torch.tensor(ids),
        "logits_processor.forward_batch_info.positions": torch.tensor(positions),
    }
    torch.save({**told, **tensors}, folder / f"Pass{number:05d}.pt")


def rows(positions: list[int], plus: float) -> torch.Tensor:
    return torch.tensor(positions, dtype=torch.float32)[:, None].repeat(1, H) + plus


def target_pass(folder: Path, number: int, positions: list[int], ids: list[int]) -> None:
    def of(boundary: int) -> torch.Tensor:
        return rows(positions, 100.0 * boundary)

    modules = {"model.embed_tokens": of(0), "model.layers.0.input_layernorm": of(9)}
    modules |= {"model.layers.1.input_layernorm": [of(9), of(1)], "model.norm": [of(3), of(2)]}
    dumped(folder / "target" / "TP0_PP0_Rank0_pid7", number, positions, ids, **modules)


def tensor_dumped(folder: Path) -> Path:
    """A prompt of 3, a round of 2 drafts of which 1 is right, a second round, and another prompt."""
    target_pass(folder, 0, [0, 1, 2], [5, 6, 7])
    target_pass(folder, 1, [3, 4, 5], [8, 9, 99])
    target_pass(folder, 2, [5, 6, 7], [10, 98, 97])
    target_pass(folder, 3, [0], [1])  # asked for its health
    target_pass(folder, 4, [0, 1], [5, 5])
    draft = folder / "draft" / "TP0_PP0_Rank0_pid7"
    dumped(draft, 0, [0, 1, 2], [6, 7, 8], **{"model.fc": rows([0, 1, 2], 0.5)})
    dumped(draft, 1, [3], [9])  # a step of the draft
    dumped(draft, 2, [3, 4, 5], [9, 10, 96], **{"model.fc": rows([3, 4, 5], 0.5)})
    dumped(draft, 3, [5, 6, 7], [11, 12, 13], **{"model.fc": rows([5, 6, 7], 0.5)})
    dumped(draft, 4, [0], [5], **{"model.fc": rows([0], 0.5)})
    dumped(draft, 5, [0, 1], [5, 6], **{"model.fc": rows([0, 1], 0.5)})
    return folder


def test_the_tensor_dump_of_sglang_becomes_requests(tmp_path: Path) -> None:
    dump = open_dump(tensor_dumped(tmp_path), layers=2)
    first, second = dump
    assert first.token_ids.tolist() == [5, 6, 7, 8, 9, 10]
    assert first.prompt_tokens == 3
    assert sorted(first.states) == [0, 1, 2, 3]
    for boundary, tensor in first.states.items():
        assert tensor[:, 0].tolist() == [100.0 * boundary + p for p in range(5)]
    assert first.served_ids is not None and first.served_fc is not None
    assert first.served_ids.tolist() == [6, 7, 8, 9, 10]
    assert first.served_fc[:, 0].tolist() == [p + 0.5 for p in range(5)]
    assert first.accepted == (1,)
    assert second.token_ids.tolist() == [5, 5]
    assert len(dump) == 2


def test_a_tensor_dump_of_several_at_once_is_refused(tmp_path: Path) -> None:
    target_pass(tmp_path, 0, [0, 1, 0, 1], [5, 6, 5, 6])
    with pytest.raises(UsageError, match="several requests"):
        open_dump(tmp_path, layers=2)


def test_a_tensor_dump_without_tokens_says_what_it_needs(tmp_path: Path) -> None:
    folder = tmp_path / "TP0_PP0_Rank0_pid7"
    folder.mkdir()
    torch.save({"model.norm": [state(0), state(1)]}, folder / "Pass00000.pt")
    with pytest.raises(UsageError, match="TENSOR_DUMP_TOP_LEVEL_MODULE_NAME"):
        open_dump(tmp_path, layers=2)
    (folder / "Pass00001.pt").write_bytes(b"nonsense")
    with pytest.raises(UsageError, match="damaged"):
        open_dump(tmp_path, layers=2)
