"""Command-line flags of one vLLM installation: which there are, and how a value is written."""

import difflib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from results.errors import UsageError
from results.records import KnobValue

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of `vllm serve`."""

    names: tuple[str, ...]  # as on the command line, `--no-...` left out; the longest known one first
    dest: str
    values: int | str  # 0, 1 or "many"
    negatable: bool = False  # has a `--no-` form
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass(frozen=True)
class Capabilities:
    """What the probe found in one installation of vLLM."""

    version: str
    flags: tuple[Flag, ...]
    speculative_keys: Mapping[str, KnobValue | None]  # keys of --speculative-config, with their defaults
    methods: tuple[str, ...] = ()
    rejection_sample_methods: tuple[str, ...] = ()
    draft_sample_methods: tuple[str, ...] = ()
    has_arctic_inference: bool = False
    is_named_vllm: bool = True  # a distribution `vllm` is installed, which the `vllm` command asks for
    device: str = ""
    device_name: str = ""
    device_memory_bytes: int | None = None

    def flag(self, name: str) -> Flag | None:
        """The flag a user wrote, with or without dashes, with underscores, or by its short form."""
        bare = name.lstrip("-").partition(".")[0].replace("_", "-")
        return self._by_name.get(f"--{bare}") or self._by_name.get(f"-{bare}")

    @cached_property
    def _by_name(self) -> Mapping[str, Flag]:
        return {name: flag for flag in reversed(self.flags) for name in flag.names}

    @property
    def dests(self) -> Mapping[str, str]:
        """Attribute of the engine's arguments -> flag."""
        return {flag.dest: flag.name for flag in self.flags}


def capabilities_from(probed: Mapping[str, Any]) -> Capabilities:
    """From the answer of `inside.py`."""
    return Capabilities(
        version=probed["version"],
        flags=tuple(_flag(found) for found in probed["flags"]),
        speculative_keys=probed["speculative_keys"],
        methods=tuple(probed["methods"]),
        rejection_sample_methods=tuple(probed["rejection_sample_methods"]),
        draft_sample_methods=tuple(probed["draft_sample_methods"]),
        has_arctic_inference=probed["arctic_inference"],
        is_named_vllm=probed["distribution"],
        device=probed["device"],
        device_name=probed["device_name"],
        device_memory_bytes=probed["device_memory_bytes"],
    )


def _flag(found: Mapping[str, Any]) -> Flag:
    positive = [n for n in found["names"] if not (found["negatable"] and n.startswith("--no-"))]
    return Flag(tuple(positive), found["dest"], found["values"], found["negatable"], tuple(found["choices"]))


def named(name: str, value: KnobValue, known: Capabilities) -> tuple[str, KnobValue]:
    """(canonical flag, value) of what a user wrote; `no-x: true` is `x: false`.

    A key of a JSON flag keeps its path: `compilation-config.cudagraph_mode`. Raises UsageError with the
    nearest name for a flag that this installation does not have.
    """
    flag = known.flag(name)
    if flag is not None:
        path = name.lstrip("-").partition(".")[2]
        return f"{flag.name}.{path}" if path else flag.name, value
    bare = name.lstrip("-").replace("_", "-")
    positive = known.flag(bare.removeprefix("no-")) if bare.startswith("no-") else None
    if positive is not None and positive.negatable and isinstance(value, bool):
        return positive.name, not value
    spelled = [n.lstrip("-") for f in known.flags for n in f.names if n.startswith("--")]
    near = difflib.get_close_matches(bare.partition(".")[0], spelled, 1, cutoff=0.5)
    hint = f": did you mean --{near[0]}?" if near else ""
    raise UsageError(f"vLLM {known.version} has no flag --{bare}{hint}")


def check_value(name: str, value: KnobValue, known: Capabilities) -> None:
    """Raise UsageError for a value the parser would refuse because it is none of the choices."""
    flag = known.flag(name)
    if flag is None or not flag.choices or isinstance(value, bool) or "." in name:
        return
    if str(value) not in flag.choices:
        raise UsageError(f"{flag.name}: {value} is none of {', '.join(flag.choices)}")


def argv_of(settings: Mapping[str, KnobValue], known: Capabilities) -> list[str]:
    """Words of the command line. Several values of one flag come in one string, split as a shell does."""
    return [word for name, value in settings.items() for word in _words(name, value, known.flag(name))]


def _words(name: str, value: KnobValue, flag: Flag | None) -> list[str]:
    if "." in name:  # a key of a JSON flag
        return [name, json.dumps(value) if isinstance(value, bool) else str(value)]
    if flag is not None and flag.negatable and isinstance(value, bool):
        return [name if value else f"--no-{name.removeprefix('--')}"]
    if flag is not None and flag.values == 0:
        return [name] if value else []
    if flag is not None and flag.values == "many":
        return [name, *shlex.split(str(value))]
    return [name, str(value)]


# Passed to both arms unless the user or the Point says otherwise, so that no release's default decides.
PINNED: Mapping[str, KnobValue] = {
    "--dtype": "auto",
    "--seed": 0,
    "--generation-config": "auto",
    "--tensor-parallel-size": 1,
    "--pipeline-parallel-size": 1,
    "--data-parallel-size": 1,
    "--gpu-memory-utilization": 0.92,
    "--kv-cache-dtype": "auto",
    "--enforce-eager": False,
    "--optimization-level": 2,
    "--performance-mode": "balanced",
    "--scheduling-policy": "fcfs",
    "--stream-interval": 1,
    "--enable-chunked-prefill": True,
    "--disable-custom-all-reduce": False,
}


def pinned(
    known: Capabilities, chosen: Mapping[str, KnobValue], *, prefix_caching: bool
) -> dict[str, KnobValue]:
    """What is chosen, and our defaults for the rest, as far as this installation has the flag."""
    batch_tokens, sequences = _batch_sizes(known)
    sequences_chosen = chosen.get("--max-num-seqs", sequences)
    if isinstance(sequences_chosen, int):
        batch_tokens = max(batch_tokens, sequences_chosen)  # vLLM refuses less
    if prefix_caching:
        chosen = {"--enable-prefix-caching": True, **chosen}
    defaults = {**PINNED, "--max-num-seqs": sequences, "--max-num-batched-tokens": batch_tokens}
    return {name: value for name, value in {**defaults, **chosen}.items() if known.flag(name) is not None}


def _batch_sizes(known: Capabilities) -> Sequence[int]:
    """(max_num_batched_tokens, max_num_seqs): what vLLM takes for such a device today.

    The values are kept here, by size of the device, so that they do not move with a release.
    """
    if known.device == "cpu":
        return 2048, 128
    memory_bytes = known.device_memory_bytes or 0
    if memory_bytes >= 160 * GIB:
        return 16384, 1024
    if memory_bytes >= 70 * GIB and "a100" not in known.device_name.lower():
        return 8192, 1024
    return 2048, 256
