"""Tensors of a model's folder by name, memory-mapped: a tensor's pages are read when it is used."""

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

INDEX = "model.safetensors.index.json"


class Weights(Mapping[str, "Tensor"]):
    """The safetensors files of a folder as one mapping. Raises UsageError if there are none, or damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[Path, Any] = {}

    @cached_property
    def _places(self) -> Mapping[str, Path]:
        index = self.folder / INDEX
        if index.is_file():
            return self._indexed(index)
        files = sorted(self.folder.glob("*.safetensors"))
        if not files:
            raise UsageError(f"{self.folder} holds no safetensors files")
        return {name: file for file in files for name in self._file(file).keys()}  # noqa: SIM118

    def _indexed(self, index: Path) -> Mapping[str, Path]:
        try:
            listed = json.loads(index.read_text("utf-8"))["weight_map"]
            return {name: self.folder / file for name, file in listed.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{index} is damaged: {error}") from None

    def _file(self, path: Path) -> Any:
        from safetensors import SafetensorError, safe_open

        if path not in self._open:
            try:
                self._open[path] = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise UsageError(f"{path} cannot be read: {error}") from None
        return self._open[path]

    def __getitem__(self, name: str) -> "Tensor":
        from safetensors import SafetensorError

        path = self._places[name]
        try:
            return self._file(path).get_tensor(name)
        except SafetensorError as error:
            raise UsageError(f"{path}: {error}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
