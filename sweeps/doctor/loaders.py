"""Dumps of hidden states that others wrote: trainers, SGLang's tensor dump, vLLM's connector.

They name layers each in their own way, or not at all; here are boundaries alone. What a trainer wrote
tells what a drafter was trained with, not what a server gives it: `served_*` are empty but for SGLang's.
"""

import gzip
import io
import pickle
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launchers.engines.sglang import tensor_dump
from results.errors import UsageError
from results.hidden_states import HEADER, Dump, DumpHeader, HiddenStates

if TYPE_CHECKING:
    from torch import Tensor

GZIP = b"\x1f\x8b"
DAMAGES = (OSError, EOFError, RuntimeError, ValueError, KeyError, zlib.error, pickle.UnpicklingError)
Slots = Callable[[Mapping[str, Any]], Sequence["Tensor"]]  # the states of a file, each [rows, H]


@dataclass(frozen=True, slots=True)
class ForeignDump:
    """As a Dump: one sequence is in memory at a time. Raises UsageError where a file is not as it should."""

    folder: Path
    header: DumpHeader
    reads: Sequence[Callable[[], HiddenStates]]

    def __len__(self) -> int:
        return len(self.reads)

    def __iter__(self) -> Iterator[HiddenStates]:
        return (read() for read in self.reads)


@dataclass(frozen=True, slots=True)
class Format:
    """A file for each sequence, as somebody writes it."""

    name: str
    files: str  # a pattern of their names
    ids: str  # the key of the tokens
    keys: str  # what a file must have, for people
    slots: Slots
    usual: Callable[[int], tuple[int, ...]] | None  # boundaries of the slots, of n layers; None = not fixed


def open_dump(
    path: Path, *, layers: int | None = None, boundaries: Sequence[int] | None = None
) -> Dump | ForeignDump:
    """A dump of any known kind. `layers` of the target are needed for all but tuner's own.

    `boundaries` of the slots of each file, in their order, where its writer was told others than it
    takes by itself. Raises UsageError.
    """
    if (path / HEADER).is_file():
        dump = Dump(path)
        _ = dump.header  # damaged is damaged now
        return dump
    if not path.exists():
        raise UsageError(f"{path}: there is no such dump")
    if layers is None:
        raise UsageError(f"{path} does not tell how many layers the target has: name the target's folder too")
    if path.is_dir() and tensor_dump.is_tensor_dump(path):
        passes = tensor_dump.requests_in(path)
        reads = [partial(tensor_dump.sequence_of, files, layers) for files in passes]
        return ForeignDump(path, DumpHeader(layers, engine="SGLang, its tensor dump"), reads)
    return _files(path, layers, boundaries)


def _files(path: Path, layers: int, boundaries: Sequence[int] | None) -> ForeignDump:
    files = sorted(path.iterdir() if path.is_dir() else [path], key=_number)
    for known in FORMATS:
        if fitting := [file for file in files if re.fullmatch(known.files, file.name)]:
            slots = _boundaries(known, path, layers, boundaries)
            header = DumpHeader(layers, engine=known.name, notes=(f"slots are boundaries {list(slots)}",))
            return ForeignDump(path, header, [partial(_read, file, known, slots) for file in fitting])
    names = ", ".join(dict.fromkeys(f"{known.files} ({known.name})" for known in FORMATS))
    raise UsageError(
        f"{path} is no dump of hidden states: expected {HEADER} (tuner), files like {names}, or TP0_*"
    )


def _boundaries(known: Format, path: Path, layers: int, given: Sequence[int] | None) -> tuple[int, ...]:
    if given is None and known.usual is None:
        raise UsageError(
            f"{path}: {known.name} writes the layers it was told: name their boundaries, in that order"
        )
    slots = tuple(given) if given is not None else known.usual(layers)  # type: ignore[misc]
    if wrong := [b for b in slots if not 0 <= b <= layers + 1]:
        raise UsageError(f"boundaries {wrong}: a target of {layers} layers has 0 to {layers + 1}")
    return slots


def _number(path: Path) -> list[int | str]:
    """hs_10 comes after hs_9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]


def _read(path: Path, known: Format, boundaries: Sequence[int]) -> HiddenStates:
    try:
        tensors = _tensors(path)
        ids = tensors[known.ids].flatten().long()
        slots = [slot.reshape(-1, slot.shape[-1]) for slot in known.slots(tensors)]
        mask = tensors.get("loss_mask")
    except (*DAMAGES, TypeError, AttributeError, IndexError) as error:
        why = " ".join(str(error).split())[:200]
        raise UsageError(f"{path}: no file of {known.name}, which has {known.keys}: {why}") from None
    if len(slots) != len(boundaries):
        raise UsageError(f"{path} has {len(slots)} states a token, for boundaries {list(boundaries)}")
    if wrong := [len(slot) for slot in slots if len(slot) > len(ids)]:
        raise UsageError(f"{path} has {wrong[0]} rows of states for {len(ids)} tokens")
    return HiddenStates(ids, _prompt_tokens(mask), dict(zip(boundaries, slots, strict=True)))


def _prompt_tokens(mask: "Tensor | None") -> int:
    """Tokens before the first that is learnt from; 0 if nothing says."""
    learnt = [] if mask is None else mask.flatten().nonzero().flatten().tolist()
    return int(learnt[0]) if learnt else 0


def _tensors(path: Path) -> dict[str, Any]:
    """Raises one of DAMAGES. Nothing but tensors and plain values is unpickled."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.suffix == ".safetensors":
        try:
            return dict(load_file(path))
        except SafetensorError as error:
            raise ValueError(str(error)) from None
    packed = path.read_bytes()
    content = gzip.decompress(packed) if packed.startswith(GZIP) else packed
    read = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    if not isinstance(read, dict):
        raise ValueError(f"it holds a {type(read).__name__}")
    return read


def _stacked(tensors: Mapping[str, Any]) -> Sequence["Tensor"]:
    """`hidden_states` [S, K, H]."""
    stacked: Tensor = tensors["hidden_states"]
    if stacked.dim() != 3:
        raise ValueError(f"hidden_states has the shape {tuple(stacked.shape)}")
    return [*stacked.unbind(1)]


def _listed(tensors: Mapping[str, Any]) -> Sequence["Tensor"]:
    """`hidden_states`: a list of [S, H]."""
    listed = tensors["hidden_states"]
    if not isinstance(listed, list | tuple):
        raise ValueError(f"hidden_states is a {type(listed).__name__}, not a list of tensors")
    return [*listed]


def _specforge(tensors: Mapping[str, Any]) -> Sequence["Tensor"]:
    """On disk `hidden_state` is the target's last state, and in a batch of its training the wide one.

    The batch then calls the last `target`.
    """
    is_batch = "target" in tensors
    wide: Tensor = tensors["hidden_state" if is_batch else "aux_hidden_state"]
    last: Tensor = tensors["target" if is_batch else "hidden_state"]
    slots, rest = divmod(wide.shape[-1], last.shape[-1])
    if rest or not slots:
        raise ValueError(f"states of width {wide.shape[-1]} beside one of width {last.shape[-1]}")
    return [*wide.split(last.shape[-1], dim=-1), last]


FORMATS = (
    Format(
        "speculators",  # since PR #353: scripts/launch_vllm.py, train/data.py
        r"hs_.*\.safetensors",
        "token_ids",
        "token_ids [S] and hidden_states [S, K + 1, H]",
        _stacked,
        lambda n: (2, n // 2, n - 3, n),
    ),
    Format(
        "speculators before its PR #353",  # outputs of layers 2, n // 2, n - 3, n - 1: custom_worker.py
        r"data_.*\.pt",
        "input_ids",
        "input_ids [S], loss_mask [S] and a list hidden_states of [S, H]",
        _listed,
        lambda n: (3, n // 2 + 1, n - 2, n),
    ),
    Format(
        "SpecForge",  # outputs of layers 1, n // 2 - 1, n - 4; after the norm: prepare_hidden_states.py
        r".*\.ckpt(\.gz)?",
        "input_ids",
        "input_ids, loss_mask, hidden_state [1, S, H] and aux_hidden_state [1, S, K * H]",
        _specforge,
        lambda n: (2, n // 2, n - 3, n + 1),
    ),
    Format(
        "vLLM's ExampleHiddenStatesConnector",
        r".*\.safetensors",
        "token_ids",
        "token_ids [S] and hidden_states [S, K, H]",
        _stacked,
        None,
    ),
)
