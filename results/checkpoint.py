"""What a model's folder says without its weights: its config.json, and which tensors lie where."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a safetensors file."""

    shape: tuple[int, ...]
    dtype: str  # as safetensors names it: BF16, F32, I64, BOOL ...
    path: Path
    first: int  # its bytes in the file, `last` excluded
    last: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The folder of a target or a drafter."""

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]
