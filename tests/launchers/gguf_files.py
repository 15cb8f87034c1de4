"""Writes small GGUF files for tests."""

import struct
from pathlib import Path

F32, Q4_1 = 0, 3


def write_gguf(
    path: Path, *, magic: bytes = b"GGUF", version: int = 3, kind: int = F32, missing_bytes: int = 0
) -> Path:
    """A whole file with one tensor of 64 elements, or one that lacks its last bytes."""
    values = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("general.name") + struct.pack("<I", 8) + text("Tiny"),
        text("llama.context_length") + struct.pack("<II", 4, 8192),
        text("tokenizer.ggml.scores") + struct.pack("<IIQ3f", 9, 6, 3, 0.0, 0.0, 0.0),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3) + text("a") + text("bc") + text(""),
    ]
    tensor = text("output.weight") + struct.pack("<IQQIQ", 2, 32, 2, kind, 0)
    header = magic + struct.pack("<IQQ", version, 1, len(values)) + b"".join(values) + tensor
    header += b"\0" * (-len(header) % 32)
    size_bytes = 64 * 4 if kind == F32 else 2 * 20
    content = header + b"\0" * size_bytes
    path.write_bytes(content[: len(content) - missing_bytes])
    return path


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()
