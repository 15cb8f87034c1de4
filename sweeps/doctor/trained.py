"""Which wiring was the drafter trained with? The head is replayed on a dump, reading by reading.

At most one sequence of the dump is in memory, and a part of up to `RANKED_ROWS` rows on which readings are ranked.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from analysis.wiring.candidates import Ranking, neighbours
from analysis.wiring.chain import Prediction, predict
from analysis.wiring.head import Head
from analysis.wiring.target import open_target
from analysis.wiring.trained import Trained, judge
from analysis.wiring.variants import published_reading, variants
from analysis.wiring.vocabulary import Pair
from results.checkpoint import Checkpoint
from results.errors import UsageError
from results.hidden_states import Dump
from results.wiring import Hypothesis, Reading, Section, Step
from sweeps.doctor.weights import Weights

if TYPE_CHECKING:
    pass

RANKED_ROWS = 500
RANKED_SEQUENCES = 4  # at least: one alone may be of a kind
FINALISTS = 20
STEPS = 3  # draft steps in the comparison on all sequences
PASSES = 3  # over the dump at most
WEAK_AGREEMENT = 0.5
LOOPING_SHARE = 0.5  # of distinct runs of four tokens
RANDOM_SHARE = 0.75  # of the surprise at a token that could be any


def open_pair(target: Checkpoint, head: Checkpoint, device: str | None = None) -> Pair:
    """On a GPU if there is one. Raises UsageError if the pair cannot be replayed."""
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Pair(
        Head(head.config, Weights(head.folder), device), open_target(target.config, Weights(target.folder))
    )


def section(
    dump: Dump,
    target: Checkpoint,
    head: Checkpoint,
    served: Reading | None = None,
    hypotheses: Sequence[Hypothesis] = (),
) -> tuple[Section, Trained | None]:
    """What the server reads, if known, and how the head may have been trained are tried with all else."""
    try:
        pair = open_pair(target, head)
        starts = _distinct(
            [*([served] if served else []), *(h.reading for h in hypotheses), published_reading(pair)]
        )
        trained = examine(dump, pair, starts)
        warnings = _warnings(dump, pair)
    except UsageError as error:
        return Section(Step.TRAINED, skipped=str(error)), None
    return _written(trained, dump.header.layers, served, warnings), trained


def examine(dump: Dump, pair: Pair, starts: Sequence[Reading]) -> Trained:
    """The first start is how the server reads, if that is known. Raises UsageError if nothing can be replayed."""
    ranked, captured = _ranked_part(dump, pair)
    ranking = Ranking(lambda r, steps: _means(ranked, r, steps), lambda r: variants(r, pair), captured)
    best = ranking.search(starts)
    del ranked
    steps = min(dump.header.drafts_per_round or STEPS, STEPS)
    raced = _race(
        dump, pair, [*starts, best, *ranking.top(FINALISTS), *_around(best, pair, captured)], starts, steps
    )
    for _ in range(PASSES - 1):
        best = judge(raced).best
        fresh = [r for r in _around(best, pair, captured) if all(r != seen for seen, _ in raced)]
        fresh = [r for r in fresh if repr(r) not in ranking.unreadable]
        if not fresh:
            break
        known = [r for r, _ in raced]
        raced += [
            entry for entry in _race(dump, pair, [best, *fresh], starts, steps) if entry[0] not in known
        ]
    return judge(raced)


def predicted(dump: Dump, pair: Pair, reading: Reading, drafts: int) -> Prediction:
    """Drafts accepted in each round of the dump's answers, which must be greedy, if the server reads so."""
    return reduce(
        add, (predict(pair, reading, sequence, drafts) for sequence in dump), Prediction(drafts, ())
    )


def _around(best: Reading, pair: Pair, captured: Sequence[int]) -> list[Reading]:
    return [*variants(best, pair), *neighbours(best, captured)]


def _distinct(readings: Sequence[Reading]) -> list[Reading]:
    return list({repr(reading): reading for reading in readings}.values())
