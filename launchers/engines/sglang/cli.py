"""SGLang's command line: which flags carry the model, the draft model and the knobs of the sweep file.

Names as of SGLang 0.5.23 (`python -m sglang.launch_server --help`), older spellings included.
"""

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
    set_values,
    split_arguments,
    text_of,
    whole,
    without_own,
)
from results.records import KnobValue

GRAMMAR = Grammar(
    model="model-path",
    aliases={
        "model": "model-path",
        "tp": "tensor-parallel-size",
        "tp-size": "tensor-parallel-size",
        "dp": "data-parallel-size",
        "dp-size": "data-parallel-size",
        "pp": "pipeline-parallel-size",
        "pp-size": "pipeline-parallel-size",
        "ep": "expert-parallel-size",
        "ep-size": "expert-parallel-size",
        "speculative-algo": "speculative-algorithm",
        "speculative-draft": "speculative-draft-model-path",
        "speculative-draft-model": "speculative-draft-model-path",
    },
    switches=r"(?:disable|enable|skip)-.*|trust-remote-code|log-requests|speculative-adaptive",
)
OWN = {
    "host": SET_BY_TUNER,
    "port": SET_BY_TUNER,
    **dict.fromkeys(("nnodes", "node-rank", "dist-init-addr", "nccl-init-addr"), OF_SEVERAL_NODES),
    "model-path": "",
    "served-model-name": "a name alone; requests go to the model itself",
    "enable-metrics": SET_BY_TUNER,
    "ssl-keyfile": "tuner asks its own servers over plain HTTP",
    "ssl-certfile": "tuner asks its own servers over plain HTTP",
    "speculative-algorithm": "",
    "speculative-draft-model-path": "",
}
TREE = {
    "speculative-num-steps": ("num_steps", LENGTHS, 2),
    "speculative-eagle-topk": ("topk", (1, 2, 4, 8), 2),
    "speculative-num-draft-tokens": ("draft_tokens", DOUBLINGS[1:], 1),
}
NGRAM_PREFIX = "speculative-ngram-"
Searches = Sequence[KnobValue]  # the values to try

METHODS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")
NEED_DRAFT = ("EAGLE", "EAGLE3", "STANDALONE")
LOSSY = ("speculative-accept-threshold-single", "speculative-accept-threshold-acc")


def read_sglang(words: Sequence[str]) -> Reading:
    """The sweep that the arguments of an SGLang server describe. Raises UsageError."""
    arguments = split_arguments(words, GRAMMAR)
    flags = arguments.flags
    model = model_of(flags.get("model-path"), arguments.positional, "--model-path")
    draft = flags.get("speculative-draft-model-path")
    algorithm = str(flags.get("speculative-algorithm", "")).upper()
    knobs = _knobs(algorithm, flags)
    others, notes = without_own(flags, OWN)
    args = {name: value for name, value in others.items() if not _is_knob(name, value)}
    return Reading(
        model=model,
        draft=None if draft is None else text_of("--speculative-draft-model-path", draft),
        args=args,
        space=_space(algorithm, knobs, args),
        notes=[
            *(f"--{name} is given more than once: the last one is kept" for name in arguments.repeated),
            *notes,
            *_speculation_notes(algorithm, draft, flags, knobs),
        ],
    )


def _is_knob(name: str, value: KnobValue) -> bool:
    """NGRAM's settings that are no numbers (match type, corpus) are fixed arguments."""
    return name in TREE or (name.startswith(NGRAM_PREFIX) and not isinstance(value, bool | str))


def _knobs(algorithm: str, flags: Mapping[str, KnobValue]) -> dict[str, tuple[int | float, Searches]]:
    """Knob -> (the user's value, the values around it), for the flags that this algorithm reads."""
    if algorithm not in METHODS:
        return {}
    found: dict[str, tuple[int | float, Searches]] = {}
    for flag, value in flags.items():
        if algorithm != "NGRAM" and flag in TREE:
            knob, rungs, reach = TREE[flag]
            given = whole(f"--{flag}", value)
            chain = (1,) if knob == "topk" and given > 2 else ()  # often the best, however wide the tree was
            found[knob] = (given, tuple(dict.fromkeys([*chain, *around(given, rungs, reach)])))
        elif algorithm == "NGRAM" and _is_knob(flag, value) and _is_read(flag, algorithm):
            amount = number(f"--{flag}", value)
            found[_ngram_knob(flag)] = (amount, around(amount, DOUBLINGS, 1))
    return found


def _ngram_knob(flag: str) -> str:
    rest = flag.removeprefix(NGRAM_PREFIX).replace("-", "_")
    return {"max_bfs_breadth": "breadth", "speculative_num_draft_tokens": "draft_tokens"}.get(rest, rest)


def _space(
    algorithm: str,
    knobs: Mapping[str, tuple[int | float, Searches]],
    args: Mapping[str, KnobValue],
) -> list[Searched]:
    yours = set_values({knob: value for knob, (value, _) in knobs.items()})
    space = []
    if algorithm in METHODS:
        grid = {knob: values for knob, (_, values) in knobs.items()}
        comment = f"yours: {yours}" if yours else "yours, without values of its own: tuner's grid"
        space.append(Searched(algorithm, grid, comment))
    if algorithm != "NGRAM":
        dp = "enable-dp-attention" in args
        comment = "not with --enable-dp-attention" if dp else "optional: needs no draft model"
        space.append(Searched("NGRAM", {}, comment, offered=dp))
    if algorithm not in METHODS:
        tree = {"num_steps": (1, 2, 3, 4, 5), "topk": (1, 2, 4), "draft_tokens": (4, 8, 16)}
        space.append(
            Searched("EAGLE3", tree, "with an EAGLE-3 head for this model under `draft`", offered=True)
        )
    return space


def _speculation_notes(
    algorithm: str,
    draft: KnobValue | None,
    flags: Mapping[str, KnobValue],
    knobs: Mapping[str, object],
) -> list[str]:
    notes = []
    if not algorithm:
        notes.append("the command has no speculation: NGRAM is tried, which needs no draft model")
    elif algorithm not in METHODS:
        notes.append(f"--speculative-algorithm {algorithm} is not searched yet: NGRAM is tried in its place")
    if algorithm in NEED_DRAFT and draft is None:
        notes.append(f"{algorithm} needs a draft model and the command names none: set `draft`")
    dead = [flag for flag, value in flags.items() if _is_knob(flag, value) and not _is_read(flag, algorithm)]
    if dead and (algorithm in METHODS or not algorithm):
        names = ", ".join(f"--{flag}" for flag in dead)
        notes.append(f"{names}: without effect with {algorithm or 'no --speculative-algorithm'}, left out")
    if any(flags.get(flag, 1.0) not in (1, 1.0) for flag in LOSSY):
        notes.append("the accept threshold is below 1: answers differ from the model's own (lossy)")
    if not knobs and draft is not None and not algorithm:
        notes.append("a draft model is named but no --speculative-algorithm: it was never used")
    return notes


def _is_read(flag: str, algorithm: str) -> bool:
    if algorithm == "NGRAM":
        return flag == "speculative-num-draft-tokens" or flag.startswith(NGRAM_PREFIX)
    return algorithm in METHODS and flag in TREE
