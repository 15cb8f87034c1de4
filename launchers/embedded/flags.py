"""The flags of `llama-server` that the embedded server understands, and where each value goes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How the text of a flag becomes a value."""

    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    TEXT_LIST = "text list"  # one text, stored as a list
    TEXT_SET = "text set"
    SWITCH_ON = "switch on"  # no value
    SWITCH_OFF = "switch off"
    SPEC_TYPES = "spec types"  # comma list of common_speculative_type
    FLASH_ATTENTION = "flash attention"
    TENSOR_TYPE = "tensor type"


@dataclass(frozen=True, slots=True)
class Flag:
    """`names` on the command line; `path` of the attribute below xllamacpp's CommonParams."""

    names: tuple[str, ...]
    path: str
    kind: Kind = Kind.INT

    @property
    def long_name(self) -> str:
        return next(name for name in self.names if name.startswith("--"))

    @property
    def takes_value(self) -> bool:
        return self.kind not in (Kind.SWITCH_ON, Kind.SWITCH_OFF)


def _ngram_map(name: str) -> tuple[Flag, ...]:
    below = f"speculative.ngram_{name.replace('-', '_')}"
    return (
        Flag((f"--spec-ngram-{name}-size-n",), f"{below}.size_n"),
        Flag((f"--spec-ngram-{name}-size-m",), f"{below}.size_m"),
        Flag((f"--spec-ngram-{name}-min-hits",), f"{below}.min_hits"),
    )


SPECULATIVE = (
    Flag(("--spec-type",), "speculative.types", Kind.SPEC_TYPES),
    Flag(("-md", "--model-draft", "--spec-draft-model"), "speculative.draft.mparams.path", Kind.TEXT),
    Flag(("-td", "--threads-draft", "--spec-draft-threads"), "speculative.draft.cpuparams.n_threads"),
    Flag(("-ngld", "--gpu-layers-draft", "--spec-draft-ngl"), "speculative.draft.n_gpu_layers"),
    Flag(("--spec-draft-n-max",), "speculative.draft.n_max"),
    Flag(("--spec-draft-n-min",), "speculative.draft.n_min"),
    Flag(("--spec-draft-p-min",), "speculative.draft.p_min", Kind.FLOAT),
    Flag(("--spec-draft-p-split",), "speculative.draft.p_split", Kind.FLOAT),
    *_ngram_map("simple"),
    *_ngram_map("map-k"),
    *_ngram_map("map-k4v"),
    Flag(("--spec-ngram-mod-n-match",), "speculative.ngram_mod.n_match"),
    Flag(("--spec-ngram-mod-n-min",), "speculative.ngram_mod.n_min"),
    Flag(("--spec-ngram-mod-n-max",), "speculative.ngram_mod.n_max"),
)

SERVING = (
    Flag(("-m", "--model"), "model.path", Kind.TEXT),
    Flag(("--host",), "hostnames", Kind.TEXT_LIST),
    Flag(("--port",), "port"),
    Flag(("-c", "--ctx-size"), "n_ctx"),
    Flag(("-np", "--parallel"), "n_parallel"),
    Flag(("-t", "--threads"), "cpuparams.n_threads"),
    Flag(("-tb", "--threads-batch"), "cpuparams_batch.n_threads"),
    Flag(("--threads-http",), "n_threads_http"),
    Flag(("-b", "--batch-size"), "n_batch"),
    Flag(("-ub", "--ubatch-size"), "n_ubatch"),
    Flag(("-ngl", "--gpu-layers", "--n-gpu-layers"), "n_gpu_layers"),
    Flag(("-fa", "--flash-attn"), "flash_attn_type", Kind.FLASH_ATTENTION),
    Flag(("-ctk", "--cache-type-k"), "cache_type_k", Kind.TENSOR_TYPE),
    Flag(("-ctv", "--cache-type-v"), "cache_type_v", Kind.TENSOR_TYPE),
    Flag(("-cram", "--cache-ram"), "cache_ram_mib"),
    Flag(("-kvu", "--kv-unified"), "kv_unified", Kind.SWITCH_ON),
    Flag(("-s", "--seed"), "sampling.seed"),
    Flag(("-n", "--predict", "--n-predict"), "n_predict"),
    Flag(("-a", "--alias"), "model_alias", Kind.TEXT_SET),
    Flag(("--slot-save-path",), "slot_save_path", Kind.TEXT),
    Flag(("--chat-template",), "chat_template", Kind.TEXT),
    Flag(("--metrics",), "endpoint_metrics", Kind.SWITCH_ON),
    Flag(("--slots",), "endpoint_slots", Kind.SWITCH_ON),
    Flag(("--props",), "endpoint_props", Kind.SWITCH_ON),
    Flag(("--no-warmup",), "warmup", Kind.SWITCH_OFF),
    Flag(("--no-cont-batching",), "cont_batching", Kind.SWITCH_OFF),
    Flag(("-lv", "--verbosity", "--log-verbosity"), "verbosity"),
)

FLAGS = (*SERVING, *SPECULATIVE)

BY_NAME: Mapping[str, Flag] = {name: flag for flag in FLAGS for name in flag.names}


def flag_name(name: str) -> str:
    """The long flag for a name as users write it: `c`, `-c` and `ctx-size` are all `--ctx-size`."""
    bare = name.lstrip("-")
    known = BY_NAME.get(f"--{bare}") or BY_NAME.get(f"-{bare}")
    return known.long_name if known else f"--{bare}"
