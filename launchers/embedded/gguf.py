"""Reads the header of a GGUF file: enough to know the model and to see that the file is whole."""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.errors import UsageError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
# Type numbers of metadata values, by their struct format.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# Tensor type -> (elements per block, bytes per block); a type not here only has its start checked.
BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110),
    22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8),
    29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a GGUF file says about its model; None where it does not say."""

    architecture: str | None
    name: str | None
    context_length: int | None  # tokens the model was trained on
    vocabulary: int | None  # number of tokens
    tensors: int
    needed_bytes: int  # the file must be at least this long


def read_header(path: Path) -> GgufHeader:
    """Raises UsageError if the file is missing, unreadable, not GGUF, or its header is cut short."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data, path).header()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise UsageError(f"{path}: cannot be read as GGUF ({error})") from None
    except struct.error:
        raise UsageError(f"{path}: truncated GGUF file (the header is cut short)") from None


def check_gguf(path: Path) -> GgufHeader:
    """Raises UsageError if the file cannot be a whole GGUF model."""
    header = read_header(path)
    size_bytes = path.stat().st_size
    if size_bytes < header.needed_bytes:
        raise UsageError(
            f"{path}: truncated GGUF file ({size_bytes} bytes, its tensors need {header.needed_bytes}): "
            "fetch it again"
        )
    return header


class _Reader:
    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data = data
        self._path = path
        self._at = 0

    def header(self) -> GgufHeader:
        if self._data[:4] != MAGIC:
            raise UsageError(f"{self._path}: not a GGUF file (it begins with {self._data[:4]!r})")
        self._at = 4
        version, tensors, values = self._one("I"), self._one("Q"), self._one("Q")
        if version not in VERSIONS:
            raise UsageError(f"{self._path}: GGUF version {version} is not supported (2 or 3 are)")
        keys = {self._string(): self._value(self._one("I")) for _ in range(values)}
        ends_bytes = max((self._tensor_end() for _ in range(tensors)), default=0)
        alignment = int(keys.get("general.alignment") or 32)
        data_start = -(-self._at // alignment) * alignment
        architecture = keys.get("general.architecture")
        return GgufHeader(
            architecture=architecture,
            name=keys.get("general.name"),
            context_length=keys.get(f"{architecture}.context_length"),
            vocabulary=keys.get("tokenizer.ggml.tokens") or keys.get(f"{architecture}.vocab_size"),
            tensors=tensors,
            needed_bytes=data_start + ends_bytes,
        )

    def _one(self, form: str) -> Any:
        (value,) = struct.unpack_from(f"<{form}", self._data, self._at)
        self._at += struct.calcsize(f"<{form}")
        return value

    def _string(self) -> str:
        length = self._one("Q")
        self._at += length
        if self._at > len(self._data):
            raise struct.error("string past the end")
        return self._data[self._at - length : self._at].decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        """A scalar or string; of an array, its length only."""
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._one(self._format(kind))
        item, length = self._one("I"), self._one("Q")
        if item in (STRING, ARRAY):
            for _ in range(length):
                self._value(item)
        else:
            self._at += length * struct.calcsize(f"<{self._format(item)}")
        return length

    def _format(self, kind: int) -> str:
        if kind not in SCALARS:
            raise UsageError(f"{self._path}: damaged GGUF file (metadata type {kind} at byte {self._at})")
        return SCALARS[kind]

    def _tensor_end(self) -> int:
        """Where a tensor's bytes end, counted from the start of the tensor section."""
        self._string()
        elements = 1
        for _ in range(self._one("I")):
            elements *= self._one("Q")
        kind, offset = self._one("I"), self._one("Q")
        per_block, block_bytes = BLOCKS.get(kind, (1, 0))
        return int(offset + elements // per_block * block_bytes)
