"""Whether texts distort acceptance: a loop is easy to draft, random text is not, and neither is the work."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from analysis.output import Degeneration, degeneration

RANDOM_NEEDS_WORDS = 64
# Of so many words in a row in any language or program some stand twice.
MAX_DISTINCT = 0.97
MANY, MOST = 0.1, 0.5  # shares of the texts


@dataclass(frozen=True, slots=True)
class TextStatistics:
    """What was seen in some texts; indices are of their order."""

    texts: int
    looping: tuple[int, ...] = ()
    random: tuple[int, ...] = ()
    distinct_words: float | None = None  # 4-grams of words that differ / all: median of the long enough texts
    distinct_characters: float | None = None  # the same of characters, in windows of 256

    @property
    def distorting(self) -> tuple[int, ...]:
        return tuple(sorted({*self.looping, *self.random}))

    @property
    def share(self) -> float:
        """Of the texts that loop or are random."""
        return len(self.distorting) / self.texts if self.texts else 0.0


def text_statistics(texts: Sequence[str]) -> TextStatistics:
    found = [degeneration(text) for text in texts]
    random = [i for i, text in enumerate(texts) if _is_random(text, found[i])]
    return TextStatistics(
        len(texts),
        looping=tuple(i for i, f in enumerate(found) if f.signs and i not in random),
        random=tuple(random),
        distinct_words=_median([f.distinct_words for f in found]),
        distinct_characters=_median([f.distinct_characters for f in found]),
    )


def _is_random(text: str, found: Degeneration) -> bool:
    """Characters that no text has, scripts mixed, or hardly a word that stands twice."""
    words = text.split()[: 2 * RANDOM_NEEDS_WORDS]
    garbled = {"unprintable characters", "scripts that change within words"} & set(found.signs)
    no_word_again = len(words) >= RANDOM_NEEDS_WORDS and len(set(words)) > MAX_DISTINCT * len(words)
    return bool(garbled) or no_word_again


def _median(values: Sequence[float | None]) -> float | None:
    told = [v for v in values if v is not None]
    return median(told) if told else None
