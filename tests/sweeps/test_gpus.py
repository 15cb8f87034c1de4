"""GPUs through the whole pipeline: the stand-in engine under load, beside a scripted driver."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from analysis.verdict import conclude
from analysis.warmth import still_changing
from launchers.fake import FakeEngine
from launchers.fake_server import FakeEndpoint, Fault
from results.errors import UsageError
from results.reasons import Reason
from results.records import BASELINE, Block, GpuTelemetry, Phase, Point, Telemetry, Trial, TrialState
from results.store import RunFolder
from sweeps.opened import claim
from sweeps.prepare import prepare
from sweeps.sweep import Sweep
from sweeps.trial import trial_of
from tests.analysis.build import CHAT, FAST, arm, block, measurement
from tests.nvml import SERVER, STRANGER, Scripted, gpu
from tests.sweeps.test_block import PATIENT, POINT, blocks

UNDISTURBED = {**PATIENT, "foreign_cores": 100, "warm_up_s": 0}  # whatever else this machine does
ONE_CLASS = {"max_tokens": 20, "prompts_per_class": 2, "classes": ["chat"]}


@pytest.fixture(autouse=True)
def seen_by_the_driver() -> Iterator[None]:
    with patch.object(FakeEndpoint, "pids", lambda self: (SERVER,)):
        yield


def run(tmp_path: Path, fault: Fault | None = None, **changes: Any) -> tuple[Block, RunFolder]:
    settings = {"workload": ONE_CLASS, "patience": UNDISTURBED, **changes}
    run_block = blocks(tmp_path, fault, **settings)
    made = run_block([POINT], Phase.CONFIRM)
    return made, RunFolder(tmp_path / "run")


def test_every_window_has_its_gpus_and_every_arm_its_samples(tmp_path: Path, nvml: Scripted) -> None:
    nvml(gpu(), gpu(uuid="GPU-idle", processes="", utilisation=0))
    block, folder = run(tmp_path)
    assert block.invalid is None
    assert folder.blocks() == [block]
    for arm_run in block.arms:
        (found,) = arm_run.measurements
        (seen,) = found.telemetry.gpus
        assert (seen.uuid, seen.power_w, found.telemetry.gpu_mismatch) == ("GPU-aaaa", 300.0, "")
        assert found.energy_j == seen.energy_j
        assert found.joules_per_token == pytest.approx((seen.energy_j or 0) / 40)
        samples = folder.read_telemetry(arm_run.requests)
        assert len(samples) == seen.samples
        assert {(s.cell, s.uuid, s.power_w) for s in samples} == {("chat @ closed(1)", "GPU-aaaa", 300.0)}


def test_without_a_gpu_nothing_is_missing(tmp_path: Path) -> None:
    block, folder = run(tmp_path)
    assert block.invalid is None
    assert all(m.telemetry.gpus == () and m.energy_j is None for a in block.arms for m in a.measurements)
    assert not (folder.path / "telemetry").exists()
    assert folder.read_telemetry(block.arms[0].requests) == []


def test_a_gpu_is_warmed_up_until_it_is_flat(tmp_path: Path, nvml: Scripted) -> None:
    """Six degrees to go, one with each reading: one pass over the prompts is over long before."""
    nvml(gpu(temperature=64, heats_to=70))
    with patch("sweeps.arm.still_changing", lambda samples: still_changing(samples, span_s=0.3)):
        made, folder = run(tmp_path, patience={**UNDISTURBED, "warm_up_s": 30})
    assert made.warnings == ()
    measured = [s for a in made.arms for s in folder.read_telemetry(a.requests)]
    assert {s.temperature_c for s in measured} == {70.0}


def test_a_gpu_that_never_gets_flat_is_measured_and_told(tmp_path: Path, nvml: Scripted) -> None:
    nvml(gpu(temperature=0, heats_to=10_000))
    with patch("sweeps.arm.still_changing", lambda samples: still_changing(samples, span_s=0.2)):
        made, _ = run(tmp_path, patience={**UNDISTURBED, "warm_up_s": 0.4})
    assert made.invalid is None
    assert made.warnings == ("the GPUs were not flat after 0.4 s of warm-up: temperature",)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reasons": 0x40}, Reason.THROTTLED),
        ({"processes": f"{SERVER}:100,{STRANGER}:200"}, Reason.FOREIGN_PROCESS),
        ({"lost_after": 6}, Reason.GPU_LOST),
        ({"xid": 95}, Reason.GPU_ERROR),
    ],
)
def test_what_spoils_a_block_is_named_and_the_block_kept_apart(
    tmp_path: Path, nvml: Scripted, changes: dict[str, object], reason: Reason
) -> None:
    nvml(gpu(**changes))
    block, _ = run(tmp_path)
    assert block.invalid is not None
    assert block.invalid.reason is reason
    trial = trial_of(block, 1, POINT, "start", objective="tokens_per_s", limits={})
    assert (trial.state, trial.failure) == (TrialState.FAILED, block.invalid)


def test_a_hang_says_what_the_gpus_do(tmp_path: Path, nvml: Scripted) -> None:
    nvml(gpu(utilisation=100, power_mw=108_000))
    block, _ = run(tmp_path, Fault.HANGS)
    failure = next(a.failure for a in block.arms if a.point == POINT)
    assert failure is not None
    assert failure.reason is Reason.HANG
    assert "GPUs at 100% with 24% of their power limit and no token: a spin" in failure.evidence


def test_a_hang_without_gpus_says_only_what_is_known(tmp_path: Path) -> None:
    block, _ = run(tmp_path, Fault.HANGS)
    failure = next(a.failure for a in block.arms if a.point == POINT)
    assert failure is not None
    assert "GPU" not in failure.evidence


def test_tokens_per_joule_can_be_the_objective(tmp_path: Path, nvml: Scripted) -> None:
    nvml(gpu())
    block, _ = run(tmp_path, objective="tokens_per_joule")
    trial = trial_of(block, 1, POINT, "start", objective="tokens_per_joule", limits={})
    assert trial.state is TrialState.MEASURED
    ours, theirs = block.arm(POINT), block.baseline
    assert ours is not None and theirs is not None
    energies = [m.energy_j or 0.0 for m in (*ours.measurements, *theirs.measurements)]
    assert trial.log_speedup == pytest.approx(math.log(energies[1] / energies[0]))  # for as many tokens
    assert energies[1] > energies[0]  # the same power for a third of the time


def test_a_slow_but_frugal_point_is_not_stopped_early(tmp_path: Path, nvml: Scripted) -> None:
    nvml(gpu())
    slow = lambda point, _: 600.0 if point.is_baseline else 100.0  # noqa: E731
    made = blocks(tmp_path, speed=slow, objective="tokens_per_joule", patience=UNDISTURBED)
    assert made([POINT], Phase.SEARCH).candidates[0].stopped_at_ratio is None


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        ((), "there is no GPU"),
        ((gpu(energy_mj="!3", power_mw="!3"),), "the driver does not tell it of RTX 4090"),
    ],
)
def test_an_objective_that_cannot_be_measured_is_refused_before_anything_starts(
    nvml: Scripted, gpus: tuple[str, ...], why: str
) -> None:
    if gpus:
        nvml(*gpus)
    with pytest.raises(UsageError) as error:
        prepare(Sweep.model_validate({"engine": "fake", "objective": "tokens_per_joule"}))
    assert "tokens_per_joule needs GPUs that tell their energy or power" in str(error.value)
    assert why in str(error.value)
    assert "choose tokens_per_s" in str(error.value)


def test_power_is_enough_for_the_objective(nvml: Scripted) -> None:
    nvml(gpu(energy_mj="!3"))
    plan = prepare(Sweep.model_validate({"engine": "fake", "objective": "tokens_per_joule"}))
    host: Any = plan.environment()["host"]
    assert (host["gpus"][0]["uuid"], host["gpu_driver"], host["cuda_driver"]) == (
        "GPU-aaaa",
        "610.43",
        "13.1",
    )
    assert isinstance(plan.engine, FakeEngine)


@pytest.mark.parametrize("changes", [{"power_limit_mw": 300_000}, {"uuid": "GPU-bbbb"}])
def test_a_run_does_not_go_on_under_other_gpus(
    tmp_path: Path, nvml: Scripted, changes: dict[str, object]
) -> None:
    plan, folder = prepare(Sweep.model_validate({"engine": "fake"})), RunFolder(tmp_path / "run")
    folder.create()
    nvml(gpu())
    claim(folder, plan)
    folder.add_trial(Trial(1, Point("fake-ngram"), "start", TrialState.MEASURED, 0.0, {}, ()))
    claim(folder, plan)
    nvml(gpu(**changes))
    with pytest.raises(UsageError, match="what changed: GPUs or their power limits"):
        claim(folder, plan)


def on(energy_j: float | None) -> Telemetry:
    unknown = {} if energy_j else {"energy_j": "NoPermission"}
    return Telemetry(2.0, gpus=(GpuTelemetry("GPU-aaaa1111", "A", 10, energy_j=energy_j, unknown=unknown),))


def test_a_trial_without_energy_fails_with_the_reason() -> None:
    arms = (arm(BASELINE, measurement(telemetry=on(5.0))), arm(FAST, measurement(telemetry=on(None))))
    made = replace(block(0), arms=arms)
    trial = trial_of(made, 1, FAST, "start", objective="tokens_per_joule", limits={})
    assert (trial.state, trial.log_speedup) == (TrialState.FAILED, None)
    assert trial.failure is not None
    assert trial.failure.reason is Reason.ENERGY_UNKNOWN
    assert trial.failure.evidence == "energy not told by A GPU-aaaa1111 (NoPermission)"


def test_a_verdict_carries_the_warnings_of_its_gpus_once() -> None:
    capped = replace(on(5.0).gpus[0], power_limit_w=300.0, default_power_limit_w=450.0)
    telemetry = replace(on(5.0), gpus=(capped,))
    made = [block(n, (FAST, {CHAT: 0.2 + n / 100})) for n in range(4)]
    made = [
        replace(
            b,
            arms=tuple(
                replace(a, measurements=tuple(replace(m, telemetry=telemetry) for m in a.measurements))
                for a in b.arms
            ),
        )
        for b in made
    ]
    (verdict,) = conclude(made, [FAST], looks=[4])
    assert verdict.warnings == ("power limit not the default: 300 W on A GPU-aaaa1111 (default 450 W)",)
