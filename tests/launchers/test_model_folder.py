"""Hugging Face model folders: found or refused with what is missing, and known by content."""

import json
from pathlib import Path

import pytest

from launchers.engines.model_folder import find_model_folder, folder_identity, read_config, tensor_names
from results.errors import UsageError
from tests.launchers.hf_folders import LLAMA, write_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    return write_folder(tmp_path / "model", LLAMA, ("a.weight", "b.weight"))


def test_a_complete_folder_is_found(folder: Path) -> None:
    assert find_model_folder(str(folder)) == folder
    assert read_config(folder) == LLAMA
    assert tensor_names(folder) == ["a.weight", "b.weight"]


def test_a_cached_repository_is_found_by_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    cached = tmp_path / "hub" / "models--org--name"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("abc123")
    write_folder(cached / "snapshots" / "abc123", LLAMA)
    assert find_model_folder("org/name") == cached / "snapshots" / "abc123"
    with pytest.raises(UsageError, match="org/other: no such folder"):
        find_model_folder("org/other")


def test_what_is_missing_is_named(folder: Path) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UsageError, match=r"model-1\.safetensors is missing"):
        find_model_folder(str(folder))
    (folder / "config.json").unlink()
    with pytest.raises(UsageError, match=r"config\.json is missing"):
        find_model_folder(str(folder))


@pytest.mark.parametrize("content", [b"", b"\x05\0\0\0\0\0\0\0{oops", b"\xff" * 8 + b"{}"])
def test_damaged_weights_are_refused(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match="no safetensors header"):
        tensor_names(folder)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_config_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(UsageError, match=r"config\.json"):
        read_config(folder)


def test_identity_is_the_content(folder: Path) -> None:
    before = folder_identity(folder)
    (folder / "README.md").write_text("about it")
    assert folder_identity(folder) == before
    moved = folder.rename(folder.with_name("moved"))
    assert folder_identity(moved) == before
    (moved / "config.json").write_text(json.dumps({**LLAMA, "rope_theta": 5e5}))
    assert folder_identity(moved) != before
