"""Rules that need the two configs alone: rotations, vocabulary, the model it was trained for."""

import re
from collections.abc import Iterator, Mapping

from analysis.wiring.samples import Samples
from results.checkpoint import Checkpoint, whole
from results.head_config import USUAL_THETA, Head, rope_of
from results.wiring import Cause, Finding, Fix, Severity

FROM_TARGET = "trainers take them from the target (speculators issue #574, Automodel issue #2399)"
SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")
# What a name has at its end when it is the same model in other numbers.
SAME_MODEL = re.compile(r"[-_.]?(fp8|nvfp4|mxfp4|fp4|awq|gptq|int4|int8|w4a16|w8a8|bf16|hf|dynamic)$")


def rope_findings(head: Checkpoint, target: Checkpoint) -> Iterator[Finding]:
    """Where a head gives rotations at all, its trainer took them from the target.

    One that gives none was trained with the default, as EAGLE's own heads were; one whose base and scaling
    are both others, as it says: SpecForge trains with what its configs/ have, without YaRN for Kimi's models.
    """
    config = Head(head).config
    theta, scaling = rope_of(config)
    theirs, their_scaling = rope_of(target.text_config)
    is_said = theta is not None or scaling is not None or "rope_scaling" in config
    another_base = (theta or USUAL_THETA) != (theirs or USUAL_THETA)
    rescaled = _plain(scaling) != _plain(their_scaling)
    lost_one = is_said and another_base != rescaled  # both others: rotations of its own, not the target's
    severity = Severity.LIKELY if lost_one else Severity.INFO
    if another_base:
        yield _base(config, theta, theirs, severity if theirs is not None else Severity.INFO)
    if rescaled:
        seen = (
            f"the drafter's rotations are scaled by {_said(scaling)}, the target's by {_said(their_scaling)}"
        )
        fix = Fix("set rope_scaling as the target has it", config={"rope_scaling": their_scaling})
        rule = f"{FROM_TARGET}: fine when short, falls with the position"
        yield Finding(Cause.ROPE, severity, seen, rule, fix)


def _base(
    config: Mapping[str, object], theta: float | None, theirs: float | None, severity: Severity
) -> Finding:
    def said(base: float | None) -> str:
        return f"{base:g}" if base is not None else f"{USUAL_THETA:g}, the default"

    seen = f"the drafter's rotations have the base {said(theta)}, the target's {said(theirs)}"
    wanted = theirs or USUAL_THETA
    inner = config.get("rope_parameters")
    key = "rope_parameters.rope_theta" if isinstance(inner, Mapping) else "rope_theta"
    return Finding(
        Cause.ROPE, severity, seen, FROM_TARGET, Fix(f"set {key} to {wanted:g}", config={key: wanted})
    )


def _plain(scaling: Mapping[str, object] | None) -> Mapping[str, object]:
    """Under one name for its kind."""
    plain = dict(scaling or {})
    kind = plain.pop("type", None)
    if kind is not None:
        plain.setdefault("rope_type", kind)
    return plain


def _said(scaling: Mapping[str, object] | None) -> str:
    plain = _plain(scaling)
    kind = str(plain.get("rope_type") or "a kind without a name") if plain else "nothing"
    return f"{kind} x {plain['factor']}" if "factor" in plain else kind


def vocabulary_findings(head: Checkpoint, target: Checkpoint, samples: Samples) -> Iterator[Finding]:
    """Sizes, special tokens, and the tokens themselves where the drafter brings a tokenizer."""
    own, theirs = whole(Head(head).config, "vocab_size"), target.whole("vocab_size")
    if own and theirs and own != theirs:
        seen = f"the drafter's vocabulary is {own}, the target's {theirs}"
        yield Finding(Cause.VOCABULARY, Severity.LIKELY, seen, "they must be one (vLLM issue #43369)")
    for name in SPECIAL:
        mine, target_ids = _ids(head.config.get(name)), _ids(target.text_config.get(name))
        if mine and target_ids and not mine & target_ids:
            seen = f"{name} is {_list(mine)} in the drafter's config and {_list(target_ids)} in the target's"
            rule = "of the same tokenizer they would be the same; engines take the target's"
            yield Finding(Cause.VOCABULARY, Severity.INFO, seen, rule)
    if samples.vocabulary is not None and samples.target_vocabulary is not None:
        yield from _tokens(samples.vocabulary, samples.target_vocabulary)


def _tokens(own: Mapping[str, int], target: Mapping[str, int]) -> Iterator[Finding]:
    moved = sum(target.get(token) != place for token, place in own.items())
    if not moved:
        return
    share = moved / len(own)
    seen = (
        f"{moved} of {len(own)} tokens of the drafter's tokenizer are others, or not there, in the target's"
    )
    rule = "an id must be the same token in both (vLLM issue #43369)"
    yield Finding(Cause.VOCABULARY, Severity.FATAL if share > 0.01 else Severity.LIKELY, seen, rule)


def _ids(value: object) -> set[int]:
    values = value if isinstance(value, list) else [value]
    return {one for one in values if isinstance(one, int) and not isinstance(one, bool)}


def _list(ids: set[int]) -> str:
    return ", ".join(map(str, sorted(ids)))


def verifier_findings(head: Checkpoint, target: Checkpoint) -> Iterator[Finding]:
    """The model that the head says it was trained for, against the one that is served."""
    inner = head.config.get("speculators_config")
    verifier = inner.get("verifier") if isinstance(inner, Mapping) else None
    if not isinstance(verifier, Mapping):
        return
    rule = "a head drafts for the model it was trained on (EAGLE issue #106)"
    meant = verifier.get("architectures")
    kinds = [str(one) for one in meant] if isinstance(meant, list) else []
    name = str(verifier.get("name_or_path") or "")
    if kinds and target.architecture and target.architecture not in kinds:
        seen = (
            f"trained for {name or 'another model'} ({', '.join(kinds)}), the target is {target.architecture}"
        )
        yield Finding(Cause.VERIFIER, Severity.LIKELY, seen, rule)
    elif name and _bare(name) != _bare(served_name(target)):
        seen = f"trained for {name}, served is {served_name(target)}"
        yield Finding(Cause.VERIFIER, Severity.INFO, seen, rule)


def served_name(target: Checkpoint) -> str:
    """Of the folder, or of the repository if the folder is a snapshot of one."""
    parts = target.folder.parts
    cached = [part for part in parts if part.startswith("models--")]
    return cached[-1].removeprefix("models--").replace("--", "/") if cached else target.folder.name


def _bare(name: str) -> str:
    bare = name.rstrip("/").rsplit("/", 1)[-1].lower()
    while (shorter := SAME_MODEL.sub("", bare)) != bare:
        bare = shorter
    return bare
