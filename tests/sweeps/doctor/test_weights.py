"""Tensors are found by name over shards, and read when they are used."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from results.errors import UsageError
from sweeps.doctor.weights import Weights


def shards(folder: Path) -> Path:
    save_file({"a": torch.ones(2, 3), "b": torch.arange(4)}, folder / "one.safetensors")
    save_file({"c": torch.zeros(5).bfloat16()}, folder / "two.safetensors")
    return folder


def test_all_tensors_of_all_files(tmp_path: Path) -> None:
    found = Weights(shards(tmp_path))
    assert sorted(found) == ["a", "b", "c"] and len(found) == 3
    assert found["a"].shape == (2, 3) and found["c"].dtype == torch.bfloat16
    assert found["b"].tolist() == [0, 1, 2, 3]
    assert "d" not in found


def test_the_index_says_which_file_holds_what(tmp_path: Path) -> None:
    listed = {
        "a": "one.safetensors",
        "c": "two.safetensors",
        "d": "two.safetensors",
        "e": "three.safetensors",
    }
    (shards(tmp_path) / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    found = Weights(tmp_path)
    assert sorted(found) == ["a", "c", "d", "e"]
    assert found["c"].shape == (5,)
    with pytest.raises(UsageError, match=r"two\.safetensors"):
        found["d"]
    with pytest.raises(UsageError, match=r"three\.safetensors cannot be read"):
        found["e"]


def test_no_file_or_a_damaged_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no safetensors files"):
        len(Weights(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UsageError, match=r"model\.safetensors cannot be read"):
        len(Weights(tmp_path))
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(UsageError, match="is damaged"):
        len(Weights(tmp_path))
