"""The figures of a run in words: what was looked at, what it converts to."""

from collections.abc import Iterator

from analysis.wiring.definitions import (
    conditional_accuracies,
    full_accuracies,
    highest_rate,
    old_sglang_rate,
    table,
)
from analysis.wiring.estimate import Estimate, by_position
from analysis.wiring.expectation import Figure
from analysis.wiring.observed import Observed
from analysis.wiring.replies import counts_by_reply
from analysis.words import count, percent
from results.records import DraftShape, SpecCounters

UNEVEN = 0.1  # tokens by which the mean draft is off a whole number; ends of replies cut a few short


def checked(observed: Observed) -> Iterator[str]:
    """What there was to look at, and what was missing."""
    told, counted = len(counts_by_reply(observed.replies)), observed.counted
    source = f"by {count(told, 'reply', 'replies')}" if told else "of the server as a whole"
    yield "no counts of drafts known" if counted is None else f"{count(counted.drafts, 'round')} {source}"
    texts = observed.texts.texts
    yield f"{count(texts, 'text')} for loops and random output" if texts else "no text known"
    temperature = observed.temperature
    yield "temperature not known" if temperature is None else f"temperature {temperature:g}"
    if observed.expected is None:
        yield "no expectation given: nothing is judged to be low"
    else:
        bonus = ", the bonus token counted" if observed.expected.figure is Figure.LENGTH else ""
        yield f"expectation {observed.expected.value:g}, read as {observed.expected.figure}{bonus}"


def shape_lines(observed: Observed) -> Iterator[str]:
    """What is drafted in a round, and the table of conversions for it."""
    shape = observed.drafted
    if shape is None:
        yield "the number of draft tokens is not known: no figure can be converted"
        return
    if shape.depth == shape.draft_tokens:
        root = f"SGLang's num_draft_tokens, which counts the root, is {shape.draft_tokens + 1}"
        yield f"k = {shape.depth} draft tokens a round ({root})"
    else:
        highest = f"the rate cannot exceed {percent(highest_rate(shape))}"
        yield f"a tree of {shape.draft_tokens} draft tokens, k = {shape.depth} deep: {highest}"
    if observed.shape is not None and observed.is_other_than_set:
        yield (
            f"the settings say {observed.shape.draft_tokens} draft tokens, the counters {shape.draft_tokens} "
            "a round: the counters are believed"
        )
    counted = observed.counted
    if (
        counted is not None
        and counted.drafts
        and abs(counted.draft_tokens / counted.drafts - shape.draft_tokens) > UNEVEN
    ):
        mean = counted.draft_tokens / counted.drafts
        yield f"drafts have {mean:.1f} tokens on average, not one length: accuracies are approximate"
    yield from _table_lines(shape)


def _table_lines(shape: DraftShape) -> Iterator[str]:
    rows = table(shape)
    columns = {
        f"conditional accuracy{'' if shape.depth == shape.draft_tokens else ', branch'}": "accuracy",
        "accept length, with bonus": "length",
        "accepted / proposed": "rate",
        "SGLang before its #13212": "old_rate",
    }
    width = max(map(len, columns))
    for name, field in columns.items():
        yield f"{name:<{width}}  " + "  ".join(f"{getattr(row, field):.2f}" for row in rows)


def count_lines(observed: Observed) -> Iterator[str]:
    """What was counted, in every definition; nothing without counts."""
    counted, shape, accuracy = observed.counted, observed.drafted, observed.accuracy
    if counted is None or shape is None or accuracy is None:
        return
    length, old = 1 + counted.accepted_tokens / counted.drafts, ""
    if counted.draft_tokens:
        old = f"; before its #13212 SGLang printed {old_sglang_rate(length, shape.draft_tokens):.2f} as rate"
        rate = percent(counted.accepted_tokens / counted.draft_tokens)
        yield (
            f"{rate} accepted of the proposed at k = {shape.depth} is what a head of "
            f"{percent(accuracy.value)} conditional accuracy gives ({interval(accuracy)})"
        )
    yield f"accept length {length:.2f} with the bonus token, {length - 1:.2f} without{old}"
    yield from _position_lines(counted, observed)


def _position_lines(counted: SpecCounters, observed: Observed) -> Iterator[str]:
    per_position = counted.accepted_per_position
    if not per_position:
        yield "not told by position"
        return
    conditional = conditional_accuracies(counted.drafts, per_position)
    yield "conditional accuracy by position " + " ".join(
        "-" if a is None else f"{a:.2f}" for a in conditional
    )
    full = full_accuracies(counted.drafts, per_position)
    yield "full accuracy, accepted up to there " + " ".join(f"{share:.2f}" for share in full)
    first = by_position(counted, observed.replies)[0]
    if first is not None:
        accuracy = f"{percent(first.value)} ({interval(first)})"
        yield f"the first position is what training logs of its first step: {accuracy}"


def read_lines(observed: Observed) -> Iterator[str]:
    """A rate or length that somebody read, converted."""
    shape, accuracy = observed.drafted, observed.read_accuracy
    if shape is None or (observed.rate is None and observed.length is None):
        return
    what = f"{percent(observed.rate)} accepted of the proposed"
    if observed.rate is None:
        what = f"an accept length of {observed.length:g}"
    if accuracy is None:
        yield f"{what} cannot be at k = {shape.depth}: it is a figure of another kind or of another run"
    else:
        yield (
            f"{what} at k = {shape.depth} is what a head of {percent(accuracy)} conditional accuracy gives; "
            "how sure that is needs counts"
        )


def text_lines(observed: Observed) -> Iterator[str]:
    """Signs of loops and of random text."""
    texts = observed.texts
    if not texts.texts:
        return
    kinds = {"loop": len(texts.looping), "look random": len(texts.random)}
    found = [f"{number} of {count(texts.texts, 'text')} {kind}" for kind, number in kinds.items() if number]
    yield "; ".join(found) or f"none of {count(texts.texts, 'text')} loops or looks random"
    shares = {"words": texts.distinct_words, "characters": texts.distinct_characters}
    told = [f"{percent(share)} of {kind}" for kind, share in shares.items() if share is not None]
    if told:
        yield f"4-grams that differ, median over the texts: {', '.join(told)}"


def interval(estimate: Estimate) -> str:
    """`70 % to 79 %`."""
    return f"{percent(estimate.low)} to {percent(estimate.high)}"
