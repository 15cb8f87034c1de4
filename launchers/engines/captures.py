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

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from results.errors import MeasurementInvalid
from results.hidden_states import HiddenStates
from results.reasons import Reason

if TYPE_CHECKING:
    from torch import Tensor


def lay_plugin(folder: Path, name: str, group: str, function: str, inside: Path) -> Path:
    """Put a file into the folder as a plugin that an engine finds; what its PYTHONPATH needs first.

    A module and the metadata with an entry point of this group. The folder is one that the server sees by
    the same path, in a container as well.
    """
    place = folder.absolute() / "plugin"
    metadata = place / f"{name}-1.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(inside, place / f"{name}.py")
    told = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1\n"
    (metadata / "METADATA").write_text(told, "utf-8")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}:{function}\n", "utf-8")
    return place


def joined(separator: str, ours: str, theirs: str | None) -> str:
    """A list of a variable, ours first."""
    return f"{ours}{separator}{theirs}" if theirs else ours


def notes(folder: Path) -> tuple[str, ...]:
    """What the probes found in their servers, each thing once."""
    return _lines(folder, "attached")


def sequences(folder: Path, rank: int = 0) -> Iterator[HiddenStates]:
    """What one tensor-parallel rank wrote, a sequence for each request in the order of their first passes.

    A position that was computed more than once has the last. The sequence ends where the answer did, even if
    the last pass verified more, but not at a stop token: what was verified behind it in one pass stays. One
    sequence is in memory at a time. Raises MeasurementInvalid if nothing was written, or with gaps.
    """
    if told := _lines(folder, "unseen"):
        raise _unusable("; ".join(told))
    parts: dict[str, list[Path]] = {}
    for path in sorted(folder.glob(f"*.tp{rank}.safetensors")):
        parts.setdefault(_told(path)["request"], []).append(path)
    if not parts:
        seen = "the probe found a drafter that did not run" if notes(folder) else "no probe ran in the server"
        raise _unusable(f"{seen}: {folder} holds no pass of rank {rank}")
    return (_joined(request, paths) for request, paths in parts.items())


def _unusable(why: str) -> MeasurementInvalid:
    return MeasurementInvalid(Reason.TRACE_UNUSABLE, why)


def _lines(folder: Path, kind: str) -> tuple[str, ...]:
    texts = [path.read_text("utf-8", "replace") for path in sorted(folder.glob(f"{kind}.*.txt"))]
    return tuple(dict.fromkeys(line for text in texts for line in text.splitlines()))


def _told(path: Path) -> Mapping[str, str]:
    """Metadata of a file, without its tensors."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise _unusable(f"{path} is damaged: {error}") from None


def _joined(request: str, paths: Sequence[Path]) -> HiddenStates:
    import torch
    from safetensors.torch import load_file

    told, passes = [_told(path) for path in paths], [load_file(path) for path in paths]
    if len({frozenset(tensors) for tensors in passes}) > 1:
        raise _unusable(f"the passes of {request} hold different tensors")
    spans = [tensors.pop("positions") for tensors in passes]
    size = _size(request, spans)
    rows = {name: _rows([tensors.pop(name) for tensors in passes], spans, size) for name in [*passes[0]]}
    [*_, next_id] = (int(t["next_id"]) for t, at in zip(told, spans, strict=True) if int(at[-1]) + 1 == size)
    prompt_tokens = int(told[0]["prompt_tokens"])
    end = prompt_tokens + int(told[0]["max_tokens"]) if told[0]["max_tokens"] else size + 1
    token_ids = torch.cat([rows.pop("input_ids"), torch.tensor([next_id])])[:end]
    rows = {name: tensor[: len(token_ids) - 1] for name, tensor in rows.items()}
    rounds = [at for t, at in zip(told, spans, strict=True) if int(t["drafts"]) and int(at[0]) + 1 < end]
    return HiddenStates(
        token_ids,
        prompt_tokens,
        {int(name[1:]): tensor for name, tensor in rows.items() if name[1:].isdigit()},
        served_aux=rows.get("served_aux"),
        served_fc=rows.get("served_fc"),
        served_ids=rows.get("served_ids"),
        accepted=tuple(len(at) - 1 for at in rounds),
    )


def _size(request: str, spans: Sequence["Tensor"]) -> int:
    """Positions from the first to the last; none may be missing."""
    import torch

    there = torch.cat([*spans]).unique().tolist()
    missing = next((p for p, at in enumerate(there) if at != p), None)
    if missing is not None:
        raise _unusable(f"{request} has no row at position {missing}: was its prompt in a cache?")
    return len(there)


def _rows(parts: Sequence["Tensor"], spans: Sequence["Tensor"], size: int) -> "Tensor":
    """The parts at their positions, the last where there are several."""
    whole = parts[0].new_empty(size, *parts[0].shape[1:])
    for part, at in zip(parts, spans, strict=True):
        whole[at] = part
    return whole
