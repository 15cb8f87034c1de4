"""Reads what the static rules need of the weights: kilobytes, or a few megabytes of sampled rows."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.wiring.samples import Samples
from launchers.engines.safetensors_file import readable, row_bytes, values
from results.checkpoint import Checkpoint, StoredTensor
from results.head_config import FLOATS, Head

if TYPE_CHECKING:
    from numpy import ndarray

    Array = ndarray[Any, Any]

ROWS = 256
EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")
TOKENIZERS = ("tokenizer.json", "tiktoken.model", "tokenizer.model")


def sample(head: Checkpoint, target: Checkpoint) -> Samples:
    names = Head(head).tensors
    own, theirs = names.get("embed_tokens.weight"), target.tensor(*EMBEDDINGS)
    tables = [one for one in (own, theirs) if one is not None and len(one.shape) == 2]
    rows = _rows(min(one.shape[0] for one in tables)) if len(tables) == 2 else []
    vocabulary, target_vocabulary = _vocabularies(head.folder, target.folder)
    return Samples(
        d2t=_vector(names.get("d2t")),
        t2d=_vector(names.get("t2d")),
        lm_head=_sampled(names.get("lm_head.weight")),
        target_lm_head=_sampled(target.tensor("lm_head.weight", *EMBEDDINGS)),
        embedding=_sampled(own, rows) if rows else None,
        target_embedding=_sampled(theirs, rows) if rows else None,
        same_bytes=_same_bytes(own, theirs, rows),
        vocabulary=vocabulary,
        target_vocabulary=target_vocabulary,
    )


def _rows(count: int, wanted: int = ROWS) -> list[int]:
    """Spread evenly over all of them."""
    return [i * count // wanted for i in range(wanted)] if count > wanted else list(range(count))


def _vector(tensor: StoredTensor | None) -> "Array | None":
    return values(tensor) if tensor is not None and len(tensor.shape) == 1 and readable(tensor) else None


def _sampled(tensor: StoredTensor | None, rows: list[int] | None = None) -> "Array | None":
    """float32 rows of a table that holds plain floating-point numbers."""
    if tensor is None or len(tensor.shape) != 2 or tensor.dtype not in FLOATS or not readable(tensor):
        return None
    return values(tensor, _rows(tensor.shape[0]) if rows is None else rows)


def _same_bytes(own: StoredTensor | None, theirs: StoredTensor | None, rows: list[int]) -> bool:
    if own is None or theirs is None or own.dtype != theirs.dtype or own.shape[1:] != theirs.shape[1:]:
        return False
    return row_bytes(own, rows) == row_bytes(theirs, rows)


def _vocabularies(own: Path, target: Path) -> tuple[Mapping[str, int] | None, Mapping[str, int] | None]:
    """Both tokenizers, if the drafter brings one that is not the target's byte for byte."""
    for name in TOKENIZERS:
        mine, theirs = own / name, target / name
        if own != target and mine.is_file() and theirs.is_file() and mine.read_bytes() != theirs.read_bytes():
            return _tokens(mine), _tokens(theirs)
    return None, None


def _tokens(path: Path) -> Mapping[str, int] | None:
    """Token -> id; None for a format that is not known."""
    try:
        if path.suffix == ".json":
            return _of_json(json.loads(path.read_text("utf-8")))
        if path.name == "tiktoken.model":
            lines = (line.split() for line in path.read_text("utf-8").splitlines())
            return {token: int(place) for token, place in lines}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return None


def _of_json(tokenizer: Any) -> Mapping[str, int]:
    listed = tokenizer["model"]["vocab"]
    pairs = enumerate(piece for piece, _ in listed) if isinstance(listed, list) else ()
    plain = listed if isinstance(listed, dict) else {piece: place for place, piece in pairs}
    added = {token["content"]: token["id"] for token in tokenizer.get("added_tokens") or ()}
    return {str(token): int(place) for token, place in {**plain, **added}.items()}
