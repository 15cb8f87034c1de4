"""Hugging Face model folders: found, checked for completeness, and known by their content."""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launchers.embedded.model import file_identity
from launchers.engines.safetensors_file import stored_tensors
from results.errors import UsageError

WEIGHT_ENDINGS = (".safetensors", ".bin", ".pt", ".gguf")
NOT_CONTENT = (".md", ".gitattributes", ".gitignore", ".lock")


def find_model_folder(name_or_path: str, *, planning: bool = False) -> Path:
    """The absolute path of a folder with a config.json, or of a repository in the Hugging Face cache.

    Raises UsageError that says what is missing; nothing is downloaded. While `planning`, one that is not
    on this machine is where it would be.
    """
    folder = where_it_lies(name_or_path)
    if planning and not folder.is_dir():
        return folder
    if not folder.is_dir():
        raise UsageError(not_found(name_or_path))
    if (folder / "config.json").is_file():
        read_config(folder)
    missing = _missing_files(folder)
    if missing:
        raise UsageError(f"{folder} is no complete model folder: {missing} is missing")
    return folder


def where_it_lies(name_or_path: str) -> Path:
    """The folder of this name, or the snapshot of a repository in the Hugging Face cache, there or not."""
    folder = Path(name_or_path).expanduser().absolute()
    if folder.is_dir() or re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name_or_path) is None:
        return folder
    cached = _hub() / f"models--{name_or_path.replace('/', '--')}"
    main = cached / "refs" / "main"
    return cached / "snapshots" / (main.read_text("utf-8").strip() if main.is_file() else "main")


def _hub() -> Path:
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub")


def not_found(name_or_path: str) -> str:
    """Where it was looked for."""
    return f"{name_or_path}: no such folder, and no model of that name in {_hub()}: download it first"


def _missing_files(folder: Path) -> str | None:
    if not (folder / "config.json").is_file():
        return "config.json"
    for index in folder.glob("*.index.json"):
        parts = set(json.loads(index.read_text("utf-8")).get("weight_map", {}).values())
        absent: list[str] = sorted(part for part in parts if not (folder / part).is_file())
        if absent:
            return absent[0]
    if not any(path.suffix in WEIGHT_ENDINGS for path in folder.iterdir()):
        return "a weights file"
    return None


def read_config(folder: Path) -> dict[str, Any]:
    """The model's config.json. Raises UsageError if it is damaged."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder / 'config.json'} cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise UsageError(f"{folder / 'config.json'} is no JSON object")
    return config


def config_if_here(folder: Path) -> dict[str, Any]:
    """As `read_config`; nothing of a model that is not on this machine, as a plan may have it."""
    return read_config(folder) if folder.is_dir() else {}


def tensor_names(folder: Path) -> Sequence[str]:
    """Names of the weights in safetensors files; empty if they are stored otherwise."""
    return sorted(name for path in folder.glob("*.safetensors") for name in stored_tensors(path))


def folder_identity(folder: Path) -> str:
    """SHA-256 over names and contents of its files, documentation left out."""
    files = sorted(
        path for path in folder.iterdir() if path.is_file() and not path.name.endswith(NOT_CONTENT)
    )
    content = json.dumps([[path.name, file_identity(path)] for path in files])
    return hashlib.sha256(content.encode()).hexdigest()
