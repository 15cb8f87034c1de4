"""Which wiring was the drafter trained with? Told by a replay of the head on a dump."""

import math
from collections.abc import Iterator, Sequence

from analysis.wiring.paired import LEAST_SEQUENCES, NAMED_Z
from analysis.wiring.reading_words import reading_words
from analysis.wiring.trained import Candidate, Trained
from analysis.wiring.variants import published_reading
from analysis.wiring.vocabulary import Pair
from results.checkpoint import Checkpoint
from results.errors import UsageError
from results.hidden_states import AnyDump
from results.wiring import Cause, Finding, Hypothesis, Reading, Section, Severity, Step
from sweeps.doctor.replay import distinct, examine, open_pair, ranked_part

SHOWN = 8  # of the candidates
WEAK_AGREEMENT = 0.5  # of first drafts with the target's likeliest token, at the best reading
RUN = 4  # tokens
LOOPING_SHARE = 0.5  # of runs of tokens that are distinct
RANDOM_SHARE = 0.75  # of the surprise at a token that could be any
RULE = (
    f"a head predicts best as it was trained to read: a reading is named if it beats every other tried "
    f"by z >= {NAMED_Z:g}, cross-entropy against the target's distribution, clustered by sequence"
)


def section(
    dump: AnyDump,
    target: Checkpoint,
    head: Checkpoint,
    served: Reading | None = None,
    hypotheses: Sequence[Hypothesis] = (),
) -> tuple[Section, Trained | None]:
    """`served` is how the server reads, if that is known; the hypotheses are of how the head was trained."""
    try:
        pair = open_pair(target, head)
        starts = [*([served] if served else []), *(h.reading for h in hypotheses), published_reading(pair)]
        trained = examine(dump, pair, distinct(starts))
        cautions = tuple(doubts(dump, pair))
    except UsageError as error:
        return Section(Step.TRAINED, skipped=str(error)), None
    layers = pair.target.layers
    return Section(
        Step.TRAINED,
        checked=(_checked(trained, dump),),
        seen=(*(_line(c, trained, layers) for c in _shown_candidates(trained, served)), *cautions),
        follows=tuple(_follows(trained, layers, served)),
        findings=tuple(_findings(trained, layers, served)),
    ), trained


def doubts(dump: AnyDump, pair: Pair) -> Iterator[str]:
    """Text on which a replay misleads: in one that loops or is random wrong readings do well."""
    from itertools import islice

    looping = sum(_distinct_runs(s.token_ids[s.prompt_tokens :].tolist()) < LOOPING_SHARE for s in dump)
    if looping:
        yield f"caution: the answers of {looping} of {len(dump)} sequences loop, which hides faults of wiring"
    surprises = [text.surprise() for text in islice(ranked_part(dump, pair), LEAST_SEQUENCES)]
    if sum(surprises) / len(surprises) > RANDOM_SHARE * math.log(pair.target.vocabulary):
        yield "caution: the text is random to the target, which tells readings apart badly: use ordinary text"


def _checked(trained: Trained, dump: AnyDump) -> str:
    return (
        f"{len(trained.candidates)} readings of the head compared on {trained.sequences} sequences, "
        f"{trained.rows} predictions, after a search on a part of them ({dump.folder.name})"
    )


def _shown_candidates(trained: Trained, served: Reading | None) -> list[Candidate]:
    """The best, and the server's own wherever it stands."""
    return [c for n, c in enumerate(trained.candidates) if n < SHOWN or c.reading == served]


def _line(candidate: Candidate, trained: Trained, layers: int) -> str:
    against = candidate.against_best
    beside = "best" if candidate.reading == trained.best else f"+{against.excess:.4f}, z {against.z:.1f}"
    beside = "the same on this text" if against.same and candidate.reading != trained.best else beside
    return (
        f"{reading_words(candidate.reading, layers)}: {candidate.loss:.4f} nats a token above the target "
        f"({beside}); likeliest token right in {100 * candidate.agreement:.1f} % of first drafts"
    )


def _follows(trained: Trained, layers: int, served: Reading | None) -> Iterator[str]:
    best = reading_words(trained.best, layers)
    if not trained.predicts:
        yield (
            "in no reading do these weights predict better than a guess from how often each token comes: "
            "some of them are random, or of a head for another model"
        )
    elif trained.named:
        yield f"the head was trained with {best} (z {_shown(trained.z)} against the nearest other)"
    elif trained.sequences < LEAST_SEQUENCES:
        yield f"{trained.sequences} sequences name nothing: {LEAST_SEQUENCES} are the least"
    else:
        others = "; ".join(reading_words(tie, layers) for tie in trained.ties[:SHOWN])
        yield f"undecided between {best} and {others}: {_more(trained)}"
    if trained.harmless:
        shown = "; ".join(reading_words(r, layers) for r in trained.harmless[:SHOWN])
        yield f"not told apart from it, but whichever is right, it hardly matters: {shown}"
    if served is not None and trained.clears(served):
        yield "the server reads as the head was trained, or as well"
        if trained.agreement < WEAK_AGREEMENT:
            yield "the right wiring is the best, and still low: the head itself predicts no better"


def _more(trained: Trained) -> str:
    if trained.more_sequences is None:
        return "collect more sequences of ordinary text"
    return f"about {trained.more_sequences} more sequences of ordinary text would decide"


def _findings(trained: Trained, layers: int, served: Reading | None) -> Iterator[Finding]:
    if served is None:
        return
    if trained.clears(served) and trained.agreement < WEAK_AGREEMENT:
        seen = f"right in {100 * trained.agreement:.1f} % of first drafts at the best reading, the server's"
        yield Finding(Cause.TRAINING, Severity.INFO, seen, RULE)
    worse = trained.candidate(served)
    for cause in trained.differences(served):
        yield Finding(cause, Severity.LIKELY, _difference(trained, served, worse, layers), RULE)


def _difference(trained: Trained, served: Reading, worse: Candidate | None, layers: int) -> str:
    nearest = trained.nearest(served)
    best = reading_words(nearest, layers, beside=served)
    if worse is None:
        return f"trained with {best}; as it is served it cannot be replayed on this dump"
    own, against = reading_words(served, layers, beside=nearest), worse.against_best
    return (
        f"trained with {best}: {trained.loss:.3f} nats a token; as served, {own}: {worse.loss:.3f} "
        f"(z {_shown(against.z)}, {against.sequences} sequences)"
    )


def _shown(z: float) -> str:
    return f"{z:.1f}" if math.isfinite(z) else "beyond doubt"


def _distinct_runs(ids: Sequence[int]) -> float:
    runs = [tuple(ids[n : n + RUN]) for n in range(len(ids) - RUN + 1)]
    return len(set(runs)) / len(runs) if runs else 1.0
