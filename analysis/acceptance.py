"""What became of the drafts. A diagnosis, never the objective; a missing counter is unknown, never 0 or 1."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from results.records import Acceptance, AcceptanceState, Measurement, SpecCounters

MIN_DRAFTS = 100  # below, no rate is stated
MIN_WINDOW_TOKENS = 100  # below, "nothing was drafted" proves nothing
SUSPECT_RATE = 0.995  # with more than one token per draft this is a counter fault or a loop
MAX_DISAGREEMENT = 0.01  # between two sources of one rate
MIN_SLOT_DRAFTS = 8  # fewer are no evidence about a slot
MIN_SLOT_RATE = 0.01


def from_counters(
    counters: SpecCounters | None,
    output_tokens: int | None,
    *,
    method_is_none: bool,
    source: str = "",
) -> Acceptance:
    """Acceptance of one window from what was counted in it (a difference, see SpecCounters.since).

    `output_tokens` are all tokens emitted in the window the counters cover, from usage.
    """
    if method_is_none:
        return _off(counters, source)
    if counters is None:
        return Acceptance(AcceptanceState.UNKNOWN, source, note="the server counts no drafts")
    if fault := _fault(counters):
        return Acceptance(AcceptanceState.UNKNOWN, source, counters, note=fault)
    if counters.draft_tokens == 0:
        return _nothing_drafted(counters, output_tokens, source)
    if counters.drafts < MIN_DRAFTS:
        note = f"{counters.drafts} drafts, {MIN_DRAFTS} are needed to state a rate"
        return Acceptance(AcceptanceState.UNKNOWN, source, counters, note=note)
    length = honest_length(counters, output_tokens)
    return Acceptance(
        AcceptanceState.MEASURED,
        source,
        counters,
        rate=counters.accepted_tokens / counters.draft_tokens,
        length=length,
        per_position=tuple(n / counters.drafts for n in counters.accepted_per_position),
        note=_note(counters, length),
    )


def over_windows(windows: Sequence[Measurement]) -> Acceptance:
    """Acceptance of one Point over several windows, from the sum of what was counted in them."""
    counts = [m.acceptance.counters for m in windows if m.acceptance.counters is not None]
    if not counts:
        return Acceptance(AcceptanceState.UNKNOWN)
    if len(counts) < len(windows):
        return Acceptance(AcceptanceState.UNKNOWN, note="not counted in every window")
    tokens = sum(sum(m.tokens_by_prompt.values()) for m in windows)
    return from_counters(
        sum(counts[1:], counts[0]), tokens, method_is_none=False, source=windows[0].acceptance.source
    )


def honest_length(counters: SpecCounters, output_tokens: int | None) -> float | None:
    """Emitted tokens / verify steps, within [1, K + 1]; None if it cannot be known.

    Each step emits what it accepted and one bonus token, so there were output - accepted steps:
    also those that drafted nothing, which the engines' own lengths leave out. Tokens accepted
    beyond the end of a reply are counted and not emitted; there were never fewer steps than drafts.
    """
    if output_tokens is None or counters.drafts == 0:
        return None
    steps = max(output_tokens - counters.accepted_tokens, counters.drafts)
    return output_tokens / steps if output_tokens >= steps else None


def reconcile(
    counted: Acceptance, other: SpecCounters | None, source: str, *, ours: SpecCounters | None = None
) -> Acceptance:
    """`counted` if the other source agrees within a point, else a range and no rate.

    `ours` is what `counted`'s own source counted over all that `other` covers, if that is more than
    the window: a source that is wrong somewhere in an arm-run is trusted nowhere in it.
    A source without counts has no say. Few drafts do not excuse a difference: both counted the same.
    Drafts that only the other source saw leave it unknown whether the server speculates.
    """
    rate_a, rate_b = raw_rate(ours or counted.counters), raw_rate(other)
    if rate_a is None and rate_b is not None and counted.state is AcceptanceState.NOT_SPECULATING:
        note = f"{counted.source} saw no draft, {source} did"
        return replace(counted, state=AcceptanceState.UNKNOWN, note=note)
    if rate_a is None or rate_b is None or abs(rate_a - rate_b) <= MAX_DISAGREEMENT:
        return counted
    return replace(
        counted,
        state=AcceptanceState.COUNTERS_DISAGREE,
        source=f"{counted.source} | {source}",
        rate=None,
        rate_range=(min(rate_a, rate_b), max(rate_a, rate_b)),
        length=None,
        per_position=(),
        note=f"{counted.source} say {rate_a:.1%}, {source} {rate_b:.1%}",
    )


def raw_rate(counters: SpecCounters | None) -> float | None:
    """Accepted / proposed tokens, whatever their number; None if nothing was proposed."""
    if counters is None or counters.draft_tokens <= 0:
        return None
    return counters.accepted_tokens / counters.draft_tokens


@dataclass(frozen=True, slots=True)
class SlotCounts:
    """Draft tokens of one slot of a server over one arm-run."""

    slot: int
    accepted: int
    generated: int


def failed_slots(slots: Sequence[SlotCounts], tokens_per_draft: float = 1.0) -> tuple[int, ...]:
    """Slots on which drafts are made and (almost) none is accepted; the mean over slots hides them.

    A draft falls with its first token, however long it is: the least evidence is counted in drafts.
    """
    least = MIN_SLOT_DRAFTS * max(tokens_per_draft, 1.0)
    return tuple(s.slot for s in slots if s.generated >= least and s.accepted < MIN_SLOT_RATE * s.generated)


def tokens_per_draft(windows: Sequence[Acceptance]) -> float:
    """Mean length of a draft over several windows; 1 where nothing is known of it."""
    counted = [a.counters for a in windows if a.counters is not None]
    drafts = sum(c.drafts for c in counted)
    return sum(c.draft_tokens for c in counted) / drafts if drafts > 0 else 1.0


def _off(counters: SpecCounters | None, source: str) -> Acceptance:
    drafted = counters.draft_tokens if counters else 0
    note = f"speculation should be off, yet {drafted} tokens were drafted" if drafted > 0 else ""
    state = AcceptanceState.UNKNOWN if note else AcceptanceState.NOT_SPECULATING
    return Acceptance(state, source, counters, note=note)


def _fault(counters: SpecCounters) -> str:
    counts = (
        counters.drafts,
        counters.draft_tokens,
        counters.accepted_tokens,
        *counters.accepted_per_position,
    )
    if min(counts) < 0:
        return "a counter ran backwards: the server restarted or was reset"
    if counters.accepted_tokens > counters.draft_tokens:
        return f"{counters.accepted_tokens} tokens accepted of {counters.draft_tokens} drafted"
    return _fault_of_positions(counters)


def _fault_of_positions(counters: SpecCounters) -> str:
    """A draft accepted up to some position was accepted at every one before it."""
    positions = counters.accepted_per_position
    if positions and sum(positions) != counters.accepted_tokens:
        return f"{counters.accepted_tokens} tokens accepted, {sum(positions)} over all positions"
    if any(later > earlier for earlier, later in pairwise((counters.drafts, *positions))):
        return "more drafts were accepted at a position than at the one before it"
    return ""


def _nothing_drafted(counters: SpecCounters, output_tokens: int | None, source: str) -> Acceptance:
    if output_tokens is None or output_tokens < MIN_WINDOW_TOKENS:
        note = "nothing was drafted, but too little was generated to tell"
        return Acceptance(AcceptanceState.UNKNOWN, source, counters, note=note)
    note = f"{output_tokens} tokens were generated and none was drafted"
    return Acceptance(AcceptanceState.NOT_SPECULATING, source, counters, note=note)


def _note(counters: SpecCounters, length: float | None) -> str:
    notes = []
    if counters.accepted_tokens >= SUSPECT_RATE * counters.draft_tokens and (
        counters.draft_tokens > counters.drafts
    ):
        notes.append("suspect: almost every drafted token was accepted; ask for a second source")
    if length is None:
        notes.append("no length: the emitted tokens are unknown or fewer than the verify steps")
    return "; ".join(notes)
