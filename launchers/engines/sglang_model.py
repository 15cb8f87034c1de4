"""Model folders as SGLang serves them: what must be in them, their identity, what a draft is for."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launchers.embedded.model import file_identity
from results.errors import UsageError

WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
# Fields by which a checkpoint says that it brings draft layers of its own.
NEXTN_FIELDS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "n_predict")
PLAIN_DRAFT = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")


def find_folder(name: str, role: str) -> Path | str:
    """A local folder with a config and weights, or the name of a repository, which SGLang fetches itself.

    Raises UsageError if it is meant as a path and cannot be served.
    """
    path = Path(name).expanduser()
    if not path.is_dir():
        if path.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1 or path.exists():
            raise UsageError(f"{role} {name}: there is no such folder")
        return name
    if not (path / "config.json").is_file():
        raise UsageError(f"{role} {path}: has no config.json (SGLang needs a Hugging Face model folder)")
    config_of(path)
    if not any(found for pattern in WEIGHTS for found in path.glob(pattern)):
        raise UsageError(f"{role} {path}: has no weights ({', '.join(WEIGHTS)})")
    return path.resolve()


def config_of(model: Path | str) -> Mapping[str, Any]:
    """Its config.json; empty for a repository that is not here. Raises UsageError if it cannot be read."""
    if isinstance(model, str):
        return {}
    try:
        config = json.loads((model / "config.json").read_text("utf-8"))
    except ValueError as error:
        raise UsageError(f"{model / 'config.json'} is no JSON: {error}") from None
    if not isinstance(config, dict):
        raise UsageError(f"{model / 'config.json'} is no JSON object")
    return config


def identity(model: Path | str) -> str:
    """SHA-256 over names and contents of the folder's files; a repository is known by its name only."""
    if isinstance(model, str):
        return f"repository {model} (content not known)"
    files = sorted(p for p in model.iterdir() if p.is_file() and not p.name.startswith("."))
    lines = "".join(f"{path.name} {file_identity(path)}\n" for path in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def brings_draft(config: Mapping[str, Any]) -> bool:
    """Whether the model's own checkpoint has layers that draft (NEXTN, also called MTP)."""
    text = config.get("text_config")
    places = [config, text] if isinstance(text, dict) else [config]
    return any(place.get(name) for place in places for name in NEXTN_FIELDS)


def methods_of_draft(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The algorithms a draft was made for. With another one SGLang starts, and accepts nothing.

    The architecture says it for sure where it names one; a plain model of several layers drafts on its own;
    of the rest any may be right.
    """
    architecture = " ".join(map(str, config.get("architectures") or ())).lower()
    if "eagle3" in architecture:
        return ("EAGLE3",)
    if "eagle" in architecture:
        return ("EAGLE",)
    if "nextn" in architecture or "mtp" in architecture or "assistant" in architecture:
        return ("NEXTN",)
    is_head = "draft_vocab_size" in config or "eagle_config" in config
    if architecture and not is_head and (config.get("num_hidden_layers") or 1) > 1:
        return ("STANDALONE",)
    return PLAIN_DRAFT
