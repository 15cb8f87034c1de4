"""Rule: the drafter is given the layers it was trained with, in that order."""

from collections.abc import Callable, Sequence

from results.wiring import Cause, Finding, Fix, Hypothesis, Reading, Severity, boundary_names

FixFor = Callable[[Sequence[int]], Fix | None]


def layer_findings(
    served: Reading, trained: Sequence[Hypothesis], layers: int, fix_for: FixFor
) -> list[Finding]:
    """What is read against the likeliest training; the others are told where they differ."""
    if not trained or not served.uses_fc:
        return []
    best = trained[0]
    others = [h for h in trained[1:] if h.reading.boundaries != best.reading.boundaries]
    read, likeliest = served.boundaries, best.reading.boundaries
    if read == likeliest:
        return [_alternative(served, other, layers, fix_for) for other in others]
    cause = Cause.ORDER if sorted(read) == sorted(likeliest) else Cause.LAYERS
    seen = (
        f"{boundary_names(read, layers)} are read; likeliest trained on {boundary_names(likeliest, layers)} "
        f"({best.trainer}: {best.because})"
    )
    seen += "".join(_also(h, read, layers) for h in others) + _embedding_read(read)
    rule = "the head must read what it was trained on (EAGLE-3; speculators PR #353, SGLang PR #25454)"
    return [Finding(cause, Severity.LIKELY, seen, rule, fix_for(likeliest))]


def _also(other: Hypothesis, read: Sequence[int], layers: int) -> str:
    fits = ", which is what is read" if other.reading.boundaries == tuple(read) else ""
    return f"; or on {boundary_names(other.reading.boundaries, layers)} ({other.trainer}){fits}"


def _embedding_read(read: Sequence[int]) -> str:
    return "; b0 is the embedding, which no public trainer captures" if 0 in read else ""


def _alternative(served: Reading, other: Hypothesis, layers: int, fix_for: FixFor) -> Finding:
    boundaries = other.reading.boundaries
    return Finding(
        Cause.LAYERS,
        Severity.INFO,
        f"{boundary_names(served.boundaries, layers)} are read, as the likeliest training had it; "
        f"{other.trainer} would have trained on {boundary_names(boundaries, layers)} ({other.because})",
        "the folders alone cannot tell them apart: a replay of captured states can",
        fix_for(boundaries),
    )
