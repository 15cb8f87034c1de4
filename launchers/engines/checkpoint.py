"""Reads a model's folder without its weights: config.json and the headers of its safetensors files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launchers.engines.model_folder import WEIGHT_ENDINGS, read_config
from launchers.engines.safetensors_file import stored_tensors
from results.checkpoint import Checkpoint, StoredTensor
from results.errors import UsageError


def read_checkpoint(folder: Path) -> Checkpoint:
    """What the folder says. Weights that are kept otherwise, or that are not here, are named as unread.

    A file, such as a GGUF, is a checkpoint of which nothing is read. Raises UsageError if config.json or a
    header is damaged, or if there is neither.
    """
    if folder.is_file():
        return Checkpoint(folder, {}, {}, (folder.name,))
    config = read_config(folder)
    tensors: dict[str, StoredTensor] = {}
    unread = []
    for path in _files(folder):
        if path.is_file():
            tensors.update(stored_tensors(path))
        else:
            unread.append(path.name)
    if not tensors:
        unread += _other_weights(folder)
    return Checkpoint(folder, config, tensors, tuple(unread))


def _files(folder: Path) -> list[Path]:
    """Those that the index names, where there is one; consolidated copies beside it are none of them."""
    indexed = {name for index in folder.glob("*.safetensors.index.json") for name in _named(index)}
    return sorted(folder / name for name in indexed) or sorted(folder.glob("*.safetensors"))


def _named(index: Path) -> Iterator[str]:
    try:
        listed: Any = json.loads(index.read_text("utf-8"))["weight_map"]
        yield from {str(name) for name in listed.values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{index} is damaged: {error!r}") from None


def _other_weights(folder: Path) -> list[str]:
    return sorted(
        path.name
        for path in folder.iterdir()
        if path.suffix in WEIGHT_ENDINGS and path.suffix != ".safetensors"
    )
