"""vLLM's speculative methods: their knobs, and the rules between them that need no server and no model.

Read from vLLM 0.32.0 (config/speculative.py, v1/spec_decode, v1/core/sched) and checked on its CPU build.
vLLM drafts chains only: there is no top-k and no tree.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from launchers.engines.engine import Knob
from launchers.engines.knobs import (
    Knobs,
    check_value,
    defaults_of,
    filled,
    in_turn,
    refuse_strangers,
    without_unset,
)
from launchers.engines.vllm import schedule
from results.errors import UsageError
from results.records import BASELINE_METHOD, DraftShape, KnobValue, Point

MAX_TOKENS = 128  # the rejection sampler asserts that no draft is longer
MAX_NGRAM = 1024
Rule = Callable[[Knobs], str | None]  # what is wrong and what is legal, or None

# Accept what the target would not have chosen: never searched unless the user asks.
LOSSY = {
    "synthetic": "synthetic accepts draft tokens at random, whatever the model says of them",
    "fly": "fly accepts draft tokens that the model would have rejected",
}


@dataclass(frozen=True, slots=True)
class Method:
    """One value of `method` in --speculative-config."""

    knobs: tuple[Knob, ...]
    good: tuple[Knobs, ...] = ()  # sane values to start from, best guess first
    needs_draft: bool = False  # a draft model or head is named beside the model
    has_drafter: bool = False  # a network drafts, rather than a look-up of what was said before
    heads: bool = False  # one pass drafts every token of a chain
    async_scheduling: bool = True  # vLLM can prepare a step while the one before still runs
    rule: Rule = lambda knobs: None

    @property
    def defaults(self) -> dict[str, KnobValue]:
        return defaults_of(self.knobs)


def _tokens(default: int, *grid: int) -> Knob:
    meaning = "tokens drafted per step (K)"
    return Knob("num_speculative_tokens", default, 1, MAX_TOKENS, grid=grid, meaning=meaning)


PER_BATCH_SIZE = Knob(
    "tokens_per_batch_size",
    "",
    meaning="draft length by number of running requests, e.g. 1-4:5,5-16:3,17-:0",
    optional=True,
)
REJECTION = Knob(
    "rejection_sample_method",
    "standard",
    choices=("standard", "block", *LOSSY),
    meaning="how drafts are verified when sampling",
    optional=True,
)
DRAFT_SAMPLING = Knob(
    "draft_sample_method",
    "greedy",
    choices=("greedy", "probabilistic"),
    meaning="how the drafter picks its tokens",
    optional=True,
)
# The last two change nothing at temperature 0, so they are searched only if they are named.
NETWORK = (PER_BATCH_SIZE, REJECTION, DRAFT_SAMPLING)


def _lookup_rule(knobs: Knobs) -> str | None:
    low, high = knobs["prompt_lookup_min"], knobs["prompt_lookup_max"]
    if low > high:  # type: ignore[operator]  # ranges are checked before
        return f"prompt_lookup_min <= prompt_lookup_max: lower min to {high} or raise max to {low}"
    return None


def _suffix_rule(knobs: Knobs) -> str | None:
    tokens, depth = knobs["num_speculative_tokens"], knobs["suffix_decoding_max_tree_depth"]
    if tokens > depth:  # type: ignore[operator]
        return (
            f"num_speculative_tokens <= suffix_decoding_max_tree_depth (no draft is longer than the tree): "
            f"lower num_speculative_tokens to {depth} or raise the depth to {tokens}"
        )
    return None


METHODS: Mapping[str, Method] = {
    BASELINE_METHOD: Method(()),
    "ngram": Method(
        (
            _tokens(3, 2, 3, 4, 5, 6, 8, 12, 16),
            Knob(
                "prompt_lookup_max", 5, 1, MAX_NGRAM, grid=(2, 3, 4, 5, 8), meaning="longest n-gram looked up"
            ),
            Knob(
                "prompt_lookup_min",
                5,
                1,
                MAX_NGRAM,
                grid=(1, 2, 3, 4, 5),
                meaning="shortest n-gram looked up",
            ),
            PER_BATCH_SIZE,
            REJECTION,
        ),
        (
            {"num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2},
            {"num_speculative_tokens": 8, "prompt_lookup_max": 5, "prompt_lookup_min": 3},
        ),
        async_scheduling=False,
        rule=_lookup_rule,
    ),
    "suffix": Method(
        (
            _tokens(24, 4, 8, 16, 24),
            Knob(
                "suffix_decoding_max_tree_depth",
                24,
                2,
                256,
                grid=(8, 16, 24, 32, 64),
                meaning="match plus draft",
            ),
            Knob(
                "suffix_decoding_max_spec_factor",
                1.0,
                0.1,
                16.0,
                grid=(0.5, 1.0, 2.0, 4.0),
                meaning="draft length per token matched",
            ),
            Knob(
                "suffix_decoding_min_token_prob",
                0.1,
                0.0,
                1.0,
                grid=(0.05, 0.1, 0.3),
                meaning="least share of it",
            ),
            REJECTION,
            Knob(
                "suffix_decoding_max_cached_requests",
                10000,
                0,
                10_000_000,
                grid=(0, 10000),
                meaning="answers remembered for later requests",
                optional=True,
            ),
        ),
        ({"num_speculative_tokens": 16, "suffix_decoding_max_spec_factor": 2.0},),
        async_scheduling=False,
        rule=_suffix_rule,
    ),
    "draft_model": Method(
        (_tokens(3, 1, 2, 3, 4, 5, 6, 8), *NETWORK),
        ({"num_speculative_tokens": 5},),
        needs_draft=True,
        has_drafter=True,
    ),
    "eagle": Method(
        (_tokens(3, 1, 2, 3, 4, 5, 6), *NETWORK),
        ({"num_speculative_tokens": 2},),
        needs_draft=True,
        has_drafter=True,
    ),
    "eagle3": Method(
        (_tokens(3, 1, 2, 3, 4, 5, 6, 8), *NETWORK),
        ({"num_speculative_tokens": 5},),
        needs_draft=True,
        has_drafter=True,
    ),
    "mtp": Method(
        (_tokens(1, 1, 2, 3, 4, 5), *NETWORK),
        ({"num_speculative_tokens": 3}, {"num_speculative_tokens": 2}),
        has_drafter=True,
    ),
    "medusa": Method(
        (_tokens(1, 1, 2, 3, 4, 5), REJECTION),
        ({"num_speculative_tokens": 3}, {"num_speculative_tokens": 2}),
        needs_draft=True,
        has_drafter=True,
        heads=True,
        async_scheduling=False,
    ),
}

KNOB_NAMES = frozenset(knob.name for method in METHODS.values() for knob in method.knobs)


def method_of(point: Point) -> Method:
    """Raises UsageError for a method this tool does not know."""
    if point.method not in METHODS:
        raise UsageError(f"no method {point.method!r} is known for vLLM: choose from {', '.join(METHODS)}")
    return METHODS[point.method]


def canonical(point: Point) -> Point:
    """Defaults filled in, foreign knobs and optional ones at their default left out, one type per knob."""
    knobs = method_of(point).knobs
    kept = without_unset(filled(point, knobs), knobs)
    if isinstance(text := kept.get("tokens_per_batch_size"), str):
        kept["tokens_per_batch_size"] = _one_spelling(text)
    return Point(point.method, {**kept, **point.shared})


def draft_shape(point: Point) -> DraftShape | None:
    """Chains; None for a draft length that follows the batch."""
    knobs = canonical(point).knobs
    if "num_speculative_tokens" not in knobs or knobs.get("tokens_per_batch_size"):
        return None
    method, tokens = method_of(point), int(knobs["num_speculative_tokens"])
    passes = 0 if not method.has_drafter else 1 if method.heads else tokens
    return DraftShape(tokens, tokens, passes)


def _one_spelling(text: str) -> str:
    try:
        return schedule.text_of(schedule.parse(text))
    except UsageError:
        return text  # `check` says what is wrong with it


def check(point: Point) -> None:
    """Raise UsageError with the rule and the nearest legal values if a Point is illegal on every server."""
    method = method_of(point)
    refuse_strangers(point, method.knobs)
    knobs = {**method.defaults, **canonical(point).speculative}
    for knob in method.knobs:
        check_value(point, knob, knobs[knob.name])
    if broken := method.rule(knobs) or _schedule_rule(knobs):
        raise UsageError(f"{point.label}: {point.method} needs {broken}")


def _schedule_rule(knobs: Knobs) -> str | None:
    text, most = knobs.get("tokens_per_batch_size"), knobs.get("num_speculative_tokens")
    if not text:
        return None
    try:
        longest = max(step.tokens for step in schedule.parse(str(text)))
    except UsageError as error:
        return f"a tokens_per_batch_size that covers every batch size: {error}"
    if longest > most:  # type: ignore[operator]
        return (
            f"no draft in tokens_per_batch_size longer than num_speculative_tokens (vLLM cuts it): "
            f"raise num_speculative_tokens to {longest} or lower the drafts to {most}"
        )
    return None


def starting_points(methods: Sequence[str]) -> list[Point]:
    """Good guesses of every method before its defaults; some may be illegal for the model at hand."""
    speculative = [name for name in methods if name != BASELINE_METHOD]
    good = in_turn({name: METHODS[name].good for name in speculative})
    return [*good, *(Point(name) for name in speculative)]
