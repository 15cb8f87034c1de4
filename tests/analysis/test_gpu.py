"""The GPUs of a Block judged: what a rerun may cure, what is worth a word, and what a hang looks like."""

from dataclasses import replace
from typing import Any

import pytest

from analysis.block import Rules, arm_failure, disturbance, judge
from analysis.gpu import energy_gap, gpu_fault, gpu_warnings, spin
from analysis.gpu_windows import merged_gpus
from analysis.summary import merged_telemetry
from results.reasons import MACHINE_FAULTS, Reason
from results.records import (
    BASELINE,
    ArmRun,
    EnergySource,
    GpuProcess,
    GpuTelemetry,
    Measurement,
    Point,
    Telemetry,
)
from tests.analysis.build import FAST, arm, measurement, request

GOOD = [request("a", text="a fine answer"), request("b", text="another answer")]
HEALTHY = GpuTelemetry(
    uuid="GPU-aaaa1111-2222",
    name="RTX 4090",
    samples=100,
    utilisation=0.98,
    memory_bytes=20 * 2**30,
    power_w=300.0,
    power_limit_w=450.0,
    default_power_limit_w=450.0,
    sm_clock_hz=2.5e9,
    temperature_c=71.0,
    energy_j=600.0,
    energy_source=EnergySource.COUNTER,
    processes=(GpuProcess(1, 2**30, True),),
)


def on(*gpus: GpuTelemetry, **other: Any) -> Telemetry:
    return Telemetry(2.0, gpus=gpus, **other)


def run_on(point: Point, *gpus: GpuTelemetry) -> ArmRun:
    return arm(point, measurement(telemetry=on(*gpus)))


@pytest.mark.parametrize(
    ("changes", "reason", "evidence"),
    [
        ({}, None, ""),
        ({"throttled": {"sw_power_cap": 1.0, "gpu_idle": 0.2, "sync_boost": 0.5}}, None, ""),
        ({"throttled": {"hw_thermal_slowdown": 0.05}}, None, ""),
        (
            {"throttled": {"hw_thermal_slowdown": 0.06, "hw_slowdown": 0.06}},
            Reason.THROTTLED,
            "RTX 4090 GPU-aaaa1111: hw_thermal_slowdown in 6%, hw_slowdown in 6% of 100 samples, up to 71 °C",
        ),
        ({"throttled": {"sw_thermal_slowdown": 0.5}}, Reason.THROTTLED, "sw_thermal_slowdown in 50%"),
        ({"throttled": {"hw_power_brake_slowdown": 0.5}}, Reason.THROTTLED, "hw_power_brake_slowdown in 50%"),
        (
            {"processes": (GpuProcess(7, 3 * 2**30, False, "python"),)},
            Reason.FOREIGN_PROCESS,
            "on RTX 4090 GPU-aaaa1111: process 7 (python) with 3072 MiB",
        ),
        ({"processes": (GpuProcess(7, None, False),)}, Reason.FOREIGN_PROCESS, "with unknown memory"),
        ({"processes": (GpuProcess(7, 0, False),)}, None, ""),
        ({"processes": (GpuProcess(7, 2**30, None),)}, None, ""),  # whose it is cannot be known
        ({"lost": True}, Reason.GPU_LOST, "fell away after 100 samples"),
        ({"xids": (79,)}, Reason.GPU_LOST, "fell away"),
        ({"xids": (13, 31, 43)}, None, ""),  # a program's own errors: its arm has failed
        ({"xids": (31, 48)}, Reason.GPU_ERROR, "GPU-aaaa1111: XID 48 (double-bit memory error)"),
        ({"xids": (140,)}, Reason.GPU_ERROR, "XID 140 (unrecovered memory error)"),
        ({"xids": (149,)}, Reason.GPU_ERROR, "XID 149 (NVLink error)"),
        ({"ecc_errors": 2}, Reason.GPU_ERROR, "2 new uncorrected memory errors (ECC)"),
        ({"ecc_errors": 0}, None, ""),
    ],
)
@pytest.mark.parametrize("disturbed", [BASELINE, FAST])
def test_what_spoils_a_block(
    changes: dict[str, Any], reason: Reason | None, evidence: str, disturbed: Point
) -> None:
    bad = replace(HEALTHY, **changes)
    arms = [run_on(p, bad if p is disturbed else HEALTHY) for p in (BASELINE, FAST)]
    found = judge(arms, {BASELINE.key: GOOD, FAST.key: GOOD}, Rules())
    assert (found.reason if found else None) is reason
    assert evidence in (found.evidence if found else "")
    assert reason is None or reason in MACHINE_FAULTS
    assert arm_failure(arms[1], GOOD, Rules()) is None  # never the candidate's fault


def test_the_server_of_the_other_arm_is_no_stranger() -> None:
    both_up = (GpuProcess(1, 2**30, True), GpuProcess(2, 2**30, False))
    ours = run_on(FAST, replace(HEALTHY, processes=both_up))
    theirs = run_on(BASELINE, replace(HEALTHY, processes=(GpuProcess(2, 2**30, True),)))
    assert judge([ours, theirs], {}, Rules()) is None
    alone = disturbance(ours, Rules())
    assert alone is not None
    assert alone.reason is Reason.FOREIGN_PROCESS


def test_evidence_names_arm_and_cell() -> None:
    found = disturbance(run_on(FAST, replace(HEALTHY, lost=True)), Rules())
    assert found is not None
    assert found.evidence.startswith("eagle3 num_steps=3, chat @ closed(1): RTX 4090")


def test_a_limit_changed_between_the_arms_confounds_them() -> None:
    arms = [run_on(BASELINE, HEALTHY), run_on(FAST, replace(HEALTHY, power_limit_w=300.0))]
    found = judge(arms, {BASELINE.key: GOOD}, Rules())
    assert found is not None
    assert (found.reason, found.evidence) == (
        Reason.CONFOUNDED,
        "power limit of RTX 4090 GPU-aaaa1111: 450 W for none, 300 W for eagle3 num_steps=3",
    )


CAPPED = replace(HEALTHY, throttled={"sw_power_cap": 0.6})


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        (HEALTHY, HEALTHY, ()),
        (
            CAPPED,
            CAPPED,
            ("1 of 1 GPUs; RTX 4090 GPU-aaaa1111 in 60% of the baseline's samples, in 60% here",),
        ),
        (HEALTHY, CAPPED, ("in 0% of the baseline's samples, in 60% here: the limit weighs on one of them",)),
        (HEALTHY, replace(HEALTHY, sm_clock_hz=2.44e9), ()),
        (
            HEALTHY,
            replace(HEALTHY, sm_clock_hz=2.25e9),
            ("mean SM clock of RTX 4090 GPU-aaaa1111: 2500 MHz for the baseline, 2250 MHz here (-10%)",),
        ),
        (HEALTHY, replace(HEALTHY, sm_clock_hz=None), ()),
        (
            replace(HEALTHY, power_limit_w=300.0),
            replace(HEALTHY, power_limit_w=300.0),
            ("power limit not the default: 300 W on RTX 4090 GPU-aaaa1111 (default 450 W)",),
        ),
        (HEALTHY, replace(HEALTHY, power_limit_w=0.0), ()),  # not told, as by a virtual GPU
        (HEALTHY, replace(HEALTHY, default_power_limit_w=0.0), ()),
        (
            HEALTHY,
            replace(HEALTHY, xids=(31,)),
            ("errors of a program on the GPUs: XID 31 on RTX 4090 GPU-aaaa1111",),
        ),
        (HEALTHY, replace(HEALTHY, uuid="GPU-bbbb"), ("the baseline ran on other GPUs: GPU-aaaa1111-2222",)),
    ],
)
def test_what_is_worth_a_word(theirs: GpuTelemetry, ours: GpuTelemetry, said: tuple[str, ...]) -> None:
    notes = gpu_warnings(on(theirs), on(ours))
    assert len(notes) == len(said)
    for note, part in zip(notes, said, strict=True):
        assert part in note
    assert gpu_fault(on(ours), "here", ()) is None


def test_a_mismatch_is_said_once() -> None:
    wrong = on(HEALTHY, gpu_mismatch="GPU_MISMATCH: the server is on GPU-b")
    assert gpu_warnings(wrong, wrong) == ("GPU_MISMATCH: the server is on GPU-b",)
    assert gpu_warnings(Telemetry(1.0), Telemetry(1.0)) == ()


SPINNING = replace(HEALTHY, utilisation=1.0, power_w=108.0)


@pytest.mark.parametrize(
    ("gpus", "sentence"),
    [
        (
            (SPINNING, SPINNING),
            "GPUs at 100% with 24% of their power limit and no token:"
            " a spin, e.g. a collective that waits for a rank that never comes",
        ),
        ((SPINNING, replace(HEALTHY, utilisation=0.0, power_w=30.0)), "1 of 2 GPUs at 100% with 24%"),
        ((replace(SPINNING, power_w=190.0),), ""),  # 42 %: it computes something
        ((replace(SPINNING, utilisation=0.9),), ""),
        ((SPINNING, HEALTHY), ""),  # one of them works
        ((replace(SPINNING, power_w=None),), ""),
        ((replace(SPINNING, power_limit_w=None),), ""),
        ((replace(SPINNING, utilisation=None),), ""),
        ((), ""),
    ],
)
def test_a_spin_is_busy_at_little_power(gpus: tuple[GpuTelemetry, ...], sentence: str) -> None:
    found = spin(gpus)
    assert found.startswith(sentence)
    assert bool(found) == bool(sentence)


def test_several_windows_as_one() -> None:
    short = replace(
        HEALTHY,
        samples=10,
        power_w=100.0,
        temperature_c=80.0,
        throttled={"sw_power_cap": 1.0},
        energy_j=100.0,
        energy_source=EnergySource.INTEGRATED_POWER,
        memory_bytes=2**30,
        ecc_errors=1,
        xids=(13,),
        processes=(GpuProcess(1, 2**31, True), GpuProcess(9, 5, None)),
        unknown={"pcie_tx_bytes_per_s": "NotSupported"},
    )
    long = replace(HEALTHY, samples=90, ecc_errors=2, processes=(GpuProcess(1, 1, True),))
    telemetry = merged_telemetry([Telemetry(1.0, gpus=(short,)), Telemetry(3.0, gpus=(long,))])
    (found,) = telemetry.gpus
    assert (telemetry.wall_s, found.samples, found.power_w) == (4.0, 100, 250.0)
    assert (found.temperature_c, found.memory_bytes) == (80.0, 20 * 2**30)
    assert found.throttled == {"sw_power_cap": pytest.approx(0.1)}
    assert (found.energy_j, found.energy_source) == (700.0, EnergySource.INTEGRATED_POWER)
    assert (found.ecc_errors, found.xids) == (3, (13,))
    assert found.processes == (GpuProcess(1, 2**31, True), GpuProcess(9, 5, None))
    assert found.unknown == {"pcie_tx_bytes_per_s": "NotSupported"}


def test_a_figure_unknown_in_one_window_is_unknown_in_all() -> None:
    windows = [on(HEALTHY), on(replace(HEALTHY, energy_j=None, power_w=None, sm_clock_hz=None))]
    (found,) = merged_gpus(windows)
    assert (found.energy_j, found.power_w, found.sm_clock_hz) == (None, None, None)
    assert merged_gpus([Telemetry(1.0), Telemetry(1.0)]) == ()


def test_every_gpu_keeps_its_own_windows() -> None:
    other = replace(HEALTHY, uuid="GPU-bbbb", energy_j=1.0)
    found = merged_gpus([on(HEALTHY, other), on(HEALTHY)])
    assert [(g.uuid, g.energy_j) for g in found] == [("GPU-aaaa1111-2222", 1200.0), ("GPU-bbbb", 1.0)]
    moved = merged_telemetry([on(HEALTHY), on(HEALTHY, gpu_mismatch="GPU_MISMATCH: x")])
    assert moved.gpu_mismatch == "GPU_MISMATCH: x"


def measured(telemetry: Telemetry, **other: Any) -> Measurement:
    return measurement(telemetry=telemetry, **other)  # 200 tokens, 100 of them for each of two prompts


def test_energy_per_token_counts_every_token_of_the_window() -> None:
    found = measured(on(HEALTHY, replace(HEALTHY, energy_j=400.0)), output_tokens=50)  # the steady part
    assert (found.energy_j, found.joules_per_token, found.tokens_per_joule) == (1000.0, 5.0, 0.2)


@pytest.mark.parametrize(
    ("telemetry", "other", "gap"),
    [
        (Telemetry(2.0), {}, "no GPU was seen at work for the server"),
        (
            on(HEALTHY, replace(HEALTHY, energy_j=None, unknown={"energy_j": "GpuIsLost"})),
            {},
            "energy not told by RTX 4090 GPU-aaaa1111 (GpuIsLost)",
        ),
        (on(HEALTHY, gpu_mismatch="GPU_MISMATCH: x"), {}, "GPU_MISMATCH: x"),
        (on(HEALTHY), {"failed": 1}, ""),
        (on(HEALTHY), {"tokens_by_prompt": {}}, ""),
    ],
)
def test_energy_that_is_not_known_is_no_number(telemetry: Telemetry, other: dict[str, Any], gap: str) -> None:
    found = measured(telemetry, **other)
    assert (found.joules_per_token, found.tokens_per_joule) == (None, None)
    assert energy_gap(telemetry) == gap
