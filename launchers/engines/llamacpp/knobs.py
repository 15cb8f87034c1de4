"""llama.cpp's speculative methods: their knobs, what is dead among them, and the rules between them.

Found on build b11549 by changing one knob at a time under a fixed greedy load and comparing what was
drafted. Dead there, so no Knob and passed at its default: `min_hits` of ngram-simple and ngram-map-k,
`p_split` of draft-simple (it shapes trees, which the server does not draft).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from launchers.engines.engine import Knob
from launchers.engines.knobs import check_value, defaults_of, filled, in_turn, refuse_strangers
from results.errors import UsageError
from results.records import BASELINE_METHOD, DraftShape, KnobValue, Point

MAX_TOKENS = 1024  # longer n-grams and drafts than this never came to a draft

Rule = Callable[[Mapping[str, KnobValue]], str | None]  # what is wrong and what is legal, or None


@dataclass(frozen=True, slots=True)
class Method:
    """One value of --spec-type."""

    knobs: tuple[Knob, ...]
    flags: str  # common prefix of its flags
    fixed: Mapping[str, KnobValue]  # dead knobs, passed so that no build's default decides
    good: tuple[Mapping[str, KnobValue], ...]  # sane values to start from, best guess first
    needs_draft: bool = False
    rule: Rule = lambda knobs: None

    @property
    def defaults(self) -> dict[str, KnobValue]:
        return defaults_of(self.knobs)

    def flag_values(self, knobs: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
        """Flag -> value, for every knob of the method, dead ones included."""
        return {f"{self.flags}{k.replace('_', '-')}": v for k, v in {**self.fixed, **knobs}.items()}


SIZE_N = Knob("size_n", 12, 1, MAX_TOKENS, grid=(2, 3, 4, 6, 8, 12), meaning="tokens looked up")
SIZE_M = Knob("size_m", 48, 1, MAX_TOKENS, grid=(4, 8, 16, 32, 48), meaning="tokens drafted")
MIN_HITS = Knob("min_hits", 1, 1, 65535, grid=(1, 2, 3), meaning="sightings before a draft")
PAIRS: tuple[Mapping[str, KnobValue], ...] = ({"size_n": 4, "size_m": 8}, {"size_n": 6, "size_m": 16})


def _simple_rule(knobs: Mapping[str, KnobValue]) -> str | None:
    if knobs["size_m"] < knobs["size_n"]:  # type: ignore[operator]  # ranges are checked before
        return f"size_m >= size_n (it never drafts otherwise): raise size_m to {knobs['size_n']}"
    return None


def _order_rule(knobs: Mapping[str, KnobValue]) -> str | None:
    if knobs["n_min"] > knobs["n_max"]:  # type: ignore[operator]
        return f"n_min <= n_max: lower n_min to {knobs['n_max']} or raise n_max to {knobs['n_min']}"
    return None


METHODS: Mapping[str, Method] = {
    BASELINE_METHOD: Method((), "", {}, ()),
    "ngram-simple": Method(
        (SIZE_N, SIZE_M), "--spec-ngram-simple-", {"min_hits": 1}, PAIRS, rule=_simple_rule
    ),
    "ngram-map-k": Method((SIZE_N, SIZE_M), "--spec-ngram-map-k-", {"min_hits": 1}, PAIRS),
    "ngram-map-k4v": Method(
        (SIZE_N, SIZE_M, MIN_HITS),
        "--spec-ngram-map-k4v-",
        {},
        tuple({**pair, "min_hits": 1} for pair in PAIRS),
    ),
    "ngram-mod": Method(
        (
            Knob("n_match", 24, 1, MAX_TOKENS, grid=(4, 8, 12, 16, 24), meaning="tokens looked up"),
            Knob("n_min", 48, 0, MAX_TOKENS, grid=(0, 4, 8, 16, 48), meaning="shortest draft"),
            Knob("n_max", 64, 1, MAX_TOKENS, grid=(4, 8, 16, 32, 64), meaning="longest draft"),
        ),
        "--spec-ngram-mod-",
        {},
        ({"n_match": 8, "n_min": 0, "n_max": 16}, {"n_match": 16, "n_min": 8, "n_max": 32}),
        rule=_order_rule,
    ),
    "draft-simple": Method(
        (
            Knob("n_max", 3, 1, MAX_TOKENS, grid=(1, 2, 3, 4, 6, 8, 12, 16), meaning="longest draft"),
            Knob("n_min", 0, 0, MAX_TOKENS, grid=(0, 1, 2), meaning="shortest draft"),
            Knob("p_min", 0.0, 0.0, 0.99, grid=(0.0, 0.3, 0.5, 0.75), meaning="drafter's confidence"),
        ),
        "--spec-draft-",
        {"p_split": 0.1},
        ({"n_max": 5, "n_min": 0, "p_min": 0.5}, {"n_max": 8, "n_min": 0, "p_min": 0.75}),
        needs_draft=True,
        rule=_order_rule,
    ),
}


KNOB_NAMES = frozenset(
    name for m in METHODS.values() for name in (*(knob.name for knob in m.knobs), *m.fixed)
)


def method_of(point: Point) -> Method:
    """Raises UsageError for a method this tool does not know."""
    if point.method not in METHODS:
        raise UsageError(f"llama.cpp has no method {point.method!r}: choose from {', '.join(METHODS)}")
    return METHODS[point.method]


def canonical(point: Point) -> Point:
    """Defaults filled in, dead and foreign knobs dropped, whole numbers and fractions kept apart."""
    return Point(point.method, {**filled(point, method_of(point).knobs), **point.shared})


def draft_shape(point: Point) -> DraftShape | None:
    """Chains only: the knob that bounds a draft is its depth."""
    knobs = canonical(point).knobs
    longest = knobs.get("n_max", knobs.get("size_m"))
    if longest is None:
        return None
    tokens = int(longest)
    return DraftShape(tokens, tokens, passes=tokens if method_of(point).needs_draft else 0)


def check(point: Point) -> None:
    """Raise UsageError with the rule and the nearest legal values if a Point is illegal."""
    method = method_of(point)
    refuse_strangers(point, method.knobs, dead=method.fixed)
    knobs = canonical(point).knobs
    for knob in method.knobs:
        check_value(point, knob, knobs[knob.name])
    if broken := method.rule(knobs):
        raise UsageError(f"{point.label}: {point.method} needs {broken}")


def starting_points(methods: Mapping[str, Sequence[Knob]]) -> list[Point]:
    """Good guesses of every method before the engine's own defaults, which rarely win."""
    speculative = [name for name in methods if name != BASELINE_METHOD]
    good = in_turn({name: METHODS[name].good for name in speculative})
    return [*good, *(Point(name, METHODS[name].defaults) for name in speculative)]
