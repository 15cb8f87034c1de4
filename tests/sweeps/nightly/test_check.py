"""Nights of the gate on the stand-in engine: real HTTP, scripted speeds and faults, a real history."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.nightly.judgement import Judgement, State
from launchers.fake import FakeEngine
from launchers.fake_server import Fault
from results.history import open_history
from results.nights import BASELINE, SPEED_UP, Accepted, NightKind, NightVerdict
from results.reasons import Reason
from results.records import Point
from results.store import RunFolder
from sweeps.nightly.check import EXIT_CODES, Gate, gate_of, run_night
from sweeps.outcome import read_run
from tests.sweeps.test_run import Recorder

Speed = Callable[[Point, str], float]


def steady(point: Point, _: str) -> float:
    return 200.0 if point.is_baseline else 800.0


def slower(point: Point, _: str) -> float:
    """So much that a busy machine does not hide it."""
    return 200.0 if point.is_baseline else 300.0


def gate(pinned_file: Path, tmp_path: Path, engine: FakeEngine, kind: NightKind = NightKind.CHECK) -> Gate:
    made = gate_of(pinned_file, str(tmp_path / "history"), "one", kind)
    return replace(made, plan=replace(made.plan, engine=engine))


def night(made: Gate, tmp_path: Path, name: str = "night") -> Judgement:
    return run_night(made, RunFolder(tmp_path / name), Recorder(), lambda: False)


def add_past(made: Gate, nights: int, values: Mapping[str, float]) -> None:
    """Earlier nights with this much, and one per cent of noise."""
    for number in range(nights):
        noise = 1 + 0.01 * ((number * 7) % 5 - 2) / 2
        told = {name: value * noise for name, value in values.items()}
        past = replace(made.tonight(), id=f"past-{number}", began_at=number * 86400.0, values=told)
        made.history.add(replace(past, effective=made.pin.effective))


def test_the_first_night_has_nothing_to_compare_with(pinned_file: Path, tmp_path: Path) -> None:
    judged = night(gate(pinned_file, tmp_path, FakeEngine(steady)), tmp_path)
    assert judged.verdict is NightVerdict.INSUFFICIENT
    assert EXIT_CODES[judged.verdict] == 4
    assert 1.5 < judged.night.values[SPEED_UP] < 5
    (recorded,) = open_history(str(tmp_path / "history")).nights("guarded")
    assert recorded == judged.night
    assert recorded.blocks == 2 and recorded.machine == "one" and recorded.said
    report, _ = read_run(RunFolder(tmp_path / "night"))
    assert [v.point.method for v in report.verdicts] == ["fake-ngram"]  # a page as of any run


def test_a_night_like_the_others_passes(pinned_file: Path, tmp_path: Path) -> None:
    made = gate(pinned_file, tmp_path, FakeEngine(steady))
    first = night(made, tmp_path).night
    add_past(made, 14, {name: first.values[name] * 0.6 for name in (SPEED_UP, BASELINE)})
    judged = night(made, tmp_path, "other")
    assert judged.verdict is NightVerdict.PASS
    assert not judged.night.again


def test_a_slower_winner_is_measured_again_and_is_a_regression(pinned_file: Path, tmp_path: Path) -> None:
    made = gate(pinned_file, tmp_path, FakeEngine(slower))
    add_past(made, 20, {SPEED_UP: 4.0, BASELINE: 90.0})
    judged = night(made, tmp_path)
    assert judged.verdict is NightVerdict.REGRESSION
    assert EXIT_CODES[judged.verdict] == 3
    assert judged.night.breached == judged.night.alarms == (SPEED_UP,)
    assert SPEED_UP in judged.night.again
    assert {s.series for s in judged.series if s.state is State.REGRESSION} == {SPEED_UP}
    assert len(RunFolder(tmp_path / "night").blocks()) == 4


def test_a_breach_that_does_not_come_again_is_no_alarm(pinned_file: Path, tmp_path: Path) -> None:
    observer = Recorder()

    def slow_until_told(point: Point, _: str) -> float:
        if point.is_baseline:
            return 200.0
        return 1200.0 if any("measured again" in note for note in observer.notes) else 220.0

    made = gate(pinned_file, tmp_path, FakeEngine(slow_until_told))
    add_past(made, 20, {SPEED_UP: 2.0, BASELINE: 90.0})
    judged = run_night(made, RunFolder(tmp_path / "night"), observer, lambda: False)
    assert judged.verdict is NightVerdict.PASS
    assert judged.night.breached == (SPEED_UP,) and not judged.night.alarms


def test_an_accepted_shift_begins_anew(pinned_file: Path, tmp_path: Path) -> None:
    made = gate(pinned_file, tmp_path, FakeEngine(slower))
    add_past(made, 20, {SPEED_UP: 4.0, BASELINE: 90.0})
    accepted = [Accepted(19.5 * 86400, "all", "the new engine is safer")]
    judged = night(replace(made, accepted=accepted), tmp_path)
    assert judged.verdict is NightVerdict.INSUFFICIENT


@pytest.mark.parametrize("fault", [Fault.DOES_NOT_SPECULATE, Fault.GARBAGE])
def test_a_winner_that_does_nothing_or_nonsense_is_a_regression(
    pinned_file: Path, tmp_path: Path, fault: Fault
) -> None:
    engine = FakeEngine(steady, fault=lambda p: None if p.is_baseline else fault)
    judged = night(gate(pinned_file, tmp_path, engine), tmp_path)
    assert judged.verdict is NightVerdict.REGRESSION
    assert judged.night.failure is not None
    assert judged.night.failure.reason in (Reason.NOT_SPECULATING, Reason.INVALID_OUTPUT)
    assert judged.night.said


@pytest.mark.parametrize("broken", ["baseline", "winner", "both"])
def test_a_server_that_does_not_start_is_no_regression(
    pinned_file: Path, tmp_path: Path, broken: str
) -> None:
    def fault(point: Point) -> Fault | None:
        is_meant = broken == "both" or (broken == "baseline") == point.is_baseline
        return Fault.REFUSES_TO_START if is_meant else None

    judged = night(gate(pinned_file, tmp_path, FakeEngine(steady, fault=fault)), tmp_path)
    assert judged.verdict is NightVerdict.INVALID
    assert EXIT_CODES[judged.verdict] == 5
    assert judged.night.failure is not None and judged.night.failure.reason is Reason.CONFIG_REJECTED
    assert open_history(str(tmp_path / "history")).nights("guarded") == [judged.night]


def test_the_baseline_against_itself_is_a_night_of_its_own_kind(pinned_file: Path, tmp_path: Path) -> None:
    made = gate(pinned_file, tmp_path, FakeEngine(steady), NightKind.AA)
    judged = night(made, tmp_path)
    assert judged.night.kind is NightKind.AA
    assert judged.night.values[SPEED_UP] == pytest.approx(1, abs=0.5)
    assert set(judged.night.values) == {SPEED_UP}
    usual = night(gate(pinned_file, tmp_path, FakeEngine(steady)), tmp_path, "usual")
    assert usual.verdict is NightVerdict.INSUFFICIENT


def test_a_stopped_night_is_not_recorded(pinned_file: Path, tmp_path: Path) -> None:
    made = gate(pinned_file, tmp_path, FakeEngine(steady))
    with pytest.raises(KeyboardInterrupt):
        run_night(made, RunFolder(tmp_path / "night"), Recorder(), lambda: True)
    assert made.history.nights("guarded") == []


def _nights(pinned_file: Path, tmp_path: Path, machine: str, count: int) -> None:
    made = replace(gate(pinned_file, tmp_path, FakeEngine(steady)), machine=machine)
    for number in range(count):
        night(made, tmp_path, f"{machine}-{number}")


def test_a_killed_machine_leaves_a_readable_history(pinned_file: Path, tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(
        target=_nights, args=(pinned_file, tmp_path, "one", 100)
    )
    process.start()
    history = open_history(str(tmp_path / "history"))
    while not history.nights("guarded"):
        process.join(0.05)
        assert process.is_alive()
    process.join(0.3)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    known = history.nights("guarded")
    assert known
    after = night(gate(pinned_file, tmp_path, FakeEngine(steady)), tmp_path, "after")
    assert history.nights("guarded") == [*known, after.night]


def test_two_machines_are_judged_apart(pinned_file: Path, tmp_path: Path) -> None:
    made = gate(pinned_file, tmp_path, FakeEngine(steady))
    add_past(made, 20, {SPEED_UP: 30.0, BASELINE: 90.0})
    other = night(replace(made, machine="two"), tmp_path)
    assert other.verdict is NightVerdict.INSUFFICIENT
    assert night(made, tmp_path, "same").verdict is NightVerdict.REGRESSION


def test_a_server_with_other_settings_is_drift_not_regression(pinned_file: Path, tmp_path: Path) -> None:
    made = gate(pinned_file, tmp_path, FakeEngine(slower))
    other = replace(made.pin, effective={**made.pin.effective, "winner n": "16"})
    add_past(replace(made, pin=other), 20, {SPEED_UP: 4.0, BASELINE: 90.0})
    judged = night(made, tmp_path)
    assert judged.verdict is NightVerdict.CONFIG_DRIFT
    assert "16" in " ".join(judged.night.said)


def test_a_setting_that_a_new_version_adds_hides_no_regression(pinned_file: Path, tmp_path: Path) -> None:
    made = gate(pinned_file, tmp_path, FakeEngine(slower))
    fewer = {name: value for name, value in made.pin.effective.items() if name != "winner n"}
    add_past(replace(made, pin=replace(made.pin, effective=fewer)), 20, {SPEED_UP: 4.0, BASELINE: 90.0})
    assert night(made, tmp_path).verdict is NightVerdict.REGRESSION


def test_the_first_night_is_held_against_what_was_pinned(pinned_file: Path, tmp_path: Path) -> None:
    made = gate(pinned_file, tmp_path, FakeEngine(slower))
    other = replace(made.pin, effective={**made.pin.effective, "winner n": "16"}, expected={SPEED_UP: 4.0})
    judged = night(replace(made, pin=other), tmp_path)
    assert judged.verdict is NightVerdict.CONFIG_DRIFT
    said = " ".join(judged.night.said)
    assert "winner n 16 -> 4" in said
    assert "4.000x when pinned" in said
    second = night(gate(pinned_file, tmp_path, FakeEngine(steady)), tmp_path, "second")
    assert "pinned" not in " ".join(second.night.said)
