"""A new version against the pinned one, in the same Blocks: a drift of the machine meets both alike."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from analysis.nightly.contrast import Contrast
from analysis.nightly.contrast_words import NAMES, by_how_much
from analysis.nightly.two_versions import Judged, State, judge
from analysis.words import factor
from launchers.containers.image import Told, silent
from results.errors import UsageError
from results.records import Effect, Phase, VerdictKind
from results.sharing import alone
from results.store import RunFolder
from sweeps.blocks import blocks_here
from sweeps.nightly.pin import Pin
from sweeps.nightly.version import Version, differences, environment_of, reading_of, version
from sweeps.now import Stage, write_stage
from sweeps.observer import Observer
from sweeps.opened import opened
from sweeps.outcome import CHECK_FILE
from sweeps.run import Clock, end
from sweeps.session import sessions_of, spent_s
from sweeps.sweep import Sweep

EXIT_CODES = {
    State.SOUND: 0,
    State.LOSS: 3,
    State.FAULT: 3,
    State.UNDECIDED: 4,
    State.UNMEASURED: 5,
}
CANDIDATE = "candidate"


@dataclass(frozen=True)
class Candidate:
    """The pinned version and the new one, resolved."""

    name: str
    old: Version
    new: Version
    changes: Sequence[str]

    @property
    def sweep(self) -> Sweep:
        return self.old.plan.sweep

    def environment(self) -> Mapping[str, object]:
        """Fingerprint of what is measured and where."""
        return environment_of((self.old, self.new), CANDIDATE)

    def notes(self) -> list[str]:
        """What to know before it starts."""
        told = [f"{v.name}: {note}" for v in (self.old, self.new) for note in v.plan.notes]
        return [f"{name}: OLD {a}, NEW {b}" for name, a, b in differences(self.old, self.new)] + told


def candidate(pin: Pin, changes: Sequence[str], told: Told = silent) -> Candidate:
    """The pinned version and the one with these changes. Raises UsageError, before anything is started."""
    old, new = version(pin, "OLD", told=told), version(pin, "NEW", changes, told)
    if not differences(old, new):
        raise UsageError(f"{', '.join(changes)}: nothing differs from the pinned version")
    return Candidate(f"{CANDIDATE}-{pin.name}", old, new, changes)


def run_candidate(
    asked: Candidate, folder: RunFolder, observer: Observer, stopped: Callable[[], bool]
) -> Judged:
    """Measure both versions until it is decided what became of the new one.

    Everything it finds out is in the folder, and a later start goes on there. Raises as
    `sweeps.run.run_sweep` does.
    """
    check_folder(folder, CANDIDATE)
    with opened(folder, asked, observer):
        for note in asked.notes():
            observer.note(note)
        return _measure(asked, folder, observer, stopped)


def check_folder(folder: RunFolder, kind: str) -> None:
    """Raises UsageError if the folder holds something else."""
    if folder.blocks() and folder.read_json(CHECK_FILE).get("kind") != kind:
        raise UsageError(
            f"{folder.path} holds the records of another command: name another folder with --run"
        )


def _measure(asked: Candidate, folder: RunFolder, observer: Observer, stopped: Callable[[], bool]) -> Judged:
    past = folder.blocks()  # which grows
    clock = Clock(asked.sweep, past, spent_s(sessions_of(folder), time.time()))

    def go_on() -> bool:
        return not stopped() and clock.may_confirm()

    old, new = asked.old.pair, asked.new.pair
    setups = {
        point.key: setup
        for pair, setup in ((old, asked.old.plan.setup(folder)), (new, asked.new.plan.setup(folder)))
        for point in (pair.baseline, pair.winner)
    }
    blocks = blocks_here(setups[old.baseline.key], past, alone(past), observer.arm, setups, again=go_on)
    run_block = partial(blocks, [old.winner, new.baseline, new.winner], Phase.CONFIRM, old.baseline)
    reading = reading_of(asked.sweep)
    judged = judge(past, old, new, reading)
    write_stage(folder, Stage.CONFIRM, judged.blocks, reading.looks[-1])
    observer.begin(Phase.CONFIRM, judged.blocks, reading.looks[-1])
    _write(folder, asked, judged)
    while not judged.is_settled and judged.blocks < reading.looks[-1] and go_on():
        run_block()
        judged = judge(past, old, new, reading)
        _write(folder, asked, judged)
        observer.look(judged.blocks, ())
        if said := standing(judged.contrasts):
            observer.note(said)
    if not stopped():
        end(folder, 0, clock)
    return judged


def standing(contrasts: Sequence[Contrast]) -> str:
    """Where every contrast stands, in one line; "" before the first look."""
    known = [c for c in contrasts if c.effect is not None]
    return "; ".join(f"{NAMES[c.name]} {_kind(c.kind)}{by_how_much(c)}" for c in known)


def _kind(kind: VerdictKind) -> str:
    return "open" if kind is VerdictKind.UNDECIDED else kind.value


def _write(folder: RunFolder, asked: Candidate, judged: Judged) -> None:
    folder.write_json(CHECK_FILE, {"kind": CANDIDATE, "name": asked.name, **document(asked, judged)})


def document(asked: Candidate, judged: Judged) -> dict[str, object]:
    """The result for other programs: ratios as factors, new / old."""
    return {
        "schema": 1,
        "state": judged.state.name,
        "exit_code": EXIT_CODES[judged.state],
        "sentence": judged.sentence,
        "finished": judged.is_settled or judged.blocks >= asked.sweep.confirm.looks[-1],
        "blocks": judged.blocks,
        "changes": list(asked.changes),
        "differences": [list(difference) for difference in differences(asked.old, asked.new)],
        "contrasts": {c.name: _contrast(c) for c in judged.contrasts},
        "failure": None
        if judged.failure is None
        else {
            "arm": judged.failed.label if judged.failed is not None else "",
            "reason": judged.failure.reason,
            "evidence": judged.failure.evidence,
        },
        "notes": list(judged.notes),
    }


def _contrast(contrast: Contrast) -> dict[str, object]:
    by_cell = {cell: ratio_of(effect) for cell, effect in contrast.by_cell.items()}
    return {"verdict": contrast.kind, **ratio_of(contrast.effect), "by_cell": by_cell}


def ratio_of(effect: Effect | None) -> dict[str, float | int | None]:
    """An interval as factors."""
    if effect is None:
        return {"ratio": None, "low": None, "high": None, "blocks": 0}
    ratio, low, high = (factor(log) for log in (effect.log_ratio, effect.low, effect.high))
    return {"ratio": ratio, "low": low, "high": high, "blocks": effect.blocks}
