"""The search among Readings: layers and all else, each tried within what is best of the other.
 Everything is tried around how the server reads first, since the fault may not be the layers at all, and
the layers are then sought within each of the best readings of the rest, so that a wrong rotation does not
make wrong layers look right.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations

from results.wiring import Reading

EXHAUSTIVE = 1000  # tuples of layers at most, to try them all
FRAMES = 3  # readings of the rest within which layers are sought
ROUNDS = 4
VARIANT_STEPS = 2  # a state fed back and the positions of steps show in the second step only

Score = Callable[
    [Sequence[Reading], int], Sequence[float]
]  # readings, steps -> nats a token; inf = unreadable
Vary = Callable[[Reading], Sequence[Reading]]


@dataclass
class Ranking:
    """Readings and how they score on a part of the text."""

    score: Score
    vary: Vary
    captured: Sequence[int]
    scores: dict[tuple[str, int], float] = field(default_factory=dict)
    readings: dict[str, Reading] = field(default_factory=dict)

    def search(self, starts: Sequence[Reading]) -> Reading:
        """The best found. The first start is how the server reads, if that is known."""
        best = self._best_frame(starts)
        for round_number in range(ROUNDS):
            frames = self._frames(best, starts[0]) if round_number == 0 else [best]
            found = [
                self._best_layers(frame, starts, first=n == 0 == round_number)
                for n, frame in enumerate(frames)
            ]
            varied = self.best([v for f in found for v in (f, *self.vary(f))], VARIANT_STEPS)
            if varied == best:
                break
            best = varied
        return best

    def best(self, readings: Sequence[Reading], steps: int) -> Reading:
        scores = self.of(readings, steps)
        return readings[min(range(len(readings)), key=scores.__getitem__)]

    def of(self, readings: Sequence[Reading], steps: int) -> list[float]:
        """Scores of these, computed where they are not known."""
        keys = [(repr(reading), steps) for reading in readings]
        unknown = {key: r for key, r in zip(keys, readings, strict=True) if key not in self.scores}
        self.readings |= {key: reading for (key, _), reading in unknown.items()}
        self.scores |= dict(zip(unknown, self.score(list(unknown.values()), steps), strict=True))
        return [self.scores[key] for key in keys]

    def top(self, count: int) -> list[Reading]:
        """The best by the first draft step, in which all were scored that differ in their layers."""
        first = {key: score for (key, steps), score in self.scores.items() if steps == 1}
        ordered = sorted(first, key=first.__getitem__)
        return [self.readings[key] for key in ordered if math.isfinite(first[key])][:count]

    def _best_frame(self, starts: Sequence[Reading]) -> Reading:
        return self.best([r for start in starts for r in (start, *self.vary(start))], VARIANT_STEPS)

    def _frames(self, best: Reading, served: Reading) -> list[Reading]:
        """The best, the server's own and the next best readings, each but once whatever its layers."""
        varied = {key: score for (key, steps), score in self.scores.items() if steps == VARIANT_STEPS}
        ordered = [self.readings[key] for key in sorted(varied, key=varied.__getitem__)]
        frames: dict[str, Reading] = {}
        for reading in (best, served, *ordered):
            frames.setdefault(repr(replace(reading, boundaries=())), reading)
        return list(frames.values())[: FRAMES + 1]

    def _best_layers(self, frame: Reading, starts: Sequence[Reading], first: bool) -> Reading:
        slots = len(frame.boundaries)
        if first and math.perm(len(self.captured), slots) <= EXHAUSTIVE:
            everything = [replace(frame, boundaries=b) for b in permutations(self.captured, slots)]
            return self.best([frame, *everything], 1)
        begins = {frame.boundaries} | {s.boundaries for s in starts if len(s.boundaries) == slots}
        ends = [self._ascend(replace(frame, boundaries=begin)) for begin in sorted(begins)]
        return self.best(ends, 1)

    def _ascend(self, reading: Reading) -> Reading:
        """One layer after the other, or two exchanged, as long as that is better."""
        while True:
            better = self.best([reading, *neighbours(reading, self.captured)], 1)
            if better == reading:
                return reading
            reading = better


def neighbours(reading: Reading, captured: Sequence[int]) -> Iterator[Reading]:
    """With one layer replaced by another of the dump, or two exchanged. No state stands twice."""
    given = reading.boundaries
    for slot in range(len(given)):
        for boundary in captured:
            if boundary not in given:
                yield replace(reading, boundaries=(*given[:slot], boundary, *given[slot + 1 :]))
    for one, other in combinations(range(len(given)), 2):
        swapped = list(given)
        swapped[one], swapped[other] = given[other], given[one]
        yield replace(reading, boundaries=tuple(swapped))
