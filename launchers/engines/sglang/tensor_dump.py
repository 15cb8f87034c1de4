"""Sequences from what `--debug-tensor-dump-output-folder` of SGLang wrote.

From srt/debug_utils/tensor_dump_forward_hook.py of 0.5.23: a folder `TP0_PP0_Rank0_pid<p>` with a file for
each pass, by name of module what the module gave; with a drafter below `target` and `draft`. A layer's first
norm gives (normed, residual): the second is what the layer reads. No requests are told: prompts must have
been sent one at a time, without a prefix cache. Nor is it told which drafts were accepted: of a round the
first row is sure, and the others up to where the next round begins.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.errors import UsageError
from results.hidden_states import HiddenStates

if TYPE_CHECKING:
    from torch import Tensor

FIRST_RANK = "TP0_PP0_Rank0_pid*"
STREAM = re.compile(r"(?:.*\.)?layers\.(\d+)\.input_layernorm")
EMBEDDING = re.compile(r"(?:.*\.)?embed_tokens")
FINAL_NORM = re.compile(r"(?:.*model\.)?norm")
FUSION = re.compile(r"(?:.*\.)?fc")
IDS, POSITIONS = ".forward_batch_info.input_ids", ".forward_batch_info.positions"

Pass = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Passes:
    """Files of the passes of one request."""

    target: Sequence[Path]
    draft: Sequence[Path]


def is_tensor_dump(folder: Path) -> bool:
    return any(next(place.glob(FIRST_RANK), None) for place in (folder, folder / "target"))


def requests_in(folder: Path) -> list[Passes]:
    """The passes of each request, in their order. Raises UsageError."""
    target = list(_by_request(_files(folder / "target" if (folder / "target").is_dir() else folder)))
    draft = list(_by_request(_files(folder / "draft"))) if (folder / "draft").is_dir() else []
    if not target:
        raise UsageError(
            f"{folder}: no pass tells its tokens and positions: dump with the variable"
            " TENSOR_DUMP_TOP_LEVEL_MODULE_NAME=logits_processor"
        )
    if draft and len(draft) != len(target):
        raise UsageError(f"{folder}: {len(target)} prompts of the target and {len(draft)} of the drafter")
    return [Passes(files, draft[i] if draft else ()) for i, files in enumerate(target)]


def sequence_of(passes: Passes, layers: int) -> HiddenStates:
    """Raises UsageError for files that are damaged or do not fit together."""
    import torch

    spans: list[Tensor] = []  # positions of each pass: of the prompt, then of each round
    rows: dict[int | str, Tensor] = {}
    for path in passes.target:
        read = _read(path)
        spans.append(_told(read, POSITIONS, path).long())
        _put(rows, spans[-1], {"ids": _told(read, IDS, path).long(), **dict(_states(read, layers))}, path)
    prompt_tokens, starts = len(spans[0]), [int(at[0]) for at in spans[1:]]
    kept = starts[-1] if starts else prompt_tokens - 1
    for path in passes.draft:
        read = _read(path)
        fused = next((tensor for name, tensor in read.items() if FUSION.fullmatch(name)), None)
        if fused is not None:
            at, ids = _told(read, POSITIONS, path).long(), _told(read, IDS, path).long()
            _put(rows, at, {"served_ids": ids, "served_fc": fused}, path)
    accepted = [b - a - 1 for a, b in pairwise(starts)] if passes.draft else []
    return HiddenStates(
        token_ids=rows["ids"][: kept + 1].to(torch.int64),
        prompt_tokens=prompt_tokens,
        states={name: state[:kept] for name, state in rows.items() if isinstance(name, int)},
        served_fc=rows["served_fc"][:kept] if "served_fc" in rows else None,
        served_ids=rows["served_ids"][:kept] if "served_ids" in rows else None,
        accepted=tuple(accepted),
    )


def _files(folder: Path) -> Sequence[Path]:
    servers = sorted(folder.glob(FIRST_RANK))
    if len(servers) != 1:
        raise UsageError(
            f"{folder} holds the passes of {len(servers)} servers: name a folder with those of one"
        )
    return sorted(servers[0].glob("Pass*.pt"))


def _by_request(files: Sequence[Path]) -> Iterator[list[Path]]:
    """A request begins at position 0; one of one token asks for the server's health, and is left out."""
    found: list[Path] = []
    is_asked_for_health = False
    for path in files:
        positions = next((tensor for name, tensor in _read(path).items() if name.endswith(POSITIONS)), None)
        if positions is None or not len(positions):
            continue
        if positions.dim() != 1 or not bool((positions.diff() == 1).all()):
            raise UsageError(
                f"{path} holds several requests, or a tree: dump again with a chain (topk 1), and with"
                " prompts one at a time"
            )
        if int(positions[0]) == 0:
            if found:
                yield found
            found, is_asked_for_health = [], len(positions) == 1
        if not is_asked_for_health:
            found.append(path)
    if found:
        yield found


def _states(read: Pass, layers: int) -> Iterator[tuple[int, "Tensor"]]:
    for name, value in read.items():
        if EMBEDDING.fullmatch(name):
            yield 0, value
        elif FINAL_NORM.fullmatch(name) and isinstance(value, list):
            yield from ((layers + 1, value[0]), (layers, value[1]))
        elif (match := STREAM.fullmatch(name)) and isinstance(value, list):
            yield int(match[1]), value[-1]


def _put(rows: dict[int | str, "Tensor"], at: "Tensor", tensors: Mapping[Any, "Tensor"], path: Path) -> None:
    """Rows by position; what is computed again wins."""
    for name, tensor in tensors.items():
        if len(tensor) != len(at):
            raise UsageError(f"{path}: {len(tensor)} rows of states for {len(at)} tokens")
        known = rows.get(name, tensor[:0])
        missing = int(at[-1]) + 1 - len(known)
        if missing > 0:
            known = _longer(known, missing)
        known[at] = tensor.to(known.dtype)
        rows[name] = known


def _longer(tensor: "Tensor", by: int) -> "Tensor":
    import torch

    return torch.cat([tensor, tensor.new_zeros(by, *tensor.shape[1:])])


def _told(read: Pass, ending: str, path: Path) -> "Tensor":
    for name, tensor in read.items():
        if name.endswith(ending):
            return tensor
    raise UsageError(f"{path} does not tell {ending.rpartition('.')[2]}")


def _read(path: Path) -> Pass:
    """Tensors are read from the disk as they are used."""
    import pickle

    import torch

    try:
        read = torch.load(path, weights_only=True, mmap=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise UsageError(f"{path} is damaged, or no pass of SGLang: {str(error).splitlines()[0]}") from None
    if not isinstance(read, dict):
        raise UsageError(f"{path} is no pass of SGLang: it holds a {type(read).__name__}")
    return read
