"""What the server wrote: equal between arms, and text at all.

A looping or garbled answer is easy to draft, so it looks like perfect acceptance and the best
throughput of the study. It is judged against the baseline's text of the same prompt: a table or a
list that the baseline also writes is no fault.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from results.records import OutputCheck

GRAM = 4
SHORTEST_JUDGED = 24  # characters; a shorter text says nothing about loops
SHORTEST_JUDGED_WORDS = 32
WINDOW = 256  # characters: the share of distinct 4-grams falls with length, so it is taken per window
MIN_REPEATS = 4  # of one unit at the end of the text before it counts as a loop

MIN_DISTINCT_CHARACTERS = 0.25
MIN_DISTINCT_WORDS = 0.3
MAX_LOOP_SHARE = 1 / 3
MAX_REPLACEMENT_SHARE = 0.05


def compare_outputs(a: Mapping[str, str], b: Mapping[str, str]) -> OutputCheck:
    """Texts of two arm-runs by prompt id; prompts answered on one side only are not compared."""
    shared = sorted(a.keys() & b.keys())
    differing = [p for p in shared if a[p] != b[p]]
    lengths = tuple(_common_prefix_chars(a[p], b[p]) for p in differing)
    return OutputCheck(len(shared), len(shared) - len(differing), lengths)


def _common_prefix_chars(a: str, b: str) -> int:
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


@dataclass(frozen=True, slots=True)
class Degeneration:
    """Signs of a text that says nothing. Shares are in [0, 1]; None = too short to tell."""

    distinct_words: float | None  # distinct 4-grams of words / all
    distinct_characters: float | None  # the same of characters: median over windows of 256
    loop_share: float  # part of the text that is one unit repeated at least 4 times up to the end
    replacement_share: float  # U+FFFD, NUL and other characters that no text contains

    @property
    def signs(self) -> tuple[str, ...]:
        """What is wrong, in words; empty = nothing."""
        found = {
            "few distinct words": (self.distinct_words or 1.0) < MIN_DISTINCT_WORDS,
            "few distinct characters": (self.distinct_characters or 1.0) < MIN_DISTINCT_CHARACTERS,
            "a loop up to the end": self.loop_share >= MAX_LOOP_SHARE,
            "unprintable characters": self.replacement_share > MAX_REPLACEMENT_SHARE,
        }
        return tuple(sign for sign, present in found.items() if present)


def degeneration(text: str) -> Degeneration:
    """Measure the signs; languages written without spaces are covered by the characters."""
    if len(text.strip()) < SHORTEST_JUDGED:
        return Degeneration(None, None, 0.0, _unprintable_share(text))
    words = text.split()
    return Degeneration(
        _distinct_share(words) if len(words) >= SHORTEST_JUDGED_WORDS else None,
        _median([_distinct_share(window) for window in _windows(text)]),
        _looping_tail(text) / len(text),
        _unprintable_share(text),
    )


def is_degenerate(text: str, reference: str | None) -> bool:
    """Whether `text` is a fault, given the baseline's text of the same prompt if there is one.

    Without a reference an empty text is not judged here; with one it is a fault if the reference
    has text. A text whose reference is degenerate itself is never a fault.
    """
    if reference is None:
        return bool(degeneration(text).signs)
    if not reference.strip() or degeneration(reference).signs:
        return False
    return not text.strip() or bool(degeneration(text).signs)


def _windows(text: str) -> list[str]:
    if len(text) <= WINDOW:
        return [text]
    return [text[at : at + WINDOW] for at in range(0, len(text) - WINDOW + 1, WINDOW // 2)]


def _distinct_share(items: Sequence[str]) -> float:
    grams = [tuple(items[i : i + GRAM]) for i in range(len(items) - GRAM + 1)]
    return len(set(grams)) / len(grams)


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _looping_tail(text: str) -> int:
    """Length of the longest end of the text that is one unit repeated; the first copy may be cut.

    Read backwards, the prefix function gives the shortest period of every ending in one pass.
    """
    backwards = text.rstrip()[::-1]
    borders = [0] * len(backwards)
    longest = 0
    for end in range(1, len(backwards)):
        border = borders[end - 1]
        while border and backwards[end] != backwards[border]:
            border = borders[border - 1]
        borders[end] = border + (backwards[end] == backwards[border])
        length, period = end + 1, end + 1 - borders[end]
        if length >= MIN_REPEATS * period and length >= SHORTEST_JUDGED:
            longest = length
    return longest


def _unprintable_share(text: str) -> float:
    bad = sum(c == "\ufffd" or (c < " " and c not in "\t\n\r\f\v\x1b") for c in text)
    return bad / len(text) if text else 0.0
