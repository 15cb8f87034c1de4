"""Is one Reading better than another? Compared on the same text, clustered by sequence.
 Tokens of one sequence are no independent witnesses: by token z comes out several times too large. The unit
is the sequence, its weight the rows it has. Few sequences estimate their own scatter badly: z is the normal
quantile of Student's t, so that it means the same for 8 sequences as for 80.

A Reading is named if it beats *every* other that was tried by z >= 3. Many are tried, but that needs no
further correction: to name a wrong one, it must beat the right one among the others. What no text tells
apart (equal losses on each sequence) is one reading here; and two of which neither can be more than a
little better are as good as one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

NAMED_Z = 3.0
LEAST_SEQUENCES = 8
HARMLESS_NATS = 0.005  # a token: whatever costs less changes no accept length that could be measured
SAME_NATS = 1e-5  # a token, on each sequence: what float32 leaves of an equal computation


class Judged(Protocol):
    """A loss on one sequence."""

    @property
    def nats(self) -> float:
        """Summed over rows."""

    @property
    def rows(self) -> int:
        """The same for all that are compared."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How much worse another is than the best, in nats a token."""

    excess: float
    z: float  # of the excess; nan for fewer than two sequences
    half_width: float  # of the excess's interval that leaves out 0 where z is 3
    sequences: int
    same: bool

    @property
    def decided(self) -> bool:
        """Whether the other is worse."""
        return self.z >= NAMED_Z

    @property
    def stake(self) -> float:
        """Nats a token that may at most be lost by taking the best where the other is right."""
        return 0.0 if self.same else max(self.half_width - self.excess, 0.0)

    @property
    def matters(self) -> bool:
        """Whether the two are told apart neither by the text nor by what is at stake."""
        return not (self.same or self.decided or self.stake <= HARMLESS_NATS)

    def more_sequences(self) -> int | None:
        """Further ones of the same kind after which it is decided, or matters no more; None if unknown."""
        if not self.matters:
            return 0
        if not math.isfinite(self.half_width):
            return None
        shares = (
            self.half_width / abs(self.excess + nats) for nats in (0.0, HARMLESS_NATS) if self.excess + nats
        )
        return math.ceil(self.sequences * (min(shares) ** 2 - 1))


def compare(best: Sequence[Judged], other: Sequence[Judged]) -> Comparison:
    """Losses on the same sequences in the same order."""
    pairs = list(zip(best, other, strict=True))
    if any(a.rows != b.rows for a, b in pairs):
        raise ValueError("losses on other rows cannot be compared")
    differences = [b.nats - a.nats for a, b in pairs]
    rows = [a.rows for a, _ in pairs]
    excess = sum(differences) / sum(rows)
    same = all(abs(d) <= SAME_NATS * n for d, n in zip(differences, rows, strict=True))
    if len(pairs) < 2:
        return Comparison(excess, math.nan, math.inf, len(pairs), same)
    scatter = sum((d - excess * n) ** 2 for d, n in zip(differences, rows, strict=True))
    error = math.sqrt(scatter * len(pairs) / (len(pairs) - 1)) / sum(rows)
    z, half_width = _z(excess, error, len(pairs) - 1), error * _t_of_z(NAMED_Z, len(pairs) - 1)
    return Comparison(excess, 0.0 if same else z, half_width, len(pairs), same)


def _z(excess: float, error: float, degrees: int) -> float:
    from scipy.special import ndtri, stdtr

    if not error:
        return math.copysign(math.inf, excess)
    tail = max(float(stdtr(degrees, -abs(excess / error))), 1e-300)
    return math.copysign(-float(ndtri(tail)), excess)


@lru_cache(maxsize=1024)
def _t_of_z(z: float, degrees: int) -> float:
    from scipy.special import ndtr, stdtrit

    return -float(stdtrit(degrees, ndtr(-z)))
