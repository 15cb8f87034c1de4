"""A healthy EAGLE-3 head and its target as folders, small, to be spoilt in one way at a time."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from launchers.engines.checkpoint import read_checkpoint
from launchers.engines.wiring import Drafting
from results.records import KnobValue

Array = NDArray[Any]
HIDDEN, VOCABULARY, DRAFT_VOCABULARY, LAYERS = 64, 512, 128, 12
DTYPES = {"f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "b1": "BOOL", "u1": "U8"}


def write_safetensors(path: Path, tensors: Mapping[str, Array]) -> None:
    """As the library would, without it."""
    header: dict[str, object] = {}
    position = 0
    for name, array in tensors.items():
        kind = DTYPES[array.dtype.str[1:]]
        ends = [position, position + array.nbytes]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": ends}
        position = ends[1]
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    data = b"".join(array.tobytes() for array in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_model(folder: Path, config: Mapping[str, object], tensors: Mapping[str, Array]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    if tensors:
        write_safetensors(folder / "model.safetensors", tensors)
    return folder


def trained(rows: int, width: int, seed: int) -> Array:
    """A table as training leaves it: a direction that all rows share, few of many, unequal lengths."""
    random = np.random.default_rng(seed)
    few = random.normal(size=(rows, 8)) @ random.normal(size=(8, width))
    table = (few + 0.5 * random.normal(size=(rows, width)) + 2 * random.normal(size=width)) / 50
    return (table * random.uniform(0.5, 1.5, (rows, 1))).astype("f4")


def untrained(rows: int, width: int, seed: int = 0, *, uniform: bool = False) -> Array:
    """As modules of torch begin."""
    random = np.random.default_rng(seed)
    values = (
        random.uniform(-0.125, 0.125, (rows, width)) if uniform else random.normal(0, 0.02, (rows, width))
    )
    return values.astype("f4")


def _target() -> dict[str, Array]:
    return {
        "model.embed_tokens.weight": trained(VOCABULARY, HIDDEN, 1),
        "lm_head.weight": trained(VOCABULARY, HIDDEN, 2),
        "model.norm.weight": np.ones(HIDDEN, "f4"),
    }


def used_tokens() -> Array:
    """Those that the draft vocabulary holds, two in a row among them."""
    return np.sort(np.random.default_rng(3).permutation(VOCABULARY)[:DRAFT_VOCABULARY]).astype("i8")


def offsets() -> Array:
    return used_tokens() - np.arange(DRAFT_VOCABULARY)


def marks() -> Array:
    mask = np.zeros(VOCABULARY, "?")
    mask[used_tokens()] = True
    return mask


def _head() -> dict[str, Array]:
    def ones(*shape: int) -> Array:
        return np.ones(shape, "f4")

    return {
        "fc.weight": ones(HIDDEN, 3 * HIDDEN),
        **{f"midlayer.self_attn.{p}_proj.weight": ones(HIDDEN, 2 * HIDDEN) for p in "qkv"},
        "midlayer.self_attn.o_proj.weight": ones(HIDDEN, HIDDEN),
        **{f"midlayer.mlp.{p}_proj.weight": ones(128, HIDDEN) for p in ("gate", "up")},
        "midlayer.mlp.down_proj.weight": ones(HIDDEN, 128),
        **{
            f"midlayer.{norm}.weight": ones(HIDDEN)
            for norm in ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        },
        "norm.weight": ones(HIDDEN),
        "lm_head.weight": trained(DRAFT_VOCABULARY, HIDDEN, 4),
        "d2t": offsets(),
        "t2d": marks(),
    }


def _config(**more: object) -> dict[str, Any]:
    return {
        "hidden_size": HIDDEN,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 2048,
        "rope_theta": 50000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        **more,
    }


@dataclass
class Pair:
    """Both folders before they are written."""

    config: dict[str, Any] = field(
        default_factory=lambda: _config(
            architectures=["LlamaForCausalLMEagle3"],
            num_hidden_layers=1,
            draft_vocab_size=DRAFT_VOCABULARY,
        )
    )
    tensors: dict[str, Array] = field(default_factory=_head)
    target_config: dict[str, Any] = field(
        default_factory=lambda: _config(architectures=["LlamaForCausalLM"], num_hidden_layers=LAYERS)
    )
    target_tensors: dict[str, Array] = field(default_factory=_target)
    engine: str = "sglang"
    version: str = "0.5.23"
    method: str = "EAGLE3"
    settings: dict[str, KnobValue] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def on_vllm(self, version: str = "0.32.0") -> None:
        self.engine, self.version, self.method = "vllm", version, "eagle3"

    def written(self, folder: Path) -> Drafting:
        return Drafting(
            read_checkpoint(write_model(folder / "target", self.target_config, self.target_tensors)),
            read_checkpoint(write_model(folder / "head", self.config, self.tensors)),
            self.engine,
            self.version,
            self.method,
            self.settings,
            self.variables,
        )


def changed(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A config with a Fix's changes made: dotted keys, None removes."""
    after: dict[str, Any] = json.loads(json.dumps(config))
    for key, value in changes.items():
        *outer, last = key.split(".")
        place = after
        for part in outer:
            place = place.setdefault(part, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return after
