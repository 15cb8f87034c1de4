"""What the server wrote: equal between arms, and text at all.

A looping or garbled answer is easy to draft, so it looks like perfect acceptance and the best
throughput of the study. It is judged against the baseline's text of the same prompt: a table or a
list that the baseline also writes is no fault.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
MAX_SCRIPT_CHANGES = 0.3
BEFORE_CHARS, AFTER_CHARS = 100, 200  # of the first difference, to read
SHORTEST_LOOP = 8  # characters of an answer that is nothing but one unit
SHORT_REPEATS = 6
# Indentation and rulers repeat in every real table and program.
_LAYOUT = re.compile(r"[ \t]+|([-=#*_~])\1{7,}")
_ONE_SCRIPT = frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "IDEOGRAPHIC"})  # of Japanese


def compare_outputs(a: Mapping[str, str], b: Mapping[str, str]) -> OutputCheck:
    """Texts of two arm-runs by prompt id; prompts answered on one side only are not compared."""
    shared = sorted(a.keys() & b.keys())
    differing = [p for p in shared if a[p] != b[p]]
    prefixes = tuple(common_prefix_chars(a[p], b[p]) for p in differing)
    lengths = tuple(max(len(a[p]), len(b[p])) for p in differing)
    return OutputCheck(len(shared), len(shared) - len(differing), prefixes, lengths)


def pooled(checks: Iterable[OutputCheck | None]) -> OutputCheck:
    """Comparisons of several Blocks as one, every divergence kept."""
    found = [c for c in checks if c is not None]
    return OutputCheck(
        sum(c.compared for c in found),
        sum(c.identical for c in found),
        tuple(chars for c in found for chars in c.first_divergence_chars),
        tuple(chars for c in found for chars in c.answer_chars),
    )


QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
BIN_EDGES = (0.1, 0.25, 0.5, 0.75, 1.0)  # of the longer answer's length; each bin ends below its edge


def divergence_chars(check: OutputCheck) -> dict[str, int]:
    """Where answers that differ do so first: quantiles of the common prefix in characters."""
    chars = sorted(check.first_divergence_chars)
    return {name: chars[min(int(q * len(chars)), len(chars) - 1)] for name, q in QUANTILES.items() if chars}


def divergence_shares(check: OutputCheck) -> tuple[float, ...] | None:
    """Share of all compared answers that first differ within each bin of BIN_EDGES.

    None where nothing was compared, or where the records have no lengths.
    """
    prefixes, lengths = check.first_divergence_chars, check.answer_chars
    if not check.compared or len(prefixes) != len(lengths):
        return None
    places = [prefix / max(length, 1) for prefix, length in zip(prefixes, lengths, strict=True)]
    bins = [sum(p < edge for p in places) for edge in BIN_EDGES[:-1]]
    below = [*bins, len(places)]  # an answer that only ends earlier differs in the last bin
    return tuple((n - before) / check.compared for before, n in zip([0, *below], below, strict=False))


def around_difference(a: str, b: str) -> tuple[int, str, str]:
    """Where two texts part, and both around that place: up to 300 characters of each."""
    at = common_prefix_chars(a, b)
    begin = max(0, at - BEFORE_CHARS)
    lead = "…" if begin else ""
    shown = [f"{lead}{t[begin : at + AFTER_CHARS]}{'…' * (len(t) > at + AFTER_CHARS)}" for t in (a, b)]
    return at, shown[0], shown[1]


def common_prefix_chars(a: str, b: str) -> int:
    """Length of the text that both begin with."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


@dataclass(frozen=True, slots=True)
class Degeneration:
    """Signs of a text that says nothing. Shares are in [0, 1]; None = too short to tell."""

    distinct_words: float | None  # distinct 4-grams of words / all
    distinct_characters: float | None  # the same of characters: median over windows of 256
    loop_share: float  # part of the text that is one unit repeated at least 4 times, or blank, up to the end
    replacement_share: float  # U+FFFD, NUL and other characters that no text contains
    script_changes: float = 0.0  # share of neighbouring letters that are of different scripts

    @property
    def signs(self) -> tuple[str, ...]:
        """What is wrong, in words; empty = nothing."""
        found = {
            "few distinct words": (self.distinct_words or 1.0) < MIN_DISTINCT_WORDS,
            "few distinct characters": (self.distinct_characters or 1.0) < MIN_DISTINCT_CHARACTERS,
            "a loop up to the end": self.loop_share >= MAX_LOOP_SHARE,
            "unprintable characters": self.replacement_share > MAX_REPLACEMENT_SHARE,
            "scripts that change within words": self.script_changes > MAX_SCRIPT_CHANGES,
        }
        return tuple(sign for sign, present in found.items() if present)


def degeneration(text: str) -> Degeneration:
    """Measure the signs; languages written without spaces are covered by the characters."""
    if len(text.strip()) < SHORTEST_JUDGED:
        return Degeneration(None, None, float(_is_one_loop(text.strip())), _unprintable_share(text))
    words = text.split()
    return Degeneration(
        _distinct_share(words) if len(words) >= SHORTEST_JUDGED_WORDS else None,
        _distinct_characters(_LAYOUT.sub(" ", text)),
        max(_looping_tail(text), _blank_tail(text)) / len(text),
        _unprintable_share(text),
        _script_changes(text),
    )


def _is_one_loop(text: str) -> bool:
    """Whether a short text is nothing but one unit, at least 6 times."""
    units = (text[:n] for n in range(1, len(text) // SHORT_REPEATS + 1))
    return len(text) >= SHORTEST_LOOP and any((unit * len(text)).startswith(text) for unit in units)


def _distinct_characters(text: str) -> float | None:
    return _median([_distinct_share(w) for w in _windows(text)]) if len(text) >= SHORTEST_JUDGED else None


def _blank_tail(text: str) -> int:
    blank = len(text) - len(text.rstrip())
    return blank if blank >= SHORTEST_JUDGED else 0


def _script_changes(text: str) -> float:
    """Between letters side by side, Latin ones of ASCII aside, which stand in texts of every script."""
    pairs = [(a, b) for a, b in pairwise(text) if min(a, b) > "\x7f" and a.isalpha() and b.isalpha()]
    return sum(_script(a) != _script(b) for a, b in pairs) / max(len(pairs), SHORTEST_JUDGED)


def _script(letter: str) -> str:
    first = unicodedata.name(letter, "?").split()[0]
    return "CJK" if first in _ONE_SCRIPT else first


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
