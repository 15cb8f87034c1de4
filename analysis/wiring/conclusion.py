"""What all steps together say: one cause with its evidence, or cleared, or what is still undecided."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from analysis.wiring.chain import Prediction
from analysis.wiring.fixes import fix_of
from analysis.wiring.match import ServedWiring, reading_seen
from analysis.wiring.reading_words import reading_words
from analysis.wiring.trained import Trained
from analysis.wiring.variants import causes
from results.head_config import Head
from results.records import SpecCounters
from results.wiring import (
    Cause,
    Conclusion,
    Finding,
    Fix,
    Outcome,
    Reading,
    Severity,
)

# What a replay of short greedy prompts cannot see, so that the folders and flags alone speak of it.
UNSEEN = frozenset({Cause.CONTEXT, Cause.PARALLELISM})
ALIKE = 0.02  # of accept length: rounding in bf16 turns a few drafts over


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the steps left behind; None and empty where a step was skipped."""

    layers: int
    head: Head
    findings: Sequence[Finding] = ()  # of the folders and flags, and of the definitions
    expected: Reading | None = None  # how the engine reads the head, by its sources
    ended: str = ""  # how the instrumented server ended, if it did
    served: ServedWiring | None = None
    trained: Trained | None = None
    counters: SpecCounters | None = None  # of the server, for the captured requests
    counted: Prediction | None = None  # round by round, by the server; and the same rounds
    as_served: Prediction | None = None  # replayed as the server reads
    as_trained: Prediction | None = None
    explaining: Sequence[Reading] = ()  # others that give what the server counted, if that one does not
    fix_for: Callable[[Sequence[int]], Fix | None] = field(default=lambda _: None)

    @property
    def reading(self) -> Reading | None:
        """How the server reads the head: the layers as seen, the rest as the engine's sources have it."""
        if self.expected is None or self.served is None:
            return self.expected
        return reading_seen(self.served, self.expected) or self.expected

    @property
    def replay_fits(self) -> bool | None:
        """Whether the replay as served gives what the server counted; None if one of them is missing."""
        if self.counted is None or self.as_served is None or not self.counted.counts:
            return None
        return fits(self.as_served, self.counted)

    @property
    def accept_length(self) -> float | None:
        """Tokens a round as served, the target's own included; None if nothing was counted."""
        if self.counters is not None and self.counters.drafts:
            return 1 + self.counters.accepted_tokens / self.counters.drafts
        return self.counted.accept_length if self.counted is not None else None


def fits(replayed: Prediction, counted: Prediction) -> bool:
    """Whether the rounds are the same, up to what rounding turns over."""
    if replayed.counts == counted.counts:
        return True
    mean, other = counted.accept_length, replayed.accept_length
    return mean is not None and other is not None and abs(mean - other) <= ALIKE * mean


def conclude(evidence: Evidence) -> Conclusion:
    """The first that speaks of: a drafter not used, what is passed on, the replay, the folders alone."""
    told = (
        _not_attached(evidence)
        or _passed_on_wrongly(evidence)
        or _by_replay(evidence)
        or _by_folders(evidence)
        or _nothing(evidence)
    )
    return replace(told, accept_length=evidence.accept_length)


def _grave(evidence: Evidence, severity: Severity) -> list[Finding]:
    return [finding for finding in evidence.findings if finding.severity is severity]


def _not_attached(evidence: Evidence) -> Conclusion | None:
    found = [f for f in _grave(evidence, Severity.FATAL) if f.cause is Cause.NOT_ATTACHED]
    return _named(evidence, (Cause.NOT_ATTACHED,), [found[0].seen]) if found else None


def _passed_on_wrongly(evidence: Evidence) -> Conclusion | None:
    """What no training has: parts of states, states beside the wrong tokens."""
    if evidence.served is None or not evidence.served.faults:
        return None
    faults = evidence.served.faults
    return _named(evidence, tuple(dict.fromkeys(f.cause for f in faults)), [f.seen for f in faults])


def _by_replay(evidence: Evidence) -> Conclusion | None:
    trained, reading = evidence.trained, evidence.reading
    if trained is None or reading is None:
        return None
    if evidence.replay_fits is False:
        return _read_otherwise(evidence, trained)
    if differing := trained.differences(reading):
        return _named(evidence, differing, [*_replayed(evidence), *_counts(evidence)])
    if not trained.predicts:
        return _predicts_nothing(evidence, trained)
    if not trained.clears(reading):
        return _undecided_replay(evidence, trained, reading)
    grave = _grave(evidence, Severity.FATAL) + _grave(evidence, Severity.LIKELY)
    unseen = [f for f in grave if f.cause in UNSEEN]
    if unseen:
        return _named(evidence, (unseen[0].cause,), [unseen[0].seen, *_counts(evidence)])
    return _cleared(evidence, trained)


def _predicts_nothing(evidence: Evidence, trained: Trained) -> Conclusion:
    """In no reading: the weights themselves are wrong, and only the folders can say which."""
    grave = _grave(evidence, Severity.FATAL) or _grave(evidence, Severity.LIKELY)
    named = tuple(dict.fromkeys(f.cause for f in grave))
    seen = f"in none of {len(trained.candidates)} readings do these weights predict the target"
    if len(named) == 1:
        return _named(evidence, named, [*(f.seen for f in grave), seen, *_counts(evidence)])
    left = named or (Cause.VERIFIER, Cause.LM_HEAD, Cause.TRAINING)
    return Conclusion(
        Outcome.UNDECIDED,
        f"Undecided: {' or '.join(cause.value for cause in left)}; {seen}.",
        left,
        tuple(_counts(evidence)),
    )


def _read_otherwise(evidence: Evidence, trained: Trained) -> Conclusion:
    """The server reads the head in another way than its sources say: in which, if its counts tell?"""
    found = [causes(reading, trained.best) for reading in evidence.explaining]
    certain = tuple(c for c in found[0] if all(c in others for others in found)) if found else ()
    if len(certain) == 1:
        seen = f"the server's counts are those of a head that is read so: {certain[0].value}"
        return _named(evidence, certain, [seen, *_counts(evidence)])
    left = tuple(dict.fromkeys(c for one in found for c in one))
    said = (
        " or ".join(cause.value for cause in left) or "the fault is within the drafter as the server runs it"
    )
    return Conclusion(
        Outcome.UNDECIDED,
        f"Undecided: the server accepts otherwise than a replay of its drafter as it should run: {said}.",
        left,
        (*_replayed(evidence), *_counts(evidence)),
    )


def _undecided_replay(evidence: Evidence, trained: Trained, reading: Reading) -> Conclusion:
    possible = dict.fromkeys(c for tie in (trained.best, *trained.ties) for c in causes(reading, tie))
    fatal = [f for f in _grave(evidence, Severity.FATAL) if f.cause in possible]
    if len({f.cause for f in fatal}) == 1:
        return _named(evidence, (fatal[0].cause,), [fatal[0].seen, *_replayed(evidence), *_counts(evidence)])
    more = trained.more_sequences
    wanted = f"; about {more} more sequences of ordinary text would decide" if more else ""
    left = " or ".join(cause.value for cause in possible) or "the served wiring and another"
    return Conclusion(
        Outcome.UNDECIDED,
        f"Undecided: {left}{wanted}.",
        tuple(possible),
        (*_replayed(evidence), *_counts(evidence)),
        more_sequences=more,
    )


def _cleared(evidence: Evidence, trained: Trained) -> Conclusion:
    length = evidence.accept_length
    can = f"; {length:.2f} tokens a round is what this head gives on this text" if length else ""
    weak = any(f.cause is Cause.TRAINING for f in evidence.findings)
    more = ". More training, or text like that of the training, would raise it" if weak else ""
    return Conclusion(
        Outcome.CLEARED,
        f"The wiring is cleared: the server gives the drafter what it was trained with{can}{more}.",
        (Cause.TRAINING,) if weak else (),
        (*_replayed(evidence), *_counts(evidence)),
    )


def _by_folders(evidence: Evidence) -> Conclusion | None:
    """Without a replay only what cannot work is named; what is likely stays a question."""
    fatal, likely = _grave(evidence, Severity.FATAL), _grave(evidence, Severity.LIKELY)
    ended = [f"the server ended: {evidence.ended}"] if evidence.ended else []
    named = tuple(dict.fromkeys(f.cause for f in fatal))
    if len(named) == 1:
        return _named(evidence, named, [*(f.seen for f in fatal), *ended])
    left = named or tuple(dict.fromkeys(f.cause for f in likely))
    if not left:
        return None
    return Conclusion(
        Outcome.UNDECIDED,
        f"Undecided: {' or '.join(c.value for c in left)}. A capture would tell: {_needed(evidence)}.",
        left,
        (*(f.seen for f in (fatal or likely)), *ended),
        fix=next((f.fix for f in (fatal or likely) if f.fix is not None), None) if len(left) == 1 else None,
    )


def _nothing(evidence: Evidence) -> Conclusion:
    ended = f" The server ended: {evidence.ended}." if evidence.ended else ""
    shown = "folders and flags show nothing wrong"
    if evidence.expected is None:
        shown += f", and too little of how {evidence.head.kind.value} is wired to this target"
    return Conclusion(
        Outcome.UNDECIDED,
        f"Undecided: {shown}.{ended} A capture would tell: {_needed(evidence)}.",
    )


def _needed(evidence: Evidence) -> str:
    if evidence.served is None:
        return "run the steps capture, served and trained, or give a dump"
    return "run the step trained with the drafter's and the target's folders"


def _named(evidence: Evidence, named: tuple[Cause, ...], seen: Sequence[str]) -> Conclusion:
    fix = _fix(evidence, named[0])
    after = evidence.as_trained.accept_length if evidence.as_trained is not None and fix is not None else None
    return Conclusion(
        Outcome.NAMED,
        f"{' and '.join(cause.value for cause in named)}.".capitalize(),
        named,
        tuple(seen),
        fix,
        accept_length_after=after,
    )


def _fix(evidence: Evidence, cause: Cause) -> Fix | None:
    """By how the head was trained, where that is known; else as the step that found it says."""
    trained, reading = evidence.trained, evidence.reading
    if cause is Cause.LAYERS and trained is not None and (fix := evidence.fix_for(trained.best.boundaries)):
        return fix
    told = next((f.fix for f in evidence.findings if f.cause is cause and f.fix is not None), None)
    if told is not None or trained is None or reading is None:
        return told
    return fix_of(cause, reading, trained.nearest(reading), evidence.head)


def _replayed(evidence: Evidence) -> Iterator[str]:
    trained, reading = evidence.trained, evidence.reading
    if trained is None or reading is None:
        return
    best = trained.nearest(reading)
    given = reading_words(reading, evidence.layers, beside=best)
    wanted = reading_words(best, evidence.layers, beside=reading)
    if causes(reading, best) == (Cause.LM_HEAD,):
        yield f"with the target's rows in place of its lm_head the head predicts; the server reads {given}"
    else:
        yield f"the server reads {given}; the head was trained with {wanted}"
    served = trained.candidate(reading)
    if served is None or reading == trained.best:
        yield f"replayed on {trained.sequences} sequences: {trained.loss:.3f} nats a token above the target"
        return
    yield (
        f"replayed on {trained.sequences} sequences: {trained.loss:.3f} nats a token above the target as"
        f" trained, {served.loss:.3f} as served, z {served.against_best.z:.1f}"
    )


def _counts(evidence: Evidence) -> Iterator[str]:
    if evidence.counted is None or not evidence.counted.counts:
        return
    yield f"the server accepted, by position, {_by_position(evidence.counted)}"
    if evidence.as_served is not None:
        yield f"a replay as served accepts {_by_position(evidence.as_served)}"


def _by_position(rounds: Prediction) -> str:
    return f"{'/'.join(map(str, rounds.by_position))} drafts in {len(rounds.counts)} rounds"
