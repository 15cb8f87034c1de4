"""What a model's folder says without its weights: its config.json, and which tensors lie where."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Where a model of several modalities keeps the config of its language model.
INNER_CONFIGS = ("text_config", "llm_config", "language_config")


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
    unread: tuple[str, ...] = ()  # files of weights that cannot be looked into, or are not here

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's part of config.json, over what stands around it."""
        for name in INNER_CONFIGS:
            inner = self.config.get(name)
            if isinstance(inner, Mapping):
                return {**self.config, **inner}
        return self.config

    @property
    def architecture(self) -> str:
        """The first one named; "" if none is."""
        named = self.config.get("architectures")
        return str(named[0]) if isinstance(named, list | tuple) and named else ""

    def whole(self, name: str) -> int | None:
        """A whole number of the language model's config; None if there is none of that name."""
        return whole(self.text_config, name)

    def tensor(self, *endings: str) -> StoredTensor | None:
        """The tensor that has one of these names, or ends with one after a dot; the shortest name wins."""
        for ending in endings:
            fitting = [n for n in self.tensors if n == ending or n.endswith(f".{ending}")]
            if fitting:
                return self.tensors[min(fitting, key=len)]
        return None


def whole(config: Mapping[str, Any], name: str) -> int | None:
    """A positive whole number of a config, None if there is none of that name."""
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return None
    return value


def number(config: Mapping[str, Any], name: str) -> float | None:
    """A number of a config, None if there is none of that name."""
    value = config.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
