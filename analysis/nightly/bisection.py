"""Where a search for the first bad version stands, from the Blocks so far, and what to measure next.

Versions are named by their place in the list: 0 is known to be good, the last one is said to be bad.
It is assumed that what was lost stays lost: behind the first bad one all are bad.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from analysis.block import mean_log_speedup
from analysis.nightly.contrast import Pair, Reading, measured, minus, usable
from analysis.nightly.first_bad import likeliest, next_probe, plausible, shares
from analysis.nightly.two_versions import OWN_FAULTS, State, to_blame
from results.records import Block, Effect, Failure, Point, VerdictKind

FAULT_SEEN = -1.0  # stands for a log ratio where a version fails or does not; 0 = it does not


class Sought(StrEnum):
    """What tells a bad version from a good one."""

    WINNER = "winner"  # it is slower with speculation: two launches a Block
    SPEED_UP = "speed_up"  # speculation gains less, which takes the baselines too: four launches a Block
    FAULT = "fault"  # its winner fails


@dataclass(frozen=True, slots=True)
class Step:
    """The next Block: a version beside the good one."""

    version: int
    with_baselines: bool


@dataclass(frozen=True, slots=True)
class Stand:
    """How far the search is. `step` None = it is over."""

    state: State
    step: Step | None
    sought: Sought | None = None  # None = the last version is not known to be bad
    effect: Effect | None = None  # of the last version against the good one
    failure: Failure | None = None  # of the last version
    figures: Mapping[int, Sequence[float]] = field(default_factory=dict)  # log ratios of every version
    chances: Mapping[int, float] = field(default_factory=dict)  # to be the first bad one, or the end of a gap
    first: tuple[int, int] | None = None  # the first bad one is among these, both ends inside
    skipped: Mapping[int, str] = field(default_factory=dict)  # why it could not be measured


@dataclass(frozen=True, slots=True)
class _Question:
    """What is sought; or the step that would tell, or why nothing is."""

    state: State
    sought: Sought | None = None
    step: Step | None = None
    effect: Effect | None = None
    failure: Failure | None = None


def stand(
    blocks: Sequence[Block], versions: Sequence[Pair], skipped: Mapping[int, str], reading: Reading
) -> Stand:
    """Read all Blocks anew. `skipped` are versions that cannot even be prepared, with the reason."""
    found = usable(blocks)
    asked = _question(found, versions, reading)
    if asked.sought is None:
        return Stand(asked.state, asked.step, None, asked.effect, asked.failure)
    left_out = {**_failing(found, versions, asked.sought), **skipped}
    kept = [v for v in range(len(versions)) if v not in left_out]
    figures = {v: _figures(found, versions[0], versions[v], asked.sought, reading) for v in kept[1:]}
    groups: list[Sequence[float]] = [(), *figures.values()]
    chances, probe = shares(groups), next_probe(groups)
    low, high = (likeliest(chances),) * 2 if probe is None else plausible(chances)
    is_over = probe is None or len(groups[probe]) >= reading.looks[-1]
    with_baselines = asked.sought is Sought.SPEED_UP
    return Stand(
        state=State.LOSS if probe is None else State.UNDECIDED,
        step=None if is_over or probe is None else Step(kept[probe], with_baselines),
        sought=asked.sought,
        effect=asked.effect,
        failure=asked.failure,
        figures=figures,
        chances=dict(zip(kept, chances, strict=True)),
        first=(kept[low - 1] + 1, kept[high]),
        skipped=left_out,
    )


def _question(blocks: Sequence[Block], versions: Sequence[Pair], reading: Reading) -> _Question:
    """Whether the last version is bad, and in what: in the cheaper figure first."""
    good, bad, last = versions[0], versions[-1], len(versions) - 1
    _, failure = to_blame(blocks, [bad.winner])
    if failure is not None:
        is_own = failure.reason in OWN_FAULTS
        state, sought = (State.FAULT, Sought.FAULT) if is_own else (State.UNMEASURED, None)
        return _Question(state, sought, failure=failure)
    winner = _figures(blocks, good, bad, Sought.WINNER, reading)
    kind, effect = reading.decide(winner)
    if reading.is_loss(kind, effect):
        return _Question(State.LOSS, Sought.WINNER, effect=effect)
    if kind is VerdictKind.UNDECIDED:
        step = Step(last, with_baselines=False) if len(winner) < reading.looks[-1] else None
        return _Question(State.UNDECIDED, step=step, effect=effect)
    _, failure = to_blame(blocks, [good.baseline, bad.baseline])
    if failure is not None:
        return _Question(State.UNMEASURED, effect=effect, failure=failure)
    gained = _figures(blocks, good, bad, Sought.SPEED_UP, reading)
    kind, of_gain = reading.decide(gained)
    if reading.is_loss(kind, of_gain):
        return _Question(State.LOSS, Sought.SPEED_UP, effect=of_gain)
    if kind is not VerdictKind.UNDECIDED:
        return _Question(State.SOUND, effect=effect)
    step = Step(last, with_baselines=True) if len(gained) < reading.looks[-1] else None
    return _Question(State.UNDECIDED, step=step, effect=effect)


def _failing(blocks: Sequence[Block], versions: Sequence[Pair], sought: Sought) -> dict[int, str]:
    """The versions between that were started twice and gave no figure."""
    found = {}
    for v in range(1, len(versions) - 1):
        pair = versions[v]
        arms = [pair.winner, pair.baseline] if sought is Sought.SPEED_UP else [pair.winner]
        _, failure = to_blame(blocks, arms)
        if failure is not None and not (sought is Sought.FAULT and failure.reason in OWN_FAULTS):
            found[v] = f"{failure.reason}, {failure.evidence}"
    return found


def _figures(
    blocks: Sequence[Block], good: Pair, other: Pair, sought: Sought, reading: Reading
) -> list[float]:
    """One figure of a version for each Block that has it."""
    found = (_figure(block, good, other, sought, reading) for block in blocks)
    return [figure for figure in found if figure is not None]


def _figure(block: Block, good: Pair, other: Pair, sought: Sought, reading: Reading) -> float | None:
    run = block.arm(other.winner)
    if sought is Sought.FAULT:
        if run is None or run.failure is None:
            return None if run is None else 0.0
        return FAULT_SEEN if run.failure.reason in OWN_FAULTS else None
    winner = _ratio(block, good.winner, other.winner, reading)
    if sought is Sought.WINNER:
        return winner
    return minus(winner, _ratio(block, good.baseline, other.baseline, reading))


def _ratio(block: Block, good: Point, other: Point, reading: Reading) -> float | None:
    a, b = measured(block, good), measured(block, other)
    return mean_log_speedup(a, b, reading.objective, reading.weights) if a and b else None
