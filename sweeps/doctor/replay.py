"""Replays a head on a dump: readings are ranked on a part of it, the best compared on all of it.
 In memory are one sequence of the dump at a time, or the part on which readings are ranked. Beside the
weights, which are mapped from their files, a sequence of 2,000 rows in 12 boundaries of a hidden size of
7168 takes less than 2 GB.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from analysis.wiring.candidates import Ranking, neighbours
from analysis.wiring.chain import Prediction, predict
from analysis.wiring.head import Head
from analysis.wiring.paired import LEAST_SEQUENCES, compare
from analysis.wiring.race import Raced, race
from analysis.wiring.replay import Loss, Text, guessed, losses
from analysis.wiring.target import open_target
from analysis.wiring.trained import Trained, judge
from analysis.wiring.variants import variants
from analysis.wiring.vocabulary import Pair
from results.checkpoint import Checkpoint
from results.environment import usable_cores
from results.errors import UsageError
from results.hidden_states import AnyDump
from results.wiring import Reading
from sweeps.doctor.weights import Weights

RANKED_ROWS = 500
RANKED_SEQUENCES = 4  # at least: one alone may be of a kind
FINALISTS = 20
STEPS = 3  # draft steps in the comparison on all sequences
STRANGE = (AttributeError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError)
PASSES = 3  # over the dump, at most


def open_pair(target: Checkpoint, head: Checkpoint, device: str | None = None) -> Pair:
    """On a GPU if there is one. Raises UsageError if the pair cannot be replayed."""
    import torch

    # Many small products: with a thread on every core they wait for each other wherever something else runs.
    torch.set_num_threads(max(1, (usable_cores() or 1) // 2))
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        own = Head(head.config, Weights(head.folder), device)
        return Pair(own, open_target(target.config, Weights(target.folder)))
    except STRANGE as error:  # shapes and entries of a config that no head or target has
        raise UsageError(f"cannot replay: no EAGLE-3 head and its target: {error!r}") from None


def examine(dump: AnyDump, pair: Pair, starts: Sequence[Reading]) -> Trained:
    """The first start is how the server reads, if known. Raises UsageError if none can be replayed."""
    ranked = ranked_part(dump, pair)
    captured = sorted(ranked[0].states)
    ranking = Ranking(lambda r, steps: _means(ranked, r, steps), lambda r: variants(r, pair), captured)
    best = ranking.search(starts)
    steps = min(dump.header.drafts_per_round or STEPS, STEPS)
    wanted = distinct([*starts, best, *ranking.top(FINALISTS), *_around(best, pair, captured)])
    raced, tried = _race(dump, pair, wanted, starts, steps), {repr(r) for r in wanted}
    for _ in range(PASSES - 1):
        best = judge(raced, starts).best
        fresh = [r for r in _around(best, pair, captured) if repr(r) not in tried]
        if not fresh:
            break
        raced += _race(dump, pair, [best, *fresh], starts, steps)[1:]
        tried |= {repr(r) for r in fresh}
    return _tested(judge(raced, starts), raced, dump, pair, steps)


def _tested(trained: Trained, raced: Raced, dump: AnyDump, pair: Pair, steps: int) -> Trained:
    """With the best set against a guess. Weights that fit in no reading have a best one too."""
    won = next(found for reading, found in raced if reading == trained.best)
    guesses = [guessed(text, trained.best.d2t, steps) for text in _texts(dump, pair, steps)]
    return replace(trained, predicts=compare(won, guesses).decided or trained.sequences < LEAST_SEQUENCES)


def beside_counted(dump: AnyDump, pair: Pair, reading: Reading, drafts: int) -> tuple[Prediction, Prediction]:
    """What is predicted if the server reads so, and what it counted, of the sequences that have its counts.

    Left out of both is an answer's last round where the text's end cuts it short.
    """
    found, counted = Prediction(drafts, ()), Prediction(drafts, ())
    for sequence in dump:
        if sequence.accepted:
            one = predict(pair, reading, sequence, drafts)
            rounds = len(one.counts) - one.cut_short
            known = sequence.accepted if not one.cut_short else sequence.accepted[:rounds]
            found += Prediction(drafts, one.counts[:rounds])
            counted += Prediction(drafts, tuple(known))
    return found, counted


def ranked_part(dump: AnyDump, pair: Pair) -> list[Text]:
    """The beginnings of sequences, as many as make up the rows to rank on. Raises UsageError without any."""
    texts: list[Text] = []
    for sequence in dump:
        if sum(text.rows for text in texts) >= RANKED_ROWS:
            break
        texts.append(Text(pair, sequence, RANKED_ROWS // RANKED_SEQUENCES))
    if not texts:
        raise UsageError(f"{dump.folder} holds no sequences")
    return texts


def distinct(readings: Sequence[Reading]) -> list[Reading]:
    """Each but once, in their order. (A Reading may hold a mapping, and so has no hash.)"""
    return list({repr(reading): reading for reading in readings}.values())


def _around(best: Reading, pair: Pair, captured: Sequence[int]) -> list[Reading]:
    return distinct([*variants(best, pair), *neighbours(best, captured)])


def _means(texts: Sequence[Text], readings: Sequence[Reading], steps: int) -> list[float]:
    by_text = [losses(text, readings, steps) for text in texts if text.rows > steps]
    return [_mean([found[place] for found in by_text]) for place in range(len(readings))]


def _mean(found: Sequence[Loss | None]) -> float:
    known = [loss for loss in found if loss is not None]
    return sum(loss.nats for loss in known) / sum(loss.rows for loss in known) if known else math.inf


def _race(
    dump: AnyDump, pair: Pair, readings: Sequence[Reading], kept: Sequence[Reading], steps: int
) -> Raced:
    """The first of the readings is never given up either."""
    raced = race(readings, [*kept, readings[0]], _texts(dump, pair, steps), steps)
    found = [loss for _, losses in raced for loss in losses]
    if raced and not any(loss.rows for loss in found):
        raise UsageError(f"no sequence of {dump.folder} is long enough: {steps + 2} tokens are the least")
    if not all(math.isfinite(loss.nats) for loss in found):
        raise UsageError(f"{dump.folder} holds states that are not finite numbers: it cannot be replayed")
    if not raced:
        raise UsageError("the head cannot be read in any of the ways tried: see its static wiring")
    return raced


def _texts(dump: AnyDump, pair: Pair, steps: int) -> Iterator[Text]:
    for sequence in dump:
        text = Text(pair, sequence)
        if text.rows > steps:
            yield text
