"""What is said of a change, by what the servers without and with it accepted."""

import json
from pathlib import Path

import pytest

from launchers.engines.checkpoint import read_checkpoint
from launchers.engines.wiring import Drafting
from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.records import ArmRun, Block, Failure, Phase, Point
from results.store import RunFolder
from results.wiring import Fix
from sweeps.doctor.patient import Patient, plan_of_point
from sweeps.doctor.verify import Accepted, Verified, exit_code, lines, verify
from sweeps.sides import Comparison
from sweeps.sweep import Sweep
from tests.analysis import samples
from tests.rigs.pair.replay import HERE as PAIR
from tests.sweeps.test_run import Recorder

DEAD = Accepted(None, "CRASH_UNDER_LOAD: IndexError")


@pytest.mark.parametrize(
    ("before", "after", "code", "said"),
    [
        (Accepted(1.4), Accepted(3.1), 0, "The change raises what is accepted."),
        (Accepted(1.0, "BROKEN_DRAFTER: slot 0"), Accepted(1.5), 0, "The change raises what is accepted."),
        (DEAD, Accepted(3.1), 0, "The change raises what is accepted."),
        (DEAD, Accepted(1.0), 4, "The change does not raise what is accepted."),
        (Accepted(3.1), Accepted(3.11), 4, "The change does not raise what is accepted."),
        (Accepted(3.1), DEAD, 5, "What the change does could not be measured."),
    ],
)
def test_what_a_change_does(before: Accepted, after: Accepted, code: int, said: str) -> None:
    verified = Verified(before, after, None)
    assert exit_code(verified) == code
    assert list(lines(verified))[-1] == said


def test_each_side_is_told_with_what_went_wrong() -> None:
    told = list(lines(Verified(DEAD, Accepted(3.1), None, "A cannot be measured: IndexError")))
    assert told[:3] == [
        "Speed was not compared: A cannot be measured: IndexError",
        "as it is: CRASH_UNDER_LOAD: IndexError",
        "changed: 3.10 tokens a round",
    ]
    broken = Verified(Accepted(1.0, "BROKEN_DRAFTER: slot 0"), Accepted(None), RunFolder(Path("run")))
    assert list(lines(broken))[:2] == [
        "as it is: 1.00 tokens a round; BROKEN_DRAFTER: slot 0",
        "changed: not measured",
    ]


class Servers:
    """In place of servers: which sides were measured, and how that ended."""

    def __init__(self, lengths: dict[str, float], failing: str = "") -> None:
        self.lengths, self.failing = lengths, failing
        self.measured: list[tuple[str, ...]] = []

    def __call__(self, compared: Comparison, folder: RunFolder, *_: object) -> None:
        givens = [side.given for side in compared.sides]
        self.measured.append(tuple(givens))
        assert len(givens) == 2 or compared.sweep.pairing == "adjacent"  # alone it has nobody to wait for
        folder.path.mkdir(parents=True)
        arms = [
            samples.arm(side.point, (0.0,) * len(samples.CELLS), self.lengths[side.given])
            for side in compared.sides
            if side.given != self.failing
        ]
        dead = Failure(Reason.START_FAILED, "IndexError")
        if self.failing in givens:
            point = compared.sides[givens.index(self.failing)].point
            arms = [ArmRun(point, (), 0.0, 0.0, 0.0, {}, (), failure=dead)]
        folder.add_block(Block(0, Phase.CONFIRM, 1.0, 2.0, "prompts", tuple(arms), {}, None))
        if self.failing in givens:
            raise MeasurementInvalid(dead.reason, f"cannot be measured: {dead.evidence}")


@pytest.fixture
def patient(tmp_path: Path) -> Patient:
    read = read_checkpoint(PAIR / "target"), read_checkpoint(PAIR / "head")
    plan = plan_of_point(
        Sweep.model_validate({"engine": "fake", "pairing": "together"}), Point("fake-ngram", {"n": 4, "m": 8})
    )
    (point,) = plan.space.points.values()
    return Patient(Drafting(*read, "sglang", "", "EAGLE3"), plan, point)


@pytest.mark.parametrize(
    ("failing", "measured", "speeds_compared"),
    [
        ("", [("as it is", "changed")], True),
        ("as it is", [("as it is", "changed"), ("changed",)], False),
    ],
)
def test_a_server_that_fails_as_it_is_leaves_the_changed_one_alone(
    failing: str,
    measured: list[tuple[str, ...]],
    speeds_compared: bool,
    patient: Patient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = Servers({"as it is": 1.4, "changed": 3.1}, failing)
    monkeypatch.setattr("sweeps.doctor.verify.run_comparison", servers)
    fix = Fix("another set", config={"norm_output": True})
    verified = verify(patient, fix, RunFolder(tmp_path), Recorder(), lambda: False)
    assert servers.measured == measured
    assert (verified.folder is not None) is speeds_compared
    assert verified.changed.length is not None and verified.changed.length > 2
    assert verified.as_it_is.length is None if failing else (verified.as_it_is.length or 0) < 2
    assert verified.as_it_is.failure == ("START_FAILED: IndexError" if failing else "")
    assert exit_code(verified) == 0
    mended = json.loads((tmp_path / "doctor/mended/config.json").read_text())
    assert mended["norm_output"] is True
