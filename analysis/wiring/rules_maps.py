"""Rules of the map from the draft vocabulary to the target's (d2t), and of its inverse mask (t2d).

EAGLE traineagle3/cnets.py: d2t holds offsets, target = i + d2t[i]; t2d marks the target's tokens that are in.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from analysis.wiring.samples import Samples
from results.checkpoint import Checkpoint
from results.head_config import Head
from results.wiring import Cause, D2t, Finding, Fix, Reading, Severity

if TYPE_CHECKING:
    from numpy import ndarray

    Array = ndarray[Any, Any]

OFFSETS = "target = i + d2t[i] (EAGLE traineagle3/cnets.py; models/llama_eagle3.py of SGLang and vLLM)"
LEAST = 16  # entries, below which a pattern says nothing


def map_findings(
    head: Checkpoint, target: Checkpoint, served: Reading, samples: Samples
) -> Iterator[Finding]:
    read, vocabulary = Head(head), target.whole("vocab_size") or Head(head).vocabulary
    draft = read.draft_vocabulary
    if not head.tensors or not vocabulary:
        return
    if served.d2t is D2t.ABSENT:
        if draft is not None and draft < vocabulary:
            yield _missing(draft, vocabulary, samples)
        return
    shape = read.tensors["d2t"].shape
    if len(shape) != 1:
        seen = f"d2t has the shape {list(shape)}"
        yield Finding(Cause.D2T, Severity.FATAL, seen, f"a row of offsets: {OFFSETS}")
    if samples.d2t is None:
        return
    fix = _from_t2d(samples, draft or len(samples.d2t))
    if draft is not None and len(samples.d2t) != draft:
        seen = f"d2t has {len(samples.d2t)} entries, draft_vocab_size is {draft}"
        yield Finding(Cause.D2T, Severity.FATAL, seen, "there is one for each draft token", fix)
    if not len(samples.d2t):
        return
    yield from _values(samples, vocabulary, fix)


def _from_t2d(samples: Samples, draft: int) -> Fix | None:
    """The mask tells all that the map does, if trainers put draft tokens in the target's order, as all do."""
    if samples.t2d is None or _count(samples.t2d) != draft:
        return None
    return Fix("make d2t of t2d", tensors=("d2t: from t2d",))


def _count(t2d: "Array") -> int:
    return int((t2d != 0).sum())


def _missing(draft: int, vocabulary: int, samples: Samples) -> Finding:
    return Finding(
        Cause.D2T_MISSING,
        Severity.FATAL,
        f"the draft vocabulary is {draft} of {vocabulary}, and there is no d2t",
        "draft ids go for target ids then, without a warning (Automodel issue #2447)",
        _from_t2d(samples, draft),
    )


def _values(samples: Samples, vocabulary: int, fix: Fix | None) -> Iterator[Finding]:
    import numpy as np

    d2t = samples.d2t
    assert d2t is not None
    if d2t.dtype.kind not in "iu":
        yield Finding(Cause.D2T, Severity.FATAL, "d2t holds no whole numbers", OFFSETS, fix)
        return
    given = d2t.astype(np.int64)
    reached = given + np.arange(len(given))
    if looks_absolute(given, samples.t2d, vocabulary):
        seen = f"d2t holds ids, not offsets{_how_far(reached, vocabulary)}"
        to_offsets = Fix("subtract 0, 1, 2 ... from d2t", tensors=("d2t: ids to offsets",))
        rule = f"{OFFSETS}; verl-SpeCo issue #67"
        yield Finding(Cause.D2T_ABSOLUTE, Severity.FATAL, seen, rule, to_offsets)
    elif outside := int(((reached < 0) | (reached >= vocabulary)).sum()):
        seen = f"{outside} draft tokens lead outside {vocabulary}"
        yield Finding(Cause.D2T, Severity.FATAL, seen, OFFSETS, fix)
    elif twice := len(reached) - len(np.unique(reached)):
        seen = f"{twice} draft tokens lead to a token that another one leads to"
        yield Finding(Cause.D2T, Severity.FATAL, seen, OFFSETS, fix)
    elif not given.any() and len(given) < vocabulary:
        yield _all_zero(samples.t2d, len(given), fix)
    elif samples.t2d is not None:
        yield from _against(samples.t2d, reached)


def _against(t2d: "Array", reached: "Array") -> Iterator[Finding]:
    seen = ""
    if _count(t2d) != len(reached):
        seen = f"t2d marks {_count(t2d)} tokens, d2t has {len(reached)} entries"
    elif not _agree(reached, t2d):
        seen = "d2t leads to tokens that t2d does not mark"
    if seen:
        rule = "both tell of the same tokens; engines read d2t alone"
        yield Finding(Cause.D2T, Severity.LIKELY, seen, rule)


def _all_zero(t2d: "Array | None", entries: int, fix: Fix | None) -> Finding:
    import numpy as np

    rule = f"{OFFSETS}: all zeros take the first tokens; trainers take the most frequent"
    if t2d is None or _agree(np.arange(entries), t2d):
        return Finding(Cause.D2T, Severity.LIKELY, "d2t is all zeros", rule)
    return Finding(Cause.D2T, Severity.FATAL, "d2t is all zeros, t2d marks other tokens", rule, fix)


def looks_absolute(d2t: "Array", t2d: "Array | None", vocabulary: int) -> bool:
    """Whether the entries are ids themselves.

    t2d decides where there is one. Else: all different and inside the vocabulary, and as offsets either
    leading outside or astray, or never to two tokens in a row, which no real choice of tokens does.
    """
    import numpy as np

    entries = len(d2t)
    places = np.arange(entries)
    inside = entries > 0 and bool(((d2t >= 0) & (d2t < vocabulary)).all())
    if not inside or len(np.unique(d2t)) != entries or entries < LEAST:
        return False
    if t2d is not None and _agree(d2t, t2d) != _agree(d2t + places, t2d):
        return _agree(d2t, t2d)
    reached = d2t + places
    astray = bool((reached >= vocabulary).any()) or len(np.unique(reached)) != entries
    return astray or bool((np.diff(d2t) > 0).all())


def _agree(ids: "Array", t2d: "Array") -> bool:
    import numpy as np

    return bool(np.array_equal(np.unique(ids), np.flatnonzero(t2d)))


def _how_far(reached: "Array", vocabulary: int) -> str:
    outside = int((reached >= vocabulary).sum())
    return f": read as offsets, {outside} lead outside {vocabulary}" if outside else ""
