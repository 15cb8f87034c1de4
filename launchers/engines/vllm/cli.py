"""vLLM's command line: which flags carry the model, the draft model and the knobs of the sweep file.

Names as of vLLM 0.33.0 (`vllm serve --help=all`), older spellings included. Speculation comes as JSON
(`--speculative-config '{...}'`), by single keys of it (`--speculative-config.method ngram`), as the short
flags `--spec-*`, or as the flags that the JSON replaced.
"""

import json
import re
from collections.abc import Mapping, Sequence

from launchers.engines.command_line import (
    DOUBLINGS,
    LENGTHS,
    OF_SEVERAL_NODES,
    SET_BY_TUNER,
    Grammar,
    Reading,
    Searched,
    around,
    model_of,
    number,
    scalar,
    set_values,
    split_arguments,
    text_of,
    without_own,
)
from results.errors import UsageError
from results.records import KnobValue

CONFIG = "speculative-config"
GRAMMAR = Grammar(
    model="model",
    aliases={
        "tp": "tensor-parallel-size",
        "pp": "pipeline-parallel-size",
        "dp": "data-parallel-size",
        "dcp": "decode-context-parallel-size",
        "pcp": "prefill-context-parallel-size",
        "asc": "api-server-count",
        "ep": "enable-expert-parallel",
        "q": "quantization",
        "n": "nnodes",
        "r": "node-rank",
        "O": "compilation-config",
        "cc": "compilation-config",
        "ac": "attention-config",
        "sc": CONFIG,
        "spec-method": f"{CONFIG}.method",
        "spec-model": f"{CONFIG}.model",
        "spec-tokens": f"{CONFIG}.num_speculative_tokens",
        # removed from vLLM, still found in scripts
        "speculative-model": f"{CONFIG}.model",
        "num-speculative-tokens": f"{CONFIG}.num_speculative_tokens",
        "ngram-prompt-lookup-max": f"{CONFIG}.prompt_lookup_max",
        "ngram-prompt-lookup-min": f"{CONFIG}.prompt_lookup_min",
        "speculative-draft-tensor-parallel-size": f"{CONFIG}.draft_tensor_parallel_size",
    },
    switches=r"(?:disable|enable|no|skip|return)-.*|trust-remote-code|enforce-eager|async-scheduling"
    r"|language-model-only|headless|use-tqdm-on-load|fully-sharded-loras|calculate-kv-scales",
)
OWN = {
    "host": SET_BY_TUNER,
    "port": SET_BY_TUNER,
    **dict.fromkeys(("nnodes", "node-rank", "master-addr", "master-port", "headless"), OF_SEVERAL_NODES),
    "model": "",
    "uds": "tuner asks its own servers over loopback",
    "served-model-name": "a name alone; requests go to the model itself",
    "disable-log-stats": "it switches off the counters that acceptance is read from",
    "ssl-keyfile": "tuner asks its own servers over plain HTTP",
    "ssl-certfile": "tuner asks its own servers over plain HTTP",
    "task": "tuner measures generation",
}
SEARCHED_KEYS = {
    "num_speculative_tokens": (LENGTHS, 2),
    "prompt_lookup_min": (DOUBLINGS, 1),
    "prompt_lookup_max": (DOUBLINGS, 1),
    "suffix_decoding_max_tree_depth": (DOUBLINGS, 1),
    "suffix_decoding_max_spec_factor": ((0.5, 1.0, 2.0, 4.0), 1),
    "suffix_decoding_min_token_prob": ((0.05, 0.1, 0.2, 0.5), 1),
    "suffix_decoding_max_cached_requests": ((), 0),
}
LOOKUP = ("num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max")
SUFFIX = tuple(key for key in SEARCHED_KEYS if key.startswith("suffix_"))
METHODS = {
    "ngram": LOOKUP,
    "draft_model": LOOKUP[:1],
    "eagle": LOOKUP[:1],
    "eagle3": LOOKUP[:1],
    "mtp": LOOKUP[:1],
    "medusa": LOOKUP[:1],
    "suffix": (LOOKUP[0], *SUFFIX),
}
NEED_DRAFT = ("draft_model", "eagle", "eagle3", "medusa")


def read_vllm(words: Sequence[str]) -> Reading:
    """The sweep that the arguments of a vLLM server describe. Raises UsageError."""
    arguments = split_arguments([_optimization(word) for word in words], GRAMMAR)
    flags = arguments.flags
    model = model_of(flags.get("model"), arguments.positional, "--model")
    config, notes = _config(flags), list[str]()
    draft = _draft(config)
    method = _method(config, notes)
    knobs = {k: number(k, _plain(v)) for k, v in config.items() if k in METHODS.get(method or "", ())}
    others, dropped = without_own({n: v for n, v in flags.items() if not _is_config(n)}, OWN)
    rest = {k: v for k, v in config.items() if k not in ("method", "model") and k not in SEARCHED_KEYS}
    return Reading(
        model=model,
        draft=draft,
        args={
            **others,
            **({f"{CONFIG}.{k}": _plain(v) for k, v in rest.items()} if method in METHODS else {}),
        },
        space=_space(method, knobs),
        notes=[
            *(f"--{name} is given more than once: the last one is kept" for name in arguments.repeated),
            *dropped,
            *notes,
            *_speculation_notes(method, config, draft),
        ],
    )


def _optimization(word: str) -> str:
    """`-O3` is the optimization level; `-O '{...}'` an older name of the compilation config."""
    return re.sub(r"^-O([0-3])$", r"--optimization-level=\1", word)


def _is_config(name: str) -> bool:
    return name == CONFIG or name.startswith(f"{CONFIG}.")


def _config(flags: Mapping[str, KnobValue]) -> dict[str, object]:
    """The speculative configuration, from JSON and from single keys."""
    config: dict[str, object] = {}
    if CONFIG in flags:
        try:
            read = json.loads(text_of(f"--{CONFIG}", flags[CONFIG]))
        except json.JSONDecodeError as error:
            raise UsageError(
                f"--{CONFIG} is not valid JSON: {error.msg} at character {error.pos + 1}"
            ) from None
        if not isinstance(read, dict):
            raise UsageError(f"--{CONFIG} must be a JSON object like {{'method': 'ngram', ...}}")
        config.update(read)
    config.update({n.removeprefix(f"{CONFIG}."): v for n, v in flags.items() if n.startswith(f"{CONFIG}.")})
    return config


def _draft(config: Mapping[str, object]) -> str | None:
    model = config.get("model")
    return None if model in (None, "ngram", "[ngram]") else str(model)


def _method(config: Mapping[str, object], notes: list[str]) -> str | None:
    """The method by the sweep file's name; vLLM's own way of guessing where none is given."""
    if not config:
        return None
    named = config.get("method")
    if named is None:
        method = _guessed(_draft(config), config)
        notes.append(
            f"the speculative config names no method: taken as {method}, as vLLM does by the model's name"
        )
        return method
    method = str(named).lower().strip("[]")
    if method.endswith("_mtp"):
        notes.append(f"method {method} is called mtp here, as in vLLM since 0.12")
        return "mtp"
    return method


def _guessed(draft: str | None, config: Mapping[str, object]) -> str:
    if draft is None:
        return "ngram" if config.get("model") else "mtp"
    name = draft.lower()
    return next(
        (m for m in ("eagle3", "eagle-3", "eagle", "medusa", "mtp") if m in name), "draft_model"
    ).replace("-", "")


def _plain(value: object) -> KnobValue:
    """A value of the JSON as the sweep file holds it: lists and objects stay JSON."""
    if isinstance(value, bool | int | float):
        return value
    return scalar(value) if isinstance(value, str) else json.dumps(value)


def _space(method: str | None, knobs: Mapping[str, int | float]) -> list[Searched]:
    space = []
    if method in METHODS:
        grid = {knob: around(value, *SEARCHED_KEYS[knob]) for knob, value in knobs.items()}
        comment = f"yours: {set_values(knobs)}" if knobs else "yours, without values of its own: tuner's grid"
        space.append(Searched(method, grid, comment))
    if method != "ngram":
        space.append(Searched("ngram", {}, "optional: needs no draft model"))
    if method not in METHODS:
        tokens = {"num_speculative_tokens": (1, 2, 3, 4, 5)}
        space.append(
            Searched("eagle3", tokens, "with an EAGLE-3 head for this model under `draft`", offered=True)
        )
    return space


def _speculation_notes(method: str | None, config: Mapping[str, object], draft: str | None) -> list[str]:
    if method is None:
        return ["the command has no speculation: ngram is tried, which needs no draft model"]
    if method not in METHODS:
        return [f"method {method} is not searched yet: ngram is tried in its place"]
    notes = []
    if method in NEED_DRAFT and draft is None:
        notes.append(f"{method} needs a draft model and the command names none: set `draft`")
    dead = [key for key in config if key in SEARCHED_KEYS and key not in METHODS[method]]
    if dead:
        notes.append(f"{', '.join(dead)}: without effect with {method}, left out")
    return notes
