"""Which Reading the head was trained with, as far as the text tells."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from analysis.wiring.paired import LEAST_SEQUENCES, Comparison, compare
from analysis.wiring.replay import Loss
from analysis.wiring.variants import causes, changes
from results.wiring import Cause, Reading


@dataclass(frozen=True, slots=True)
class Candidate:
    """One Reading that was tried on all sequences, or given up earlier as clearly worse."""

    reading: Reading
    loss: float  # nats a token, 0 for a perfect head
    agreement: float  # share of first drafts that are the target's likeliest token; decides nothing
    against_best: Comparison


@dataclass(frozen=True, slots=True)
class Trained:
    """What was found; `candidates` has all that were tried to the end, the best first."""

    best: Reading
    candidates: tuple[Candidate, ...]
    sequences: int
    rows: int
    ties: tuple[Reading, ...] = ()  # not told apart from the best, and it matters which is right
    harmless: tuple[Reading, ...] = ()  # not told apart, and it hardly matters
    same: tuple[Reading, ...] = ()  # whose losses equal the best one's: this text cannot tell them apart
    z: float = math.inf  # of the best against the nearest of those that matter
    more_sequences: int | None = 0  # until nothing is left that matters; None = cannot be told
    predicts: bool = True  # better than one who knows nothing but how often each token comes

    @property
    def named(self) -> bool:
        """Whether the best beats every other that matters."""
        return self.predicts and not self.ties and self.sequences >= LEAST_SEQUENCES

    @property
    def loss(self) -> float:
        return self.candidates[0].loss

    @property
    def agreement(self) -> float:
        return self.candidates[0].agreement

    def candidate(self, reading: Reading) -> Candidate | None:
        """The one of this Reading; None if it was not tried, or cannot be run."""
        return next((c for c in self.candidates if c.reading == reading), None)

    def nearest(self, served: Reading) -> Reading:
        """Of the best and what is the same on this text, the one that differs least from a server's."""
        return min((self.best, *self.same), key=lambda reading: _distance(reading, served))

    def clears(self, served: Reading) -> bool:
        """Whether a server that reads so loses nothing by it: the best, or as good."""
        return self.named and served in (self.best, *self.same, *self.harmless)

    def differences(self, served: Reading) -> tuple[Cause, ...]:
        """In what a server's Reading differs from the best and from all that may be right instead.

        Empty as well if the server's own is among those, if there are too few sequences, or if
        the best predicts nothing.
        """
        possible = (self.best, *self.same, *self.harmless, *self.ties)
        if not self.predicts or self.sequences < LEAST_SEQUENCES or served in possible:
            return ()
        differing = [causes(served, reading) for reading in possible]
        return tuple(c for c in differing[0] if all(c in others for others in differing))


def _distance(one: Reading, other: Reading) -> int:
    return sum(getattr(one, f.name) != getattr(other, f.name) for f in fields(Reading))


def judge(tried: Sequence[tuple[Reading, Sequence[Loss]]], starts: Sequence[Reading]) -> Trained:
    """Losses of each Reading on the first sequences, the same for all; on all of them for those not given up.

    Of Readings as good as the best, that is taken which changes least of what one started from.
    Raises ValueError without any.
    """
    whole = max(len(losses) for _, losses in tried)
    kept = [(r, losses) for r, losses in tried if len(losses) == whole]
    winner = min(kept, key=lambda entry: _mean(entry[1]))[1]
    as_good = [(r, losses) for r, losses in kept if _is_as_good(compare(winner, losses))]
    best, won = min(as_good, key=lambda entry: _changes(entry[0], starts))
    candidates = sorted(
        (_candidate(r, losses, won) for r, losses in tried),
        key=lambda c: (c.reading != best, c.against_best.excess),
    )
    others = [c for c in candidates[1:] if not c.against_best.same]
    ties = [c for c in others if c.against_best.matters]
    more = [c.against_best.more_sequences() for c in ties] + [LEAST_SEQUENCES - whole, 0]
    return Trained(
        best=best,
        candidates=tuple(candidates),
        sequences=whole,
        rows=sum(loss.rows for loss in won),
        ties=tuple(c.reading for c in ties),
        harmless=tuple(c.reading for c in others if not (c in ties or c.against_best.decided)),
        same=tuple(c.reading for c in candidates[1:] if c.against_best.same),
        z=min((c.against_best.z for c in others if c in ties or c.against_best.decided), default=math.inf),
        more_sequences=max((n for n in more if n is not None), default=0) if None not in more else None,
    )


def _is_as_good(comparison: Comparison) -> bool:
    return not (comparison.decided or comparison.matters)


def _changes(reading: Reading, starts: Sequence[Reading]) -> tuple[int, int]:
    """From the start that it is nearest to; of two equally near the earlier start's."""
    return min((changes(reading, start), place) for place, start in enumerate(starts))


def _candidate(reading: Reading, losses: Sequence[Loss], best: Sequence[Loss]) -> Candidate:
    agreed = sum(loss.agreed for loss in losses) / sum(loss.judged for loss in losses)
    return Candidate(reading, _mean(losses), agreed, compare(best[: len(losses)], losses))


def _mean(losses: Sequence[Loss]) -> float:
    return sum(loss.nats for loss in losses) / sum(loss.rows for loss in losses)
