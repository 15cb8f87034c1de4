"""Rules of the two large tables of a head: the one that makes draft tokens, and the embedding."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from analysis.wiring.samples import Likeness, Samples, likeness
from results.checkpoint import Checkpoint
from results.head_config import Head
from results.wiring import Cause, Finding, Fix, Reading, Severity, Source

if TYPE_CHECKING:
    from numpy import ndarray

    Array = ndarray[Any, Any]

NOT_RANDOM = "trained rows have a common direction, unequal lengths and are alike; random ones have not"
SAME_EMBEDDING = 0.99  # mean cosine of rows that are the same but for rounding or a little training


def lm_head_findings(head: Checkpoint, samples: Samples) -> Iterator[Finding]:
    """Its rows are counted, and looked at for whether anyone trained them."""
    read = Head(head)
    tensor, draft = read.tensors.get("lm_head.weight"), read.draft_vocabulary or read.vocabulary
    if tensor is not None and tensor.shape and draft and tensor.shape[0] != draft and not read.is_quantised:
        yield Finding(
            Cause.LM_HEAD,
            Severity.FATAL,
            f"lm_head has {tensor.shape[0]} rows, the draft vocabulary is {draft}",
            "there is a row for each draft token",
        )
    own, target = samples.lm_head, samples.target_lm_head
    if own is not None:
        yield from _not_finite(Cause.LM_HEAD, "lm_head", own)
        theirs = likeness(target) if target is not None else None
        fits = target is not None and target.shape[1:] == own.shape[1:]
        yield from _untrained(Cause.LM_HEAD, "lm_head", likeness(own), theirs, _again(fits))


def _not_finite(cause: Cause, name: str, rows: "Array") -> Iterator[Finding]:
    import numpy as np

    if wrong := int((~np.isfinite(rows).all(1)).sum()):
        seen = f"{wrong} of {len(rows)} sampled rows of {name} hold infinities or no numbers"
        yield Finding(cause, Severity.FATAL, seen, "weights are finite numbers")


def _again(fits: bool) -> Fix:
    words = "take lm_head from the training again"
    if not fits:
        return Fix(words)
    return Fix(f"{words}, or the target's rows", tensors=("lm_head: from target",))


def embedding_findings(head: Checkpoint, served: Reading, samples: Samples) -> Iterator[Finding]:
    """The head's own copy against the target's, and what the engine does with it."""
    own, target = samples.embedding, samples.target_embedding
    if served.embedding is Source.RANDOM and head.tensors:
        rule = "the target's is not used where its width is another (SGLang models/llama.py, set_embed)"
        yield Finding(Cause.EMBEDDING, Severity.FATAL, "there is no embedding of the drafter's width", rule)
    if own is None or target is None or own.shape != target.shape or samples.same_bytes:
        return
    if served.embedding is Source.OWN:
        yield from _not_finite(Cause.EMBEDDING, "the embedding", own)
    alike = _cosine(samples)
    mine = likeness(own)
    untrained = mine is not None and (mine.looks_random or mine.is_zero)
    if served.embedding is Source.OWN:
        fix = Fix("remove the head's embedding: the target's is used then", tensors=("embed_tokens: remove",))
        yield from _untrained(Cause.EMBEDDING, "the embedding", mine, likeness(target), fix)
    if not untrained and alike < SAME_EMBEDDING:
        yield _another(served, alike)


def _another(served: Reading, alike: float) -> Finding:
    seen = f"the head's embedding is another than the target's (sampled rows: mean cosine {alike:.2f})"
    if served.embedding is Source.OWN:
        rule = "it is kept (vLLM v1/spec_decode/llm_base_proposer.py): right if it was trained with it"
        return Finding(Cause.EMBEDDING, Severity.INFO, seen, rule)
    rule = "the engine puts the target's in its place (SGLang speculative/eagle_worker_v2.py)"
    return Finding(Cause.EMBEDDING, Severity.LIKELY, seen, rule)


def _untrained(
    cause: Cause, name: str, mine: Likeness | None, theirs: Likeness | None, fix: Fix | None
) -> Iterator[Finding]:
    if mine is None:
        return
    if mine.is_zero:
        yield Finding(cause, Severity.FATAL, f"sampled rows of {name} are all zeros", NOT_RANDOM, fix)
    elif mine.looks_random:
        sure = theirs is not None and not theirs.looks_random and not theirs.is_zero
        contrast = f"; the target's {theirs.alike:.2f}" if theirs is not None else ""
        seen = (
            f"sampled rows of {name} look like random numbers: two rows are alike by {mine.alike:.2f}, "
            f"1 by chance{contrast}{'' if sure else ' (the target gives no contrast: not sure)'}"
        )
        severity = Severity.FATAL if sure else Severity.LIKELY
        yield Finding(cause, severity, seen, f"{NOT_RANDOM} (SGLang issue #27908, TorchSpec issue #38)", fix)


def _cosine(samples: Samples) -> float:
    import numpy as np

    own, target = samples.embedding, samples.target_embedding
    assert own is not None and target is not None
    lengths = np.linalg.norm(own, axis=1) * np.linalg.norm(target, axis=1)
    there = lengths > 0
    return float(((own * target).sum(1)[there] / lengths[there]).mean()) if there.any() else 0.0
