"""Readings compared on all sequences, one in memory at a time; those that lag clearly are given up."""

from collections.abc import Iterable, Sequence

from analysis.wiring.paired import compare
from analysis.wiring.replay import Loss, Text, losses
from results.wiring import Reading

LOOK_EVERY = 8  # sequences
GIVEN_UP_Z = 5.0

Raced = list[tuple[Reading, list[Loss]]]


def race(readings: Sequence[Reading], kept: Sequence[Reading], texts: Iterable[Text], steps: int) -> Raced:
    """Losses of each by sequence; fewer of those given up, none of `kept` is. Unreadable ones are left out.

    Raises UsageError if none can be read, or the dump does not say what the target would.
    """
    running: Raced = [(reading, []) for reading in readings]
    given_up: Raced = []
    for number, text in enumerate(texts, start=1):
        found = losses(text, [reading for reading, _ in running], steps)
        for (_, so_far), loss in zip(running, found, strict=True):
            so_far.extend([loss] if loss is not None else [])
        running = [entry for entry in running if len(entry[1]) == number]
        if number % LOOK_EVERY == 0:
            lagging = [entry for entry in running if entry[0] not in kept and _lags(entry[1], running)]
            given_up += lagging
            running = [entry for entry in running if entry not in lagging]
    return running + given_up


def _lags(losses: Sequence[Loss], running: Raced) -> bool:
    leader = min((others for _, others in running), key=lambda seen: sum(loss.nats for loss in seen))
    return compare(leader, losses).z >= GIVEN_UP_Z
