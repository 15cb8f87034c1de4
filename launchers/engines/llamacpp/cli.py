"""llama-server's command line: which flags carry the model, the draft model and the sweep file's knobs."""

from collections.abc import Mapping, Sequence

from launchers.embedded.flags import BY_NAME, SPECULATIVE, flag_name
from launchers.engines.command_line import (
    SET_BY_TUNER,
    Grammar,
    Reading,
    Searched,
    around,
    model_of,
    number,
    set_values,
    split_arguments,
    text_of,
    without_own,
)
from launchers.engines.llamacpp.knobs import METHODS
from results.errors import UsageError
from results.records import BASELINE_METHOD, KnobValue

FREE = ("ngram-simple", "ngram-mod")  # need no draft model
# Short names that only the binary knows; those of the embedded server come with its flags.
SHORT = {
    "ot": "override-tensor",
    "otd": "override-tensor-draft",
    "sm": "split-mode",
    "ts": "tensor-split",
    "mg": "main-gpu",
    "dev": "device",
    "devd": "device-draft",
    "cd": "ctx-size-draft",
    "ctkd": "cache-type-k-draft",
    "ctvd": "cache-type-v-draft",
    "cb": "cont-batching",
    "nkvo": "no-kv-offload",
    "mm": "mmproj",
    "mmu": "mmproj-url",
    "to": "timeout",
    "cmoe": "cpu-moe",
    "ncmoe": "n-cpu-moe",
    "ctxcp": "ctx-checkpoints",
    "cms": "checkpoint-min-step",
    "dio": "direct-io",
    "ndio": "no-direct-io",
    "kvo": "kv-offload",
    "nocb": "no-cont-batching",
    "nr": "no-repack",
    "sps": "slot-prompt-similarity",
    "bs": "backend-sampling",
    "dt": "defrag-thold",
    "fit": "fit",
    "fitt": "fit-target",
    "fitc": "fit-ctx",
    "j": "json-schema",
    "l": "logit-bias",
    "hft": "hf-token",
    "hfd": "hf-repo-draft",
    "hfrd": "hf-repo-draft",
    "ncmoed": "n-cpu-moe-draft",
    "cmoed": "cpu-moe-draft",
    "hf": "hf-repo",
    "hfr": "hf-repo",
    "hff": "hf-file",
    "mu": "model-url",
    "C": "cpu-mask",
    "v": "verbosity",
    "verbose": "verbosity",
    "rea": "reasoning",
}
RENAMED = {  # removed from llama-server, still found in scripts
    "draft": "spec-draft-n-max",
    "draft-n": "spec-draft-n-max",
    "draft-max": "spec-draft-n-max",
    "draft-min": "spec-draft-n-min",
    "draft-n-min": "spec-draft-n-min",
    "draft-p-min": "spec-draft-p-min",
}
GRAMMAR = Grammar(
    model="model",
    aliases={
        **{name.lstrip("-"): flag_name(name).lstrip("-") for name in BY_NAME},
        **SHORT,
        **RENAMED,
    },
    switches=r"(?:no)-.*|jinja|mlock|metrics|slots|props|cpu-moe|kv-unified|swa-full|embeddings?|cont-batching",
)
OWN = {
    "model": "",
    **dict.fromkeys(("host", "port", "metrics", "slots", "props", "verbosity"), SET_BY_TUNER),
    "ssl-key-file": "tuner asks its own servers over plain HTTP",
    "ssl-cert-file": "tuner asks its own servers over plain HTTP",
}
_DRAFTS_OWN = (
    "override-tensor-draft",
    "device-draft",
    "ctx-size-draft",
    "cache-type-k-draft",
    "cache-type-v-draft",
    "hf-repo-draft",
    "cpu-moe-draft",
    "n-cpu-moe-draft",
)


def read_llamacpp(words: Sequence[str]) -> Reading:
    """The sweep that the arguments of a llama-server describe. Raises UsageError."""
    arguments = split_arguments(words, GRAMMAR)
    flags = arguments.flags
    _check_names(words)
    if "model" not in flags and ("hf-repo" in flags or "model-url" in flags):
        raise UsageError("the command fetches its model (-hf, -mu): give the path of the GGUF file with -m")
    draft = flags.get("model-draft")
    methods = _methods(flags, draft)
    others, notes = without_own(flags, OWN)
    searched = {method: _knobs(method, flags) for method in methods if method in METHODS}
    return Reading(
        model=model_of(flags.get("model"), arguments.positional, "-m"),
        draft=None if draft is None else text_of("--model-draft", draft),
        args={name: value for name, value in others.items() if not _is_speculative(name)},
        space=_space(searched),
        notes=[
            *(f"--{name} is given more than once: the last one is kept" for name in arguments.repeated),
            *notes,
            *_speculation_notes(methods, flags, searched),
        ],
    )


def _check_names(words: Sequence[str]) -> None:
    """In a sweep file arguments have their long names: a short one that is not known cannot be kept."""
    for word in words:
        name = word.lstrip("-")
        short = word.startswith("-") and not word.startswith("--") and not name[:1].isdigit()
        if short and name and name not in GRAMMAR.aliases:
            raise UsageError(
                f"-{name}: no long name is known for it; write the long one (llama-server --help)"
            )


def _is_speculative(name: str) -> bool:
    known = {flag.long_name.lstrip("-") for flag in SPECULATIVE}
    return name in known or name.startswith("spec-") or name in _DRAFTS_OWN


def _methods(flags: Mapping[str, KnobValue], draft: KnobValue | None) -> list[str]:
    named = str(flags.get("spec-type", "")).replace(" ", "")
    if named and named != BASELINE_METHOD:
        return named.split(",")
    return ["draft-simple"] if draft is not None and not named else []


def _knobs(method: str, flags: Mapping[str, KnobValue]) -> dict[str, int | float]:
    """The user's values of a method's knobs."""
    found = {}
    for knob in METHODS[method].knobs:
        flag = f"{METHODS[method].flags}{knob.name}".lstrip("-").replace("_", "-")
        if flag in flags:
            found[knob.name] = number(f"--{flag}", flags[flag])
    return found


def _space(searched: Mapping[str, Mapping[str, int | float]]) -> list[Searched]:
    space = []
    for method, knobs in searched.items():
        grids = {knob.name: knob.grid for knob in METHODS[method].knobs}
        values = {knob: around(value, grids[knob]) for knob, value in knobs.items()}
        comment = f"yours: {set_values(knobs)}" if knobs else "yours, without values of its own: tuner's grid"
        space.append(Searched(method, values, comment))
    space += [Searched(m, {}, "optional: needs no draft model") for m in FREE if m not in searched]
    if not any(METHODS[method].needs_draft for method in searched):
        space.append(
            Searched(
                "draft-simple", {}, "with a small model of the same vocabulary under `draft`", offered=True
            )
        )
    return space


def _speculation_notes(
    methods: Sequence[str], flags: Mapping[str, KnobValue], searched: Mapping[str, object]
) -> list[str]:
    notes = []
    if not methods:
        notes.append(
            f"the command has no speculation: {' and '.join(FREE)} are tried, which need no draft model"
        )
    notes += [
        f"--spec-type {method} is not searched yet, left out" for method in methods if method not in METHODS
    ]
    if "spec-type" not in flags and "model-draft" in flags:
        notes.append(
            "without --spec-type current builds load a draft model and never use it: draft-simple is searched"
        )
    if "draft-simple" in searched and "model-draft" not in flags:
        notes.append("draft-simple needs a draft model and the command names none: set `draft`")
    others = [
        f for f in flags if _is_speculative(f) and f not in ("spec-type", "model-draft", *_read(searched))
    ]
    if others:
        notes.append(f"{', '.join(f'--{flag}' for flag in others)}: not searched, left at its default")
    return notes


def _read(searched: Mapping[str, object]) -> list[str]:
    flags = [flag for method in searched for flag in METHODS[method].flag_values(METHODS[method].defaults)]
    return [flag.lstrip("-") for flag in flags]
