"""SGLang's speculative methods: their knobs, what is dead among them, and the rules between them.

Read from SGLang 0.5.23: `srt/arg_groups/speculative_hook.py`, `srt/speculative/eagle_utils.py`,
`srt/speculative/adaptive_spec_params.py` and `kernels/jit/csrc/ngram_corpus/`. Where it accepts what it
cannot serve ("run": seen on a server), the rule here is stricter than the engine's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from launchers.engines.engine import Knob
from launchers.engines.knobs import Knobs, defaults_of, filled, in_turn, without_unset
from results.errors import UsageError
from results.records import BASELINE_METHOD, DraftShape, KnobValue, Point

KNOWN_VERSIONS = ("0.5.23",)
# Steps that adaptive speculation moves between unless a file says others.
ADAPTIVE_STEPS = (0, 1, 3, 5, 7)
LOSSY_KNOBS = ("accept_threshold_single", "accept_threshold_acc")


NUM_STEPS = Knob("num_steps", 5, 1, 64, grid=(1, 2, 3, 4, 5, 7), meaning="draft steps: depth of the tree")
TOPK = Knob("topk", 4, 1, 64, grid=(1, 2, 4, 8), meaning="branches kept per step; 1 = a chain")
DRAFT_TOKENS = Knob(
    "draft_tokens",
    8,
    2,
    512,
    grid=(2, 4, 6, 8, 12, 16, 24, 32, 64),
    meaning="tree nodes verified, root included",
)
ATTENTION = Knob(
    "attention_mode",
    "prefill",
    choices=("prefill", "decode"),
    meaning="kernels that verify and extend drafts",
    optional=True,
)
DRAFT_BACKEND = Knob(
    "draft_attention_backend",
    "",
    meaning="the drafter's attention backend; empty = the model's",
    optional=True,
)
DRAFT_WINDOW = Knob(
    "draft_window", 0, 0, 1 << 20, meaning="last tokens the drafter attends to; 0 = all", optional=True
)
SINGLE = Knob(
    "accept_threshold_single",
    1.0,
    0.0,
    1.0,
    meaning="accept likelier drafts than this; below 1 = LOSSY",
    optional=True,
)
ACCUMULATED = Knob(
    "accept_threshold_acc",
    1.0,
    0.0,
    1.0,
    meaning="divides the chance to reject; below 1 = LOSSY",
    optional=True,
)
REJECTION = Knob(
    "use_rejection_sampling",
    False,
    choices=(False, True),
    meaning="sample drafts by probability",
    optional=True,
)
BLOCKWISE = Knob(
    "use_block_verification", False, choices=(False, True), meaning="accept whole runs at once", optional=True
)
ADAPTIVE = Knob(
    "adaptive", False, choices=(False, True), meaning="follow acceptance with num_steps", optional=True
)
ADAPTIVE_CONFIG = Knob("adaptive_config", "", meaning="file with the steps per batch size", optional=True)

TREE = (NUM_STEPS, TOPK, DRAFT_TOKENS)
CHAIN = (replace(NUM_STEPS, default=3), replace(TOPK, default=1), replace(DRAFT_TOKENS, default=4))
SHARED_OPTIONS = (ATTENTION, SINGLE, ACCUMULATED)
EAGLE_OPTIONS = (
    *SHARED_OPTIONS,
    DRAFT_BACKEND,
    DRAFT_WINDOW,
    REJECTION,
    BLOCKWISE,
    ADAPTIVE,
    ADAPTIVE_CONFIG,
)
NGRAM = (
    replace(DRAFT_TOKENS, default=12, grid=(4, 8, 12, 16, 24, 32)),
    Knob("breadth", 10, 1, 64, grid=(1, 2, 4, 8, 10), meaning="children tried at a shallow node"),
    Knob("min_breadth", 1, 1, 64, meaning="children tried at a deep node", optional=True),
    Knob("match_type", "BFS", choices=("BFS", "PROB"), meaning="by recency or by frequency", optional=True),
    Knob("trie_depth", 18, 2, 256, meaning="tokens looked up and drafted at most", optional=True),
    *SHARED_OPTIONS,
)

FLAGS: Mapping[str, str] = {  # knob -> its flag
    "num_steps": "--speculative-num-steps",
    "topk": "--speculative-eagle-topk",
    "draft_tokens": "--speculative-num-draft-tokens",
    "attention_mode": "--speculative-attention-mode",
    "draft_attention_backend": "--speculative-draft-attention-backend",
    "draft_window": "--speculative-draft-window-size",
    "accept_threshold_single": "--speculative-accept-threshold-single",
    "accept_threshold_acc": "--speculative-accept-threshold-acc",
    "use_rejection_sampling": "--speculative-use-rejection-sampling",
    "use_block_verification": "--speculative-use-block-verification",
    "adaptive": "--speculative-adaptive",
    "adaptive_config": "--speculative-adaptive-config",
    "breadth": "--speculative-ngram-max-bfs-breadth",
    "min_breadth": "--speculative-ngram-min-bfs-breadth",
    "match_type": "--speculative-ngram-match-type",
    "trie_depth": "--speculative-ngram-max-trie-depth",
}


@dataclass(frozen=True, slots=True)
class Method:
    """One value of --speculative-algorithm."""

    knobs: tuple[Knob, ...]
    good: tuple[Knobs, ...] = ()  # sane values to start from, best guess first
    needs_draft: bool = True
    is_eagle: bool = False  # EAGLE's own worker: chains may be sampled, adaptive, verified by blocks

    @property
    def defaults(self) -> dict[str, KnobValue]:
        return defaults_of(self.knobs)


def _tree(steps: int, topk: int, draft: int) -> Knobs:
    return {"num_steps": steps, "topk": topk, "draft_tokens": draft}


# 5/4/8 and 3/1/4 are SGLang's defaults; chains are the vendors' recipes for MTP and for large batches.
TREES = (_tree(3, 1, 4), _tree(3, 4, 12), _tree(5, 4, 8), _tree(2, 4, 6), _tree(5, 8, 32))
CHAINS = (_tree(3, 1, 4), _tree(1, 1, 2), _tree(2, 1, 3), _tree(5, 1, 6))
METHODS: Mapping[str, Method] = {
    BASELINE_METHOD: Method((), needs_draft=False),
    "EAGLE3": Method((*TREE, *EAGLE_OPTIONS), TREES, is_eagle=True),
    "EAGLE": Method((*TREE, *EAGLE_OPTIONS), TREES, is_eagle=True),
    "NEXTN": Method((*CHAIN, *EAGLE_OPTIONS), CHAINS, is_eagle=True),
    "STANDALONE": Method((*CHAIN, *SHARED_OPTIONS, DRAFT_BACKEND), TREES[:3]),
    "NGRAM": Method(
        NGRAM,
        (
            {"draft_tokens": 8, "breadth": 1},
            {"draft_tokens": 12, "breadth": 10},
            {"draft_tokens": 16, "breadth": 4},
        ),
        needs_draft=False,
    ),
}


def rules_note(version: str) -> str:
    """What to tell of rules used for a version they were not read from; "" if they were."""
    if version.split("+")[0].split(".post")[0] in KNOWN_VERSIONS:
        return ""
    return (
        f"the rules between speculative settings are those of SGLang {KNOWN_VERSIONS[-1]}, not of {version}"
    )


def method_of(point: Point) -> Method:
    """Raises UsageError for a method this tool does not know."""
    if point.method not in METHODS:
        raise UsageError(f"SGLang has no method {point.method!r}: choose from {', '.join(METHODS)}")
    return METHODS[point.method]


def canonical(point: Point) -> Point:
    """Defaults filled in, dead and foreign knobs and optional defaults dropped, numbers of one kind."""
    knobs = method_of(point).knobs
    values = filled(point, knobs)
    alive = {k: v for k, v in values.items() if not _is_dead(k, values)}
    return Point(point.method, {**without_unset(alive, knobs), **point.shared})


def _is_dead(name: str, knobs: Knobs) -> bool:
    """Whether the engine overwrites this knob, or never reads it, beside these values."""
    if name == "draft_tokens":  # forced to num_steps + 1
        return knobs.get("topk") == 1
    if name == "adaptive_config":
        return not knobs["adaptive"]
    if name == "use_rejection_sampling":  # switched on by it
        return bool(knobs["use_block_verification"])
    return False


def flag_values(point: Point) -> dict[str, KnobValue]:
    """Flag -> value for every knob of the method, as the Point gives them or by default; none for ""."""
    values = {**method_of(point).defaults, **canonical(point).speculative, **point.speculative}
    if values.get("topk") == 1 and "draft_tokens" not in point.knobs:
        values["draft_tokens"] = int(values["num_steps"]) + 1
    if values.get("use_block_verification"):
        values["use_rejection_sampling"] = True
    if point.method == "NGRAM":  # what it derives from them
        values["topk"] = values["breadth"]
        values["num_steps"] = max(1, int(values["draft_tokens"]) // int(values["breadth"]))
    return {
        FLAGS[k]: v for k, v in values.items() if k in FLAGS and v != "" and (k, v) != ("draft_window", 0)
    }


def draft_shape(point: Point) -> DraftShape | None:
    """SGLang counts the root among the draft tokens; with `adaptive` the steps change while it runs."""
    knobs = {**method_of(point).defaults, **canonical(point).speculative}
    if point.is_baseline or knobs.get("adaptive"):
        return None
    topk = int(knobs.get("topk", knobs.get("breadth", 1)))
    if point.method == "NGRAM":
        proposed = int(knobs["draft_tokens"]) - 1
        return DraftShape(min(proposed, int(knobs["trie_depth"])), proposed, passes=0, topk=topk)
    steps = int(knobs["num_steps"])
    return DraftShape(steps, steps if topk == 1 else int(knobs["draft_tokens"]) - 1, passes=steps, topk=topk)


def shapes(method: str) -> list[Point]:
    """One Point of every kind the engine tells apart when it resolves: a chain and a tree."""
    if method == BASELINE_METHOD:
        return []
    width = "breadth" if method == "NGRAM" else "topk"
    wide = {width: 4, "draft_tokens": 8}
    return [canonical(Point(method, values)) for values in ({width: 1}, wide)]


def starting_points(methods: Sequence[str]) -> list[Point]:
    """Good guesses of every method in turn, each once."""
    guesses = in_turn({name: METHODS[name].good for name in methods})
    points = [canonical(point) for point in guesses]
    return list({point.key: point for point in points}.values())
