"""Duets on the stand-in: both arms at once, only where the baseline is equally fast on both sets."""

import json
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launchers.engines.engine import SlotDrafts
from launchers.fake import FakeEngine
from launchers.fake_server import Fault
from launchers.launcher import Endpoint
from results.errors import UsageError
from results.reasons import Reason
from results.records import BASELINE, Block, GpuTelemetry, Phase, Point, TrialState, VerdictKind
from results.sharing import Alone
from results.store import RunFolder
from sweeps.arm import Arm
from sweeps.blocks import Blocks, blocks_here
from sweeps.company import Company, at_once
from sweeps.duet import DUET_FILE, again, biases
from sweeps.outcome import read_run
from sweeps.prepare import prepare
from sweeps.run import run_sweep
from sweeps.status import gpus_of, status_of
from sweeps.sweep import Sweep, parse_sweep
from sweeps.trial import trial_of
from tests.records import arm, block, measurement
from tests.sweeps.test_run import Recorder, plan

POINT = Point("fake-ngram", {"n": 4, "m": 8})
OTHER = Point("fake-ngram", {"n": 2, "m": 8})
DUET = {"pairing": "duet", "duet": {"cores": [[0], [0]]}}
EQUAL = [0.001, -0.001, 0.001, -0.001]
MARGIN = {"looks": [3, 5], "finalists": 2, "same_margin": 0.2}  # wide: a test must not hang on a busy machine


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in has no process: cores are names to it, on a machine of any size."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setitem(DUET, "duet", {"cores": [[0], [1]]})


def sweep_with(
    tmp_path: Path, engine: FakeEngine | None = None, stop_after: int = 1000, **changes: object
) -> tuple[Recorder, RunFolder]:
    recorder, folder = Recorder(stop_after), RunFolder(tmp_path / "run")
    planned = plan(**{**DUET, "confirm": MARGIN, **changes})
    planned = replace(planned, engine=engine) if engine is not None else planned
    run_sweep(planned, folder, recorder, recorder.stopped)
    return recorder, folder


def told(folder: RunFolder) -> Any:
    (lane,) = json.loads((folder.path / DUET_FILE).read_text())["lanes"]
    return lane


def seats(block: Block) -> list[int | None]:
    return [arm.on_set for arm in block.arms]


def candidate_on(block: Block) -> int | None:
    return block.candidates[0].on_set


def test_equal_sets_are_used_at_once_and_swapped(tmp_path: Path) -> None:
    recorder, folder = sweep_with(tmp_path)
    assert told(folder)["state"] == "equal"
    assert any(note.startswith("duet: two servers are measured at once") for note in recorder.notes)
    blocks = [b for b in folder.blocks() if b.invalid is None]
    assert all(seats(b) == [0, 1] for b in blocks)
    for point in (POINT, OTHER):
        sides = [candidate_on(b) for b in blocks if b.phase is Phase.CONFIRM and b.arm(point)]
        assert len(sides) >= 3
        assert abs(sides.count(0) - sides.count(1)) <= 1
    report, code = read_run(folder)
    assert code == 0
    assert report.winner is not None
    assert report.winner.point == POINT
    assert any(note.startswith("duet: two servers") for note in report.notes)
    assert status_of(folder).duets == [told(folder)["conclusion"]]


def test_both_arms_are_under_load_until_the_slower_is_through(tmp_path: Path) -> None:
    started: list[str] = []

    def speed(point: Point, _: str) -> float:
        started.append(point.method)
        return 150.0 if point.is_baseline else 900.0

    run = checked_blocks(tmp_path, speed=speed)
    assert seats(run([POINT], Phase.CONFIRM)) == [0, 1]
    turns = [who for i, who in enumerate(started) if i == 0 or started[i - 1] != who]
    assert len(turns) > 2  # one after the other: two
    assert started.count(POINT.method) > started.count(BASELINE.method)  # it went on, though asked as much


def test_biased_sets_fall_back_to_one_after_the_other(tmp_path: Path) -> None:
    engine = FakeEngine(pinned=lambda cores: 0.5 if cores == (1,) else 1.0)
    recorder, folder = sweep_with(tmp_path, engine)
    assert told(folder)["state"] == "biased"
    assert told(folder)["effect"]["low"] > 0  # set 0 is the faster one
    assert any("the sets are biased" in note for note in recorder.notes)
    assert all(seats(b) == [0, 0] for b in folder.blocks())
    report, _ = read_run(folder)
    assert report.winner is not None
    assert report.winner.kind is VerdictKind.BETTER
    assert any("the sets are biased" in note for note in report.notes)


def test_the_comparison_of_the_sets_is_not_made_twice(tmp_path: Path) -> None:
    sweep_with(tmp_path, stop_after=1)
    before = told(RunFolder(tmp_path / "run"))
    recorder, folder = sweep_with(tmp_path)
    assert told(folder) == before
    assert before["conclusion"] in recorder.notes
    assert read_run(folder)[0].notes.count(before["conclusion"]) == 1


def test_sets_that_cannot_be_compared_are_not_used(tmp_path: Path) -> None:
    """One arm cannot start on set 1: the run goes on with set 0."""

    class NothingOnSet1(FakeEngine):
        def is_ready(self, endpoint: Endpoint) -> bool:
            if getattr(endpoint, "cores", ()) == (1,):
                endpoint.die(1, "out of memory")  # type: ignore[attr-defined]
            return super().is_ready(endpoint)

    recorder, folder = sweep_with(tmp_path, NothingOnSet1())
    assert any("could not be compared (" in n and "out of memory" in n for n in recorder.notes)
    assert told(folder)["log_ratios"] == []
    report, code = read_run(folder)
    assert code == 0
    assert all(seats(b) == [0, 0] for b in folder.blocks())
    assert report.winner is not None


class Unsteady(FakeEngine):
    """The whole machine changes its speed whenever a server has been measured."""

    def __init__(self) -> None:
        draw = random.Random(5)
        self._factors = [draw.choice([0.3, 1.0]) for _ in range(200)]
        self._measured = 0
        self._lock = threading.Lock()
        super().__init__(
            lambda point, _: self._factors[self._measured] * (400.0 if point.is_baseline else 560.0)
        )

    def drafts_by_slot(self, endpoint: Endpoint) -> Sequence[SlotDrafts]:
        with self._lock:
            self._measured += 1
        return ()


def test_what_slows_the_whole_machine_cancels_in_a_duet_alone(tmp_path: Path) -> None:
    widths = {}
    small: dict[str, Any] = {
        "space": {"fake-ngram": {"n": [4], "m": [8]}},
        "confirm": {**MARGIN, "looks": [4]},
    }
    for pairing, sets in (("duet", DUET["duet"]), ("adjacent", None)):
        _, folder = sweep_with(tmp_path / pairing, Unsteady(), **small, pairing=pairing, duet=sets)
        verdicts = [v for v in read_run(folder)[0].verdicts if v.effect is not None]
        widths[pairing] = max(v.effect.high - v.effect.low for v in verdicts if v.effect is not None)
        assert all(v.kind is VerdictKind.BETTER for v in verdicts) is (pairing == "duet")
    assert widths["duet"] < widths["adjacent"] / 4


def three_times(point: Point, _: str) -> float:
    return 300.0 if point.is_baseline else 900.0


def checked_blocks(
    tmp_path: Path,
    fault: Fault | None = None,
    speed: Callable[[Point, str], float] = three_times,
    **changes: object,
) -> Blocks:
    """Blocks of a Lane whose sets were found equal before."""
    content = {
        "engine": "fake",
        "workload": {"max_tokens": 40, "prompts_per_class": 3, "classes": ["code_edit", "chat"]},
        "patience": {
            **{"client_share": 1, "foreign_cores": 100, "min_window_s": 0, "stall_timeout_s": 1, "reruns": 0}
        },
        **DUET,
        **changes,
    }
    engine = FakeEngine(speed, fault=lambda point: fault if point == POINT else None)
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.write_json(DUET_FILE, {"lanes": [{"node": "", "log_ratios": EQUAL}]})
    prepared = replace(prepare(Sweep.model_validate(content)), engine=engine)
    return blocks_here(prepared.setup(folder), [], Alone(0), lambda phase, point: None)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.REFUSES_TO_START, Reason.CONFIG_REJECTED),
        (Fault.DIES_UNDER_LOAD, Reason.SERVER_DIED),
        (Fault.HANGS, Reason.HANG),
        (Fault.IGNORES_SETTING, Reason.IGNORED_SETTING),
        (Fault.GARBAGE, Reason.INVALID_OUTPUT),
    ],
)
def test_a_failing_arm_keeps_nobody_waiting(tmp_path: Path, fault: Fault, reason: Reason) -> None:
    block = checked_blocks(tmp_path, fault)([POINT], Phase.CONFIRM)
    assert seats(block) == [0, 1]
    assert block.invalid is None
    arm = block.arm(POINT)
    assert arm is not None
    assert arm.failure is not None
    assert arm.failure.reason is reason
    trial = trial_of(block, 1, POINT, "start", objective="tokens_per_s", limits={})
    assert (trial.state, trial.log_speedup) == (TrialState.FAILED, None)
    assert block.baseline is not None
    assert block.baseline.complete is (fault is Fault.GARBAGE)


def test_a_mistake_of_the_user_reaches_him(tmp_path: Path) -> None:
    run = checked_blocks(tmp_path, workload={"max_tokens": 5000, "classes": ["code_edit"]})
    with pytest.raises(UsageError, match=r"4096|context"):
        run([POINT], Phase.SEARCH)


def test_the_load_clients_of_both_count_for_each(tmp_path: Path) -> None:
    block = checked_blocks(tmp_path)([POINT], Phase.CONFIRM)
    one, other = ([m.telemetry.client_cores for m in arm.measurements] for arm in block.arms)
    assert one == other
    assert all(cores for cores in one)
    invalid = checked_blocks(
        tmp_path / "strict", patience={"client_share": 1e-9, "reruns": 0, "min_window_s": 0}
    )
    spoiled = invalid([POINT], Phase.CONFIRM).invalid
    assert spoiled is not None
    assert spoiled.reason is Reason.CLIENT_OVERHEAD


def test_several_candidates_are_no_duet(tmp_path: Path) -> None:
    block = checked_blocks(tmp_path)([POINT, OTHER], Phase.CONFIRM)
    assert seats(block) == [0, 0, 0]


def test_without_a_comparison_of_the_sets_nothing_runs_at_once(tmp_path: Path) -> None:
    run = checked_blocks(tmp_path)
    (tmp_path / "run" / DUET_FILE).unlink()
    fresh = checked_blocks(tmp_path / "other")
    assert seats(fresh([POINT], Phase.CONFIRM)) == [0, 1]
    assert seats(run([POINT], Phase.CONFIRM)) == [0, 1]  # it had read the file before
    folder = RunFolder(tmp_path / "third")
    folder.create()
    setup = plan(**DUET).setup(folder)
    assert seats(blocks_here(setup, [], Alone(0), lambda phase, point: None)([POINT], Phase.CONFIRM)) == [
        0,
        0,
    ]


def test_a_bias_that_shows_later_is_said(tmp_path: Path) -> None:
    run = checked_blocks(tmp_path)
    blocks = [run([POINT], Phase.CONFIRM) for _ in range(4)]
    assert biases(blocks, plan(**DUET).sweep) == [] or "not alike" in biases(blocks, plan(**DUET).sweep)[0]
    assert [candidate_on(b) for b in blocks].count(0) == 2
    slower = [_slowed(b, 0.8) for b in blocks]
    (said,) = biases(slower, plan(**DUET).sweep)
    assert said.startswith("the two sets of the duet are not alike: set 0 is +")


def _slowed(block: Block, factor: float) -> Block:
    """As if everything on set 1 ran at this share of its speed."""
    arms = [
        replace(
            arm,
            measurements=tuple(
                replace(m, tokens_per_s=(m.tokens_per_s or 0) * (factor if arm.on_set else 1.0))
                for m in arm.measurements
            ),
        )
        for arm in block.arms
    ]
    return replace(block, arms=tuple(arms))


def test_gpus_of_both_sets_are_counted() -> None:
    gpu = GpuTelemetry("GPU-0", "H200")
    one = measurement()
    with_gpu = replace(one, telemetry=replace(one.telemetry, gpus=(gpu,)))
    measured = [replace(arm(p, {}), measurements=(with_gpu,)) for p in (POINT, BASELINE)]
    assert gpus_of([block(0, Phase.SEARCH, measured)]) == 1
    seated = [replace(run, on_set=on) for on, run in enumerate(measured)]
    assert gpus_of([block(0, Phase.SEARCH, seated)]) == 2
    assert gpus_of([]) is None


def arms() -> list[Arm]:
    return [Arm(BASELINE, name, 1, lambda stats: None) for name in ("one", "other")]


def test_who_leaves_ends_the_wait_of_the_other() -> None:
    company = Company(lambda: None)
    one, other = arms()
    began = threading.Event()

    def leaves() -> bool:
        met = company.meet(1, other)
        assert began.wait(10)
        company.leave()
        return met

    def stays() -> list[bool]:
        first = company.meet(0, one)
        began.set()
        return [first, company.meet(0, one), company.meet(0, one)]

    assert at_once([stays, lambda: [leaves()]]) == [[True, False, False], [True]]
    assert not company.other_is_measured(0)


def test_an_error_in_one_thread_is_raised_when_all_have_ended() -> None:
    company = Company(lambda: None)
    one, _ = arms()
    waited = []

    def fails() -> None:
        company.leave()
        raise UsageError("this cannot be")

    def waits() -> None:
        waited.append(company.meet(0, one))

    with pytest.raises(UsageError, match="this cannot be"):
        at_once([fails, waits])
    assert waited == [False]


def test_each_window_is_measured_until_both_are_through() -> None:
    begun: list[int] = []
    company = Company(lambda: begun.append(1))
    one, other = arms()

    def run(who: int, arm: Arm) -> Callable[[], list[bool]]:
        def work() -> list[bool]:
            found = []
            for _ in range(2):
                assert company.meet(who, arm)
                found.append(company.other_is_measured(who))
                company.meet(who, arm)  # both have looked
                company.through(who)
            return found

        return work

    at_once([run(0, one), run(1, other)])
    assert len(begun) == 4
    company.through(0)
    company.through(1)
    assert not company.other_is_measured(0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("duet: {cores: [[0], [1]]}", "pairing: duet"),
        ("pairing: duet\nduet: {}", "name `gpus` or `cores`"),
        ("pairing: duet\nduet: {gpus: [[0], [1]], cores: [[0], [1]]}", "name `gpus` or `cores`"),
        ("pairing: duet\nduet: {cores: [[0]]}", "duet.cores"),
        ("pairing: duet\nbudget: {baseline_every: 3}", "baseline is in every Block"),
        (
            "pairing: duet\nlauncher: docker\ncontainer: {image: a}\nduet: {cores: [[0], [1]]}",
            "name gpus",
        ),
    ],
)
def test_mistakes_in_the_file_are_named(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_sweep(text)


def test_a_machine_without_two_sets_is_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="pairing: duet needs two equal sets"):
        plan(pairing="duet")
    with pytest.raises(UsageError, match="same size"):
        plan(pairing="duet", duet={"cores": [[0, 1], [2]]})


def test_the_second_baseline_has_a_name_of_its_own() -> None:
    side = Point("none", {"--x": 1}, name="A")
    assert again(side).key != side.key
    assert again(BASELINE).is_baseline
