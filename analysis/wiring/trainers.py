"""How a head may have been trained, by the marks that trainers leave in its config and its tensors.

Which boundaries a layer id means differs from trainer to trainer:

| trainer | an id means | without ids, for n layers | source |
|---|---|---|---|
| speculators up to 0.4 | the output of that layer | b3, b(n/2+1), b(n-2) | custom_worker.py, 0.4.0.1 |
| speculators since 0.5 | the boundary | b2, b(n/2), b(n-3) | PR #353, scripts/launch_vllm.py |
| SpecForge | the output of that layer | b2, b(n/2), b(n-3) | algorithms/model_providers.py |
| EAGLE | - | b2, b(n/2), b(n-3) | model/modeling_llama_kv.py |
| NVIDIA | the output, or the boundary if one id is n | as SpecForge | SGLang issue #32226 |
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from results.checkpoint import Checkpoint
from results.head_config import USUAL_STATES, USUAL_THETA, Head, HeadKind, rope_of
from results.wiring import D2t, Hypothesis, Reading, Source

OLD_SPECULATORS = "speculators up to 0.4"
NEW_SPECULATORS = "speculators since 0.5"
SPECFORGE = "SpecForge"
NVIDIA = "NVIDIA Model Optimizer"
EAGLE = "EAGLE or SpecForge"
TRAINS_SINCE = (0, 2)  # speculators; before, heads of research code in its format
BOUNDARIES_SINCE = (0, 5)  # speculators, 2026-04-24


@dataclass(frozen=True, slots=True)
class _Guess:
    boundaries: tuple[int, ...]
    trainer: str
    because: str


def hypotheses(head: Checkpoint, target: Checkpoint) -> tuple[Hypothesis, ...]:
    """Likeliest first; more than one where the folders alone cannot decide.

    None for what is no EAGLE-3 head, or if the target's layers are unknown.
    """
    layers, read = target.whole("num_hidden_layers"), Head(head)
    if layers is None or layers < USUAL_STATES or read.kind is not HeadKind.EAGLE3:
        return ()
    reading = _without_layers(read, target)
    states = read.states_of(target)
    guesses = [g for g in _guesses(read, layers) if len(g.boundaries) == states and _inside(g, layers)]
    found = [Hypothesis(replace(reading, boundaries=g.boundaries), g.trainer, g.because) for g in guesses]
    return _distinct([*found, *_other_feedback(read, found)])


def _inside(guess: _Guess, layers: int) -> bool:
    return all(0 <= b <= layers for b in guess.boundaries)


def _distinct(found: Sequence[Hypothesis]) -> tuple[Hypothesis, ...]:
    kept: list[Hypothesis] = []
    for one in found:
        if all(one.reading != other.reading for other in kept):
            kept.append(one)
    return tuple(kept)


def _guesses(head: Head, layers: int) -> Iterator[_Guess]:
    outer, nested = head.outer_ids, head.nested_ids
    if head.is_speculators or "speculators_version" in head.checkpoint.config:
        yield from _speculators(head, outer or nested, layers)
    elif outer and nested and len(outer) == len(nested) and outer != nested:
        yield from _two_keys(outer, nested)
    elif ids := nested or outer:
        yield from _plain(ids, layers, at_the_top=nested is None)
    else:
        yield from _unnamed(layers)


def _speculators(head: Head, ids: Sequence[int] | None, layers: int) -> Iterator[_Guess]:
    version = _version(str(head.checkpoint.config.get("speculators_version", "")))
    named = _ascending(ids) if ids else _usual(layers)
    old = _Guess(_outputs(named), OLD_SPECULATORS, "it captured the output of each layer it named")
    new = _Guess(named, NEW_SPECULATORS, "its ids are boundaries")
    if not version:
        yield from (new, old)
    elif version < TRAINS_SINCE:
        converted = "it only converted heads of others, which read boundaries"
        yield replace(new, trainer=f"speculators {_text(version)}", because=converted)
        yield old
    elif version < BOUNDARIES_SINCE:
        yield replace(old, because=f"speculators_version {_text(version)}: {old.because}")
    else:
        yield replace(new, because=f"speculators_version {_text(version)}: {new.because}")


def _two_keys(outer: Sequence[int], nested: Sequence[int]) -> Iterator[_Guess]:
    """A folder made for both engines: vLLM reads boundaries at the top, SGLang outputs in `eagle_config`."""
    if _outputs(nested) == tuple(outer):
        yield _Guess(tuple(outer), SPECFORGE, "both keys name the same boundaries, each in its engine's way")
        return
    yield _Guess(_outputs(nested), SPECFORGE, "ids in eagle_config are outputs of layers")
    yield _Guess(_ascending(outer), NEW_SPECULATORS, "ids at the top are boundaries")


def _plain(ids: Sequence[int], layers: int, *, at_the_top: bool) -> Iterator[_Guess]:
    named = _ascending(ids)
    if named[0] < 0:
        shifted = "a layer below 0 is named, which no trainer writes: the usual ones"
        yield from (replace(guess, because=shifted) for guess in _unnamed(layers))
        return
    outputs = _Guess(_outputs(named), SPECFORGE, "ids in eagle_config are outputs of layers there")
    as_they_are = _Guess(named, NEW_SPECULATORS, "its ids are boundaries")
    if named[-1] == layers:
        yield _Guess(named, NVIDIA, "one id is the number of layers, which only a boundary can be")
    elif named == _outputs(_usual(layers), -1):
        yield _Guess(outputs.boundaries, SPECFORGE, "ids are its default, outputs of layers")
    elif named[0] == 1:
        yield outputs
        if at_the_top:
            yield as_they_are
    elif at_the_top:
        yield from (as_they_are, outputs)
    elif named == _usual(layers):
        yield _Guess(outputs.boundaries, OLD_SPECULATORS, "ids are its default, outputs of layers")
        yield as_they_are
    else:
        yield from (outputs, as_they_are)


def _unnamed(layers: int) -> Iterator[_Guess]:
    yield _Guess(_usual(layers), EAGLE, "no layers are named: the usual ones")
    yield _Guess(_outputs(_usual(layers)), OLD_SPECULATORS, "it trained one layer higher and wrote no ids")


def _usual(layers: int) -> tuple[int, ...]:
    return tuple(sorted({2, layers // 2, layers - 3}))


def _outputs(ids: Sequence[int], by: int = 1) -> tuple[int, ...]:
    return tuple(i + by for i in ids)


def _ascending(ids: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(ids))


def _version(text: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else ()


def _text(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _without_layers(head: Head, target: Checkpoint) -> Reading:
    """What the weights themselves say of how they were run."""
    names, config = head.tensors, head.config
    theta, scaling = rope_of(config)
    return Reading(
        boundaries=(),
        d2t=D2t.OFFSETS if "d2t" in names else _without_map(head),
        lm_head=Source.OWN if "lm_head.weight" in names else Source.TARGET,
        norm_before_fc="input_norm.weight" in names,
        fc_norm=any(name.startswith("fc_norm.") for name in names),
        norm_before_residual=_flag(head, "norm_before_residual"),
        norm_output=_flag(head, "norm_output"),
        rope_theta=theta or USUAL_THETA,
        rope_scaling=scaling,
    )


def _without_map(head: Head) -> D2t:
    reduced = (head.draft_vocabulary or 0) < (head.vocabulary or 0) and head.draft_vocabulary is not None
    return D2t.OFFSETS if reduced else D2t.ABSENT


def _flag(head: Head, name: str) -> bool:
    return head.config.get(name, head.nested.get(name, False)) is True


def _other_feedback(head: Head, found: Sequence[Hypothesis]) -> Iterator[Hypothesis]:
    """SpecForge changed what it feeds back (PR #879), and heads from before do not say which they need."""
    if "norm_output" in head.config or "norm_output" in head.nested:
        return
    for one in found:
        if one.trainer == SPECFORGE:
            because = f"{one.because}; fed back after the last norm, its default since PR #879"
            yield replace(one, reading=replace(one.reading, norm_output=True), because=because)
