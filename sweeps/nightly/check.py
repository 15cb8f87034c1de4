"""One night of the gate: measure what is pinned, judge it by the history, measure again after a breach."""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from analysis.nightly.explain import explain, since_pinned
from analysis.nightly.judgement import Judgement
from analysis.nightly.rule import breaches, judge
from analysis.nightly.segments import drift, earlier
from analysis.nightly.series import series, settings
from results.environment import host_hash
from results.errors import MeasurementInvalid
from results.history import History, open_history
from results.nights import SPEED_UP, Accepted, Night, NightKind, NightVerdict, kind_of
from results.records import Block, Failure, Phase, Point
from results.sharing import alone
from results.store import RunFolder
from sweeps.blocks import blocks_here
from sweeps.nightly.accept import read_accepted
from sweeps.nightly.fingerprint import segment_of, versions_of
from sweeps.nightly.pin import Pin, read_pin
from sweeps.now import Stage, write_stage
from sweeps.observer import Observer
from sweeps.opened import opened
from sweeps.prepare import Plan

NO_ACCIDENT = 2  # Blocks in which the winner has no figure, and there is no need for a third
EXIT_CODES = {
    NightVerdict.PASS: 0,
    NightVerdict.REGRESSION: 3,
    NightVerdict.INSUFFICIENT: 4,
    NightVerdict.CONFIG_DRIFT: 5,  # what is pinned is not what runs: nobody should miss it
    NightVerdict.INVALID: 5,
}


@dataclass(frozen=True)
class Gate:
    """What a night is measured with, and what it is judged by."""

    pin: Pin
    plan: Plan
    history: History
    machine: str
    accepted: Sequence[Accepted] = ()
    kind: NightKind = NightKind.CHECK

    @property
    def candidate(self) -> Point:
        """The pinned winner; for A/A the baseline under another name."""
        return self.pin.winner if self.kind is NightKind.CHECK else replace(self.pin.baseline, name="again")

    def as_pinned(self, night: Night) -> Night:
        """What was confirmed when it was pinned, as if it had been a night before this one."""
        pin = self.pin
        told = replace(night, segment=pin.segment, versions=pin.versions, effective=pin.effective)
        return replace(
            told, id="pinned", began_at=0.0, values=pin.expected, failure=None, verdict=NightVerdict.PASS
        )

    def tonight(self) -> Night:
        """Tonight before anything was measured."""
        pin, environment, now_at = self.pin, self.plan.environment(), time.time()
        return Night(
            id=uuid.uuid4().hex,
            pin=pin.name,
            kind=self.kind,
            machine=self.machine,
            began_at=now_at,
            ended_at=now_at,
            segment=segment_of(environment, pin.sweep, pin.baseline, pin.winner),
            versions=versions_of(environment),
            effective={},
        )


def gate_of(pinned: Path, history: str, machine: str, kind: NightKind) -> Gate:
    """Read and check all that a night needs. Raises UsageError, before anything is started."""
    pin = read_pin(pinned)
    plan = pin.plan()
    nights = open_history(history)
    return Gate(pin, plan, nights, machine or host_hash(), read_accepted(pinned), kind)


def run_night(gate: Gate, folder: RunFolder, observer: Observer, stopped: Callable[[], bool]) -> Judgement:
    """Measure, judge and record one night.

    What cannot be measured is a night too, with its failure. Stopped on the way, nothing is recorded:
    KeyboardInterrupt.
    """
    history = gate.history.nights(gate.pin.name)
    with opened(folder, gate.plan, observer):
        if gate.kind is NightKind.CHECK:  # then the folder has a report as any run has
            folder.write_json("finalists.json", {"points": [asdict(gate.candidate)]})
        arms = _Arms(gate, folder, observer, stopped)
        night = arms.measured(gate.tonight())
        if breaches(history, night, gate.accepted):
            observer.note("Something lies below its bound: measured again at once.")
            night = arms.measured_again(night)
        judged = _concluded(gate, history, judge(history, night, gate.accepted))
        gate.history.add(judged.night)
    return judged


def _concluded(gate: Gate, history: Sequence[Night], judged: Judgement) -> Judgement:
    """With its explanation. The first night of a machine is held against what was pinned."""
    night = judged.night
    if gate.kind is NightKind.CHECK and not earlier(history, night):
        pinned = gate.as_pinned(night)
        drifted = night.verdict is NightVerdict.INSUFFICIENT and drift([pinned], night)
        night = replace(night, verdict=NightVerdict.CONFIG_DRIFT) if drifted else night
        judged = replace(judged, night=replace(night, said=(*night.said, *since_pinned(pinned, night))))
    said = explain(history, judged)
    return replace(judged, night=replace(judged.night, said=said, ended_at=time.time()))


@dataclass
class _Arms:
    """The two arms of a night, measured in Blocks."""

    gate: Gate
    folder: RunFolder
    observer: Observer
    stopped: Callable[[], bool]

    def __post_init__(self) -> None:
        setup, past = self.gate.plan.setup(self.folder), self.folder.blocks()
        self._run_block = blocks_here(
            setup, past, alone(past), self.observer.arm, again=lambda: not self.stopped()
        )

    def measured(self, night: Night) -> Night:
        """The night with its figures, or with what went wrong."""
        pin, candidate = self.gate.pin, self.gate.candidate
        usable, failure = self._blocks()
        return replace(
            night,
            blocks=len(usable),
            values=self._values(usable),
            effective=settings(usable, {"baseline": pin.baseline, "winner": candidate}),
            failure=failure,
        )

    def measured_again(self, night: Night) -> Night:
        """The night with the figures of a second measurement."""
        usable, failure = self._blocks()
        if failure is not None:
            failure = Failure(failure.reason, f"measured again after a breach: {failure.evidence}")
        return replace(night, again=self._values(usable), failure=failure)

    def _values(self, usable: Sequence[Block]) -> dict[str, float]:
        gate, sweep = self.gate, self.gate.pin.sweep
        weights = sweep.weights.to_record()
        found = series(usable, gate.pin.baseline, gate.candidate, sweep.objective, weights)
        if gate.kind is NightKind.AA:
            return {name: value for name, value in found.items() if kind_of(name) == SPEED_UP}
        return found

    def _blocks(self) -> tuple[list[Block], Failure | None]:
        """As many usable Blocks as are pinned, or why there are not."""
        candidate, asked = self.gate.candidate, self.gate.pin.blocks
        usable: list[Block] = []
        failures: list[Failure] = []
        write_stage(self.folder, Stage.CONFIRM, 0, asked)
        self.observer.begin(Phase.CONFIRM, 0, asked)
        while len(usable) < asked and len(failures) < NO_ACCIDENT:
            try:
                block = self._run_block([candidate], Phase.CONFIRM, self.gate.pin.baseline)
            except MeasurementInvalid as error:
                return usable, Failure(error.reason, error.evidence)
            if self.stopped():
                raise KeyboardInterrupt
            run = block.arm(candidate)
            if block.invalid is None and run is not None:
                if run.failure is None:
                    usable.append(block)
                else:
                    failures.append(run.failure)
            self.observer.look(len(usable), ())
        return usable, failures[-1] if len(failures) == NO_ACCIDENT else None
