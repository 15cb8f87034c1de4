"""Safetensors files without a library: the header, and the few values that are asked for."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.checkpoint import StoredTensor
from results.errors import UsageError

if TYPE_CHECKING:
    from numpy import ndarray

# How numpy reads each kind; what it does not know is read as whole numbers and widened below.
STORED_AS = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
    "F8_E4M3": "u1",
    "F8_E5M2": "u1",
}


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file by name. Raises UsageError if it is damaged.

    A file begins with the length of its JSON header (8 bytes, little endian), offsets count from its end.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        size = path.stat().st_size
        try:
            header = json.loads(file.read(length)) if 0 < length <= size - 8 else None
        except ValueError:
            header = None
    if not isinstance(header, dict):
        raise UsageError(f"{path} is damaged: it has no safetensors header")
    header.pop("__metadata__", None)
    try:
        return {name: _stored(entry, path, 8 + length) for name, entry in header.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is damaged: an entry of its header says nothing: {error!r}") from None


def _stored(entry: Any, path: Path, start: int) -> StoredTensor:
    first, last = entry["data_offsets"]
    shape = tuple(int(size) for size in entry["shape"])
    return StoredTensor(shape, str(entry["dtype"]), path, start + int(first), start + int(last))


def readable(tensor: StoredTensor) -> bool:
    """Whether its values can be read: a kind that is known, and all of them there."""
    if tensor.dtype not in STORED_AS:
        return False
    import numpy as np

    count = int(np.prod(tensor.shape, dtype=np.int64))
    size = count * np.dtype(STORED_AS[tensor.dtype]).itemsize
    return tensor.last - tensor.first == size and tensor.path.stat().st_size >= tensor.last


def row_bytes(tensor: StoredTensor, rows: Sequence[int]) -> list[bytes]:
    """Bytes of some rows of its first axis."""
    size = (tensor.last - tensor.first) // max(tensor.shape[0], 1)
    found = []
    with tensor.path.open("rb") as file:
        for row in rows:
            file.seek(tensor.first + row * size)
            found.append(file.read(size))
    return found


def values(tensor: StoredTensor, rows: Sequence[int] | None = None) -> "ndarray[Any, Any]":
    """Numbers of some rows, or of all: whole numbers and booleans as they are, all others as float32."""
    import numpy as np

    picked = range(tensor.shape[0]) if rows is None else rows
    data = _whole(tensor) if rows is None else b"".join(row_bytes(tensor, rows))
    raw = np.frombuffer(data, STORED_AS[tensor.dtype])
    return _widened(raw, tensor.dtype).reshape(len(picked), *tensor.shape[1:])


def _whole(tensor: StoredTensor) -> bytes:
    with tensor.path.open("rb") as file:
        file.seek(tensor.first)
        return file.read(tensor.last - tensor.first)


def _widened(raw: "ndarray[Any, Any]", dtype: str) -> "ndarray[Any, Any]":
    import numpy as np

    if dtype == "BF16":
        return (raw.astype("<u4") << 16).view("<f4")
    if dtype == "F8_E5M2":
        return (raw.astype("<u2") << 8).view("<f2").astype("<f4")
    if dtype == "F8_E4M3":
        return _e4m3(raw)
    return raw.astype(np.float32) if raw.dtype.kind == "f" else raw


def _e4m3(raw: "ndarray[Any, Any]") -> "ndarray[Any, Any]":
    """One sign, four bits of exponent (bias 7), three of mantissa; all ones are no number."""
    import numpy as np

    exponent, mantissa = (raw >> 3) & 15, raw & 7
    size = np.where(
        exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent.astype(float) - 7)
    )
    size = np.where((raw & 127) == 127, np.nan, size)
    return np.where(raw & 128, -size, size).astype("<f4")
