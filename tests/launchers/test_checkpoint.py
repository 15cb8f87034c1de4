"""Model folders read without their weights: configs, headers over many shards, sampled values."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launchers.engines.checkpoint import read_checkpoint
from launchers.engines.safetensors_file import readable, row_bytes, stored_tensors, values
from results.checkpoint import StoredTensor
from results.errors import UsageError
from results.head_config import Head, HeadKind, rope_of, usual_name
from tests.drafters import write_model, write_safetensors

ONE = {"a.weight": np.arange(6, dtype="f4").reshape(3, 2)}
TWO = {"b.weight": np.arange(4, dtype="i8")}


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    folder = write_model(tmp_path / "model", {"num_hidden_layers": 3}, {})
    write_safetensors(folder / "model-1-of-2.safetensors", ONE)
    write_safetensors(folder / "model-2-of-2.safetensors", TWO)
    write_safetensors(folder / "consolidated.safetensors", {"c.weight": np.ones(1, "f4")})
    index = {"weight_map": {"a.weight": "model-1-of-2.safetensors", "b.weight": "model-2-of-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_the_index_says_which_files_count(sharded: Path) -> None:
    checkpoint = read_checkpoint(sharded)
    assert {name: t.shape for name, t in checkpoint.tensors.items()} == {"a.weight": (3, 2), "b.weight": (4,)}
    assert checkpoint.whole("num_hidden_layers") == 3
    assert checkpoint.unread == ()
    (sharded / "model.safetensors.index.json").unlink()
    assert "c.weight" in read_checkpoint(sharded).tensors


def test_a_shard_that_is_not_here_is_said(sharded: Path) -> None:
    (sharded / "model-2-of-2.safetensors").unlink()
    checkpoint = read_checkpoint(sharded)
    assert checkpoint.unread == ("model-2-of-2.safetensors",)
    assert list(checkpoint.tensors) == ["a.weight"]


@pytest.mark.parametrize(
    "content",
    [b"", b"\x05\0\0\0\0\0\0\0{}", b"\x02\0\0\0\0\0\0\0[]", b'\x0b\0\0\0\0\0\0\0{"a":{"x":1}}'],
)
def test_damaged_headers_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="damaged"):
        stored_tensors(path)


def test_a_damaged_index_is_refused(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").write_text('{"weight_map": 3}')
    with pytest.raises(UsageError, match=r"index\.json is damaged"):
        read_checkpoint(sharded)


def test_other_formats_are_named(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", {}, {})
    (folder / "pytorch_model.bin").write_bytes(b"\0")
    assert read_checkpoint(folder).unread == ("pytorch_model.bin",)
    assert read_checkpoint(folder / "pytorch_model.bin").unread == ("pytorch_model.bin",)


def test_rows_are_read_where_they_lie(sharded: Path) -> None:
    tensor = read_checkpoint(sharded).tensors["a.weight"]
    assert values(tensor, [2, 0]).tolist() == [[4, 5], [0, 1]]
    assert values(tensor).tolist() == ONE["a.weight"].tolist()
    assert row_bytes(tensor, [1]) == [ONE["a.weight"][1].tobytes()]


SAMPLE = np.array([0.0, 1.0, -1.5, 0.015625, 448.0, -0.001953125], "f4")


@pytest.mark.parametrize(
    ("dtype", "raw", "expected"),
    [
        ("BF16", (SAMPLE.view("<u4") >> 16).astype("<u2").tobytes(), SAMPLE),
        ("F16", SAMPLE.astype("<f2").tobytes(), SAMPLE),
        ("F8_E4M3", bytes([0x00, 0x38, 0xBC, 0x08, 0x7E, 0x81]), SAMPLE),
        ("F8_E5M2", bytes([0x00, 0x3C, 0xBE, 0x24]), SAMPLE[:4]),
        ("I32", np.array([-1, 7], "<i4").tobytes(), np.array([-1, 7])),
        ("BOOL", bytes([1, 0]), np.array([True, False])),
    ],
)
def test_every_kind_of_number(dtype: str, raw: bytes, expected: Any, tmp_path: Path) -> None:
    path = tmp_path / "raw"
    path.write_bytes(b"head" + raw)
    tensor = StoredTensor((len(expected),), dtype, path, 4, 4 + len(raw))
    assert readable(tensor)
    assert values(tensor).tolist() == expected.tolist()


def test_values_that_are_not_there_are_not_readable(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    path.write_bytes(bytes(8))
    assert readable(StoredTensor((2,), "F32", path, 0, 8))
    assert not readable(StoredTensor((3,), "F32", path, 0, 12))  # a pointer, or cut off
    assert not readable(StoredTensor((3,), "F32", path, 0, 8))
    assert not readable(StoredTensor((2,), "F4", path, 0, 8))


def kind(config: dict[str, Any], tensors: dict[str, Any], folder: Path) -> HeadKind:
    return Head(read_checkpoint(write_model(folder / "x", config, tensors))).kind


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"architectures": ["LlamaForCausalLMEagle3"]}, HeadKind.EAGLE3),
        ({"speculators_model_type": "eagle3"}, HeadKind.EAGLE3),
        ({"architectures": ["LlamaForCausalLMEagle"]}, HeadKind.EAGLE),
        ({"architectures": ["LlamaForCausalLM"], "draft_vocab_size": 5}, HeadKind.EAGLE3),
        ({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 8}, HeadKind.MODEL),
        ({"architectures": ["DeepseekV3ForCausalLMNextN"]}, HeadKind.MTP),
        ({}, HeadKind.UNKNOWN),
    ],
)
def test_kinds_by_config(config: dict[str, Any], expected: HeadKind, tmp_path: Path) -> None:
    assert kind(config, {}, tmp_path) is expected


def test_tensors_say_more_than_the_config(tmp_path: Path) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4}
    assert kind(config, {"fc.weight": np.ones((4, 8), "f4")}, tmp_path / "1") is HeadKind.EAGLE
    assert kind(config, {"fc.weight": np.ones((4, 12), "f4")}, tmp_path / "2") is HeadKind.EAGLE3
    assert (
        kind(config, {"model.midlayer.hidden_norm.weight": np.ones(4, "f4")}, tmp_path / "3")
        is HeadKind.EAGLE3
    )


def test_rotations_in_both_spellings() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0}
    assert rope_of({"rope_theta": 5e5, "rope_scaling": yarn}) == (5e5, yarn)
    assert rope_of({"rope_parameters": {"rope_theta": 5e5, **yarn}}) == (5e5, yarn)
    assert rope_of({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}) == (5e5, None)
    assert rope_of({"rope_scaling": None}) == (None, None)


def test_older_names() -> None:
    assert usual_name("model.midlayer.mlp.up_proj.weight") == "layers.0.mlp.up_proj.weight"
    assert usual_name("aux_norm_mid.weight") == "fc_norm.1.weight"
