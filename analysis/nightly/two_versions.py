"""Two versions judged: what the contrasts come to, or which version fails and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from analysis import words
from analysis.accuracy import accuracy, in_words, is_worse
from analysis.limits import broken, median_ratios
from analysis.nightly.contrast import JUDGED, Contrast, Pair, Reading, Runs, contrasts, runs_of, usable
from analysis.nightly.contrast_words import sentence
from analysis.nightly.series import settings
from analysis.settings import changed, describe
from results.reasons import Reason
from results.records import Block, Failure, Point, VerdictKind

SEEN_TWICE = 2  # Blocks in which an arm must fail: once may be an accident

# What a version is to blame for. Any other failure says that it could not be measured.
OWN_FAULTS = frozenset(
    {
        Reason.NOT_SPECULATING,
        Reason.BROKEN_DRAFTER,
        Reason.INVALID_OUTPUT,
        Reason.CRASH_UNDER_LOAD,
        Reason.SERVER_DIED,
        Reason.HANG,
        Reason.LIMIT_EXCEEDED,
    }
)


class State(StrEnum):
    """What is known of a new version."""

    SOUND = "no loss that counts"
    LOSS = "a loss"
    FAULT = "the new version fails"
    UNMEASURED = "cannot be measured"
    UNDECIDED = "not decided"


@dataclass(frozen=True, slots=True)
class Judged:
    """All that is known of two versions."""

    state: State
    sentence: str
    contrasts: tuple[Contrast, ...]
    blocks: int  # measured in all four arms
    failed: Point | None = None  # the arm that cannot be used
    failure: Failure | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether no further Block would change the answer."""
        judged = [c for c in self.contrasts if c.name in JUDGED]
        is_decided = all(c.kind is not VerdictKind.UNDECIDED or c.note for c in judged)
        return self.failure is not None or is_decided


def judge(blocks: Sequence[Block], old: Pair, new: Pair, reading: Reading) -> Judged:
    """What these Blocks say of the new version. What is no usable Block of them is passed over."""
    whole, found = runs_of(blocks, old, new), usable(blocks)
    made = contrasts(whole, reading)
    point, failure = to_blame(found, (old.baseline, old.winner, new.baseline, new.winner))
    if failure is None and len(whole) in reading.looks:
        failure = _spoiled(whole, reading)
        point = new.winner if failure is not None else None
    told = sentence(made, reading.objective)
    if point is not None and failure is not None:
        told = _failed(point, failure, len(whole))
    notes = (*_drifted(found, old, new), *_accidents(found))
    is_new = point in (new.baseline, new.winner)
    return Judged(_state(made, failure, is_new=is_new), told, made, len(whole), point, failure, notes)


def to_blame(blocks: Sequence[Block], arms: Sequence[Point]) -> tuple[Point | None, Failure | None]:
    """The first of these arms that failed twice, and why."""
    for point in arms:
        runs = [run for b in blocks if (run := b.arm(point)) is not None]
        failures = [run.failure for run in runs if run.failure is not None]
        if len(failures) >= SEEN_TWICE:
            seen = f"{failures[-1].evidence} (in {len(failures)} of {words.count(len(runs), 'Block')})"
            return point, Failure(failures[-1].reason, seen)
    return None, None


def _spoiled(whole: Sequence[Runs], reading: Reading) -> Failure | None:
    """Wrong answers of the new winner, or a limit that it breaks and the old one keeps."""
    found = accuracy((runs.old_winner, runs.new_winner) for runs in whole)
    if found is not None and is_worse(found):
        return Failure(Reason.INVALID_OUTPUT, in_words(found, "the old version"))
    old = median_ratios([runs.old_winner for runs in whole], reading.limits, reading.weights)
    new = median_ratios([runs.new_winner for runs in whole], reading.limits, reading.weights)
    told = broken({name: ratio for name, ratio in new.items() if (old[name] or 0.0) <= 0}, reading.limits)
    return Failure(Reason.LIMIT_EXCEEDED, f"{told}; the old version keeps it") if told else None


def _state(found: Sequence[Contrast], failure: Failure | None, *, is_new: bool) -> State:
    if failure is not None:
        return State.FAULT if is_new and failure.reason in OWN_FAULTS else State.UNMEASURED
    judged = [c for c in found if c.name in JUDGED]
    if any(c.note for c in judged):
        return State.UNMEASURED
    if any(c.is_loss for c in judged):
        return State.LOSS
    is_open = any(c.kind is VerdictKind.UNDECIDED for c in judged)
    return State.UNDECIDED if is_open else State.SOUND


def _failed(point: Point, failure: Failure, blocks: int) -> str:
    told = f"{point.label} cannot be used: {failure.reason}, {words.one_line(failure.evidence)}"
    return f"{told}." if not blocks else f"{told}; {words.count(blocks, 'Block')} could be used."


def _drifted(blocks: Sequence[Block], old: Pair, new: Pair) -> list[str]:
    """Settings in effect that the new version changed by itself, or was asked to."""
    arms = (
        ("with speculation", old.winner, new.winner),
        ("without speculation", old.baseline, new.baseline),
    )
    return [
        f"settings in effect {which}: {describe(found)}"
        for which, a, b in arms
        if (found := _changed(settings(blocks, {"": a}), settings(blocks, {"": b})))
    ]


def _changed(old: dict[str, str], new: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Of the settings that both tell."""
    return {name.strip(): (old[name], new[name]) for name in changed(old, new) if name in old and name in new}


def _accidents(blocks: Sequence[Block]) -> list[str]:
    return [
        f"Block {b.number}: {run.point.label}: {run.failure.reason}, {words.one_line(run.failure.evidence)}"
        for b in blocks
        for run in b.arms
        if run.failure is not None
    ]
