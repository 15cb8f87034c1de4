"""States of a target, and what its drafter was given of them, one sequence a file: schema `tuner.hs/1`.

A dump is a folder with `dump.json` and a safetensors file for each sequence, in the order of their names. One
sequence is in memory at a time. Needs torch and safetensors (the extra `wiring`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from results.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

SCHEMA = "tuner.hs/1"
HEADER = "dump.json"


@dataclass(frozen=True, slots=True)
class DumpHeader:
    """What is alike for all sequences of a dump."""

    layers: int  # of the target
    engine: str = ""  # "SGLang 0.5.23"; or what wrote the dump
    model: str = ""  # the target as it was named
    draft: str = ""
    tensor_parallel: int = 1
    temperature: float | None = None
    drafts_per_round: int = 0  # drafts verified after each served token, one after the other; 0 = unknown
    notes: tuple[str, ...] = ()
    schema: str = SCHEMA


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """One sequence. S tokens, H the target's hidden size, h the head's, W the width of what it is given.

    Row p belongs to position p: the target's input there is `token_ids[p]`, the drafter's is
    `token_ids[p + 1]`. There may be fewer rows than tokens, never more.
    """

    token_ids: "Tensor"  # [S] int64: prompt and answer
    prompt_tokens: int
    states: Mapping[int, "Tensor"]  # by boundary (n + 1 = N), each [rows, H]
    served_aux: "Tensor | None" = None  # [rows, W]: what the drafter was given
    served_fc: "Tensor | None" = None  # [rows, h]: its fusion layer's output
    served_ids: "Tensor | None" = None  # [rows] int64: the token it was given beside that
    accepted: Sequence[int] = field(
        default=()
    )  # drafts accepted in each round of the answer, as the server counted


class AnyDump(Protocol):
    """Sequences of one target, one after the other, as often as they are asked for. Raises UsageError."""

    @property
    def folder(self) -> Path: ...

    @property
    def header(self) -> DumpHeader: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[HiddenStates]: ...


def _check_numbers(header: DumpHeader) -> None:
    """Raises ValueError."""
    for name, least in (("layers", 1), ("tensor_parallel", 1), ("drafts_per_round", 0)):
        value = getattr(header, name)
        if type(value) is not int or value < least:
            raise ValueError(f"{name} is {value!r}")
    if not isinstance(header.temperature, float | int | None):
        raise ValueError(f"temperature is {header.temperature!r}")


class Dump:
    """A dump on disk. Raises UsageError if it is none, or damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def header(self) -> DumpHeader:
        try:
            fields: dict[str, Any] = json.loads((self.folder / HEADER).read_text("utf-8"))
            schema = fields.get("schema")
            if schema != SCHEMA:
                raise UsageError(f"{self.folder}: a dump of schema {schema!r}; this tuner reads {SCHEMA}")
            header = DumpHeader(**{**fields, "notes": tuple(fields.get("notes", ()))})
            _check_numbers(header)
            return header
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"{self.folder} is no dump of hidden states: {error}") from None

    def __len__(self) -> int:
        return len(self._files())

    def __iter__(self) -> Iterator[HiddenStates]:
        return map(self._read, self._files())

    def _files(self) -> Sequence[Path]:
        return sorted(self.folder.glob("*.safetensors"))

    def _read(self, path: Path) -> HiddenStates:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                told = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return HiddenStates(
                token_ids=tensors["token_ids"],
                prompt_tokens=int(told["prompt_tokens"]),
                states={int(n[1:]): t for n, t in tensors.items() if n[0] == "b" and n[1:].isdigit()},
                served_aux=tensors.get("served_aux"),
                served_fc=tensors.get("served_fc"),
                served_ids=tensors.get("served_ids"),
                accepted=tuple(json.loads(told.get("accepted", "[]"))),
            )
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise UsageError(f"{path} is damaged: {error}") from None

    @classmethod
    def write(cls, folder: Path, header: DumpHeader, sequences: Iterator[HiddenStates]) -> "Dump":
        """Sequences one after the other; the header comes last, so that a dump cut short is none."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        for number, sequence in enumerate(sequences):
            served = {
                "token_ids": sequence.token_ids,
                "served_aux": sequence.served_aux,
                "served_fc": sequence.served_fc,
                "served_ids": sequence.served_ids,
            }
            tensors = {f"b{b}": t for b, t in sequence.states.items()} | {
                name: tensor for name, tensor in served.items() if tensor is not None
            }
            told = {
                "prompt_tokens": str(sequence.prompt_tokens),
                "accepted": json.dumps(list(sequence.accepted)),
            }
            path = folder / f"{number:05d}.safetensors"
            save_file({name: t.contiguous() for name, t in tensors.items()}, path, told)
        (folder / HEADER).write_text(json.dumps(asdict(header)), "utf-8")
        return cls(folder)
