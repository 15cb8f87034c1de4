"""A copy of a drafter's folder with a Fix applied: what it leaves alone is linked, the rest written anew."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.errors import UsageError
from results.wiring import Fix
from sweeps.doctor.weights import Weights

if TYPE_CHECKING:
    from torch import Tensor

Tensors = dict[str, "Tensor"]
WHOLE = "model.safetensors"
CONFIG = "config.json"
FC_BLOCKS = "fc: blocks "  # and their places, from 0: `fc: blocks 2,0,1`


def mended(head: Path, target: Path, fix: Fix, into: Path) -> Path:
    """The mended copy. The head's own folder is never written to. Raises UsageError for an unknown edit."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    rewritten = (".safetensors", ".index.json", ".bin") if fix.tensors else ()
    for file in filter(Path.is_file, head.iterdir()):
        if not file.name.endswith(rewritten):
            _link(file, into / file.name)
    if fix.config:
        config = json.loads((head / CONFIG).read_text("utf-8"))
        (into / CONFIG).unlink(missing_ok=True)
        (into / CONFIG).write_text(json.dumps(with_changes(config, fix.config), indent=2), "utf-8")
    if fix.tensors:
        _write(dict(Weights(head)), Weights(target), fix.tensors, into / WHOLE)
    return into


def _link(source: Path, place: Path) -> None:
    try:
        os.link(source.resolve(), place)
    except OSError:  # another file system
        shutil.copy2(source, place)


def with_changes(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The config with dotted keys set; None removes a key."""
    changed = json.loads(json.dumps(config))
    for path, value in changes.items():
        *parents, name = path.split(".")
        place = changed
        for parent in parents:
            if not isinstance(place.get(parent), dict):
                place[parent] = {}
            place = place[parent]
        if value is None:
            place.pop(name, None)
        else:
            place[name] = value
    return changed  # type: ignore[no-any-return]


def _write(tensors: Tensors, target: Mapping[str, "Tensor"], edits: tuple[str, ...], place: Path) -> None:
    from safetensors.torch import save_file

    for edit in edits:
        if edit.startswith(FC_BLOCKS):
            _reorder_fc(tensors, [int(place) for place in edit.removeprefix(FC_BLOCKS).split(",")])
        elif edit in EDITS:
            EDITS[edit](tensors, target)
        else:
            raise UsageError(f"{edit}: no change of a checkpoint that is known here")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, place, {"format": "pt"})


def _named(tensors: Mapping[str, object], ending: str) -> str:
    """The tensor of this name, behind a prefix or not."""
    found = [name for name in tensors if name == ending or name.endswith(f".{ending}")]
    if not found:
        raise UsageError(f"the head has no tensor {ending} to change")
    return min(found, key=len)


def _d2t_of_t2d(tensors: Tensors, target: Mapping[str, "Tensor"]) -> None:
    ids = tensors[_named(tensors, "t2d")].nonzero().flatten()
    tensors["d2t"] = ids - _counting(ids)


def _d2t_to_offsets(tensors: Tensors, target: Mapping[str, "Tensor"]) -> None:
    name = _named(tensors, "d2t")
    tensors[name] = tensors[name] - _counting(tensors[name])


def _counting(like: "Tensor") -> "Tensor":
    import torch

    return torch.arange(len(like), dtype=like.dtype)


def _remove(ending: str) -> "Callable[[Tensors, Mapping[str, Tensor]], None]":
    def remove(tensors: Tensors, target: Mapping[str, "Tensor"]) -> None:
        tensors.pop(_named(tensors, ending), None)

    return remove


def _reorder_fc(tensors: Tensors, places: Sequence[int]) -> None:
    import torch

    name = _named(tensors, "fc.weight")
    blocks = tensors[name].chunk(len(places), dim=1)
    tensors[name] = torch.cat([blocks[place] for place in places], dim=1)


def _lm_head_of_target(tensors: Tensors, target: Mapping[str, "Tensor"]) -> None:
    from analysis.wiring.target import EMBEDDING, LM_HEAD, find

    weight = find(target, LM_HEAD)
    weight = find(target, EMBEDDING) if weight is None else weight
    if weight is None:
        raise UsageError("the target's folder holds no lm_head to take rows from")
    if any(name.endswith("d2t") for name in tensors):
        offsets = tensors[_named(tensors, "d2t")].long()
        weight = weight[offsets + _counting(offsets)]
    own = next((name for name in tensors if name.endswith("lm_head.weight")), "lm_head.weight")
    like = tensors.get(own, tensors[_named(tensors, "fc.weight")])
    tensors[own] = weight.to(like.dtype)


EDITS: Mapping[str, "Callable[[Tensors, Mapping[str, Tensor]], None]"] = {
    "d2t: from t2d": _d2t_of_t2d,
    "d2t: ids to offsets": _d2t_to_offsets,
    "d2t: remove": _remove("d2t"),
    "embed_tokens: remove": _remove("embed_tokens.weight"),
    "lm_head: from target": _lm_head_of_target,
}
