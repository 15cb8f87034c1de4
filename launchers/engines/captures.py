"""Passes that a probe inside a server wrote down, put together to sequences.

A file `<time>.<number>.dp<d>.tp<t>.safetensors` is one request's part of one pass of the target, by one
rank: R rows without those of rejected drafts, in files that sort by time. Its tensors:

- `input_ids`, `positions` [R]: what the target was given;
- `b<j>` [R, H]: the target's states, by boundary (only of the first tensor-parallel rank);
- `served_aux` [R, W], `served_fc` [R, h], `served_ids` [R]: what the drafter was given, see HiddenStates;

and its metadata, as text: `request`, `prompt_tokens`, `max_tokens` of the answer ("" = unknown), `drafts`
that were verified in this pass, `next_id`: the token after the last row.

A probe that cannot go on says why in `unseen.*.txt`, and what it found in `attached.*.txt`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from results.errors import MeasurementInvalid
from results.hidden_states import HiddenStates
from results.reasons import Reason

if TYPE_CHECKING:
    from torch import Tensor

PER_ROW = ("served_aux", "served_fc", "served_ids")


def notes(folder: Path) -> tuple[str, ...]:
    """What the probes found in their servers, each thing once."""
    lines = [line for path in sorted(folder.glob("attached.*.txt")) for line in _text(path).splitlines()]
    return tuple(dict.fromkeys(lines))


def sequences(folder: Path, rank: int = 0) -> Iterator[HiddenStates]:
    """What one tensor-parallel rank wrote, a sequence for each request in the order of their first passes.

    A position that was computed more than once has the last. The sequence ends where the answer did, even if
    the last pass verified more, but not at a stop token: what was verified behind it in one pass stays. One
    sequence is in memory at a time. Raises MeasurementInvalid if nothing was written, or with gaps.
    """
    if told := [_text(path) for path in sorted(folder.glob("unseen.*.txt"))]:
        raise _unusable("; ".join(dict.fromkeys(told)))
    parts: dict[str, list[Path]] = {}
    for path in sorted(folder.glob(f"*.tp{rank}.safetensors")):
        parts.setdefault(_told(path)["request"], []).append(path)
    if not parts:
        seen = "the probe found a drafter that did not run" if notes(folder) else "no probe ran in the server"
        raise _unusable(f"{seen}: {folder} holds no pass of rank {rank}")
    return (_joined(request, paths) for request, paths in parts.items())


def _unusable(why: str) -> MeasurementInvalid:
    return MeasurementInvalid(Reason.TRACE_UNUSABLE, why)


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace")


def _told(path: Path) -> Mapping[str, str]:
    """Metadata of a file, without its tensors."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise _unusable(f"{path} is damaged: {error}") from None


def _rows(tensors: Mapping[str, "Tensor"]) -> dict[str, "Tensor"]:
    return {name: tensor for name, tensor in tensors.items() if name not in ("input_ids", "positions")}


def _joined(request: str, paths: Sequence[Path]) -> HiddenStates:
    import torch
    from safetensors.torch import load_file

    first = _told(paths[0])
    prompt_tokens = int(first["prompt_tokens"])
    end = prompt_tokens + int(first["max_tokens"]) if first["max_tokens"] else None
    files = [(_told(path), load_file(path)) for path in paths]
    size = 1 + max(int(tensors["positions"].max()) for _, tensors in files)
    token_ids = torch.empty(size + 1, dtype=torch.int64)
    rows: dict[str, Tensor] = {}
    seen = torch.zeros(size, dtype=torch.bool)
    accepted = []
    for told, tensors in files:
        at = tensors["positions"]
        token_ids[at], token_ids[at[-1] + 1] = tensors["input_ids"], int(told["next_id"])
        seen[at] = True
        for name, tensor in _rows(tensors).items():
            rows.setdefault(name, tensor.new_zeros(size, *tensor.shape[1:]))[at] = tensor
        if int(told["drafts"]) and (end is None or int(at[0]) + 1 < end):
            accepted.append(len(at) - 1)
    if len({frozenset(tensors) for _, tensors in files}) > 1:
        raise _unusable(f"the passes of {request} hold different tensors")
    if not seen.all():
        missing = int((~seen).nonzero()[0])
        raise _unusable(f"{request} has no row at position {missing}: was its prompt in a cache?")
    token_ids = token_ids[:end]
    rows = {name: tensor[: len(token_ids) - 1] for name, tensor in rows.items()}
    return HiddenStates(
        token_ids,
        prompt_tokens,
        {int(name[1:]): tensor for name, tensor in rows.items() if name not in PER_ROW},
        *(rows.get(name) for name in PER_ROW),
        tuple(accepted),
    )
