"""What the report says of the hardware: GPUs and energy where there are any, the host everywhere."""

import json
from dataclasses import replace

from analysis import hardware, report
from analysis.report_input import ReportInput
from results.records import EnergySource, GpuTelemetry, Measurement, Telemetry
from tests.analysis import samples
from tests.analysis.test_report import Page
from tests.analysis.test_terminal import shown

CARD = GpuTelemetry(
    uuid="GPU-aaaa1111-2222",
    name="RTX 4090",
    samples=100,
    utilisation=0.98,
    memory_bytes=20 * 2**30,
    power_w=312.0,
    power_limit_w=450.0,
    default_power_limit_w=450.0,
    sm_clock_hz=2.5e9,
    temperature_c=71.0,
    throttled={"sw_power_cap": 0.25, "gpu_idle": 0.5},
    energy_j=samples.OUTPUT_TOKENS * 2.0,
    energy_source=EnergySource.COUNTER,
    pcie_tx_bytes_per_s=12.5e6,
    pcie_rx_bytes_per_s=3e6,
)


def with_gpus(sample: ReportInput, *baseline: GpuTelemetry, thrift: float = 0.8) -> ReportInput:
    """The same run on GPUs that spend 2 J a token without speculation, and `thrift` of it with."""

    def on(telemetry: Telemetry, share: float) -> Telemetry:
        gpus = tuple(replace(g, energy_j=g.energy_j and share * g.energy_j) for g in baseline or (CARD,))
        return replace(telemetry, gpus=gpus, server_cores=1.5, cores=32)

    blocks = [
        replace(
            block,
            arms=tuple(
                replace(
                    arm,
                    measurements=tuple(
                        replace(m, telemetry=on(m.telemetry, 1.0 if arm.point.is_baseline else thrift))
                        for m in arm.measurements
                    ),
                )
                for arm in block.arms
            ),
        )
        for block in sample.blocks
    ]
    return replace(sample, blocks=blocks)


def without_gpus(sample: ReportInput) -> ReportInput:
    def off(measurement: Measurement) -> Measurement:
        return replace(measurement, telemetry=replace(measurement.telemetry, gpus=()))

    arms = [
        tuple(replace(a, measurements=tuple(map(off, a.measurements))) for a in b.arms) for b in sample.blocks
    ]
    return replace(sample, blocks=[replace(b, arms=own) for b, own in zip(sample.blocks, arms, strict=True)])


def test_each_gpu_of_each_configuration_has_its_row() -> None:
    page = Page(report.html(with_gpus(samples.better())))
    for label in ("none", samples.NGRAM.label):
        assert [
            label,
            "RTX 4090 GPU-aaaa1111",
            "98\N{NO-BREAK SPACE}%",
            "20.0 GiB",
            "312 of 450 W",
            "2500 MHz",
            "71 °C",
            "sw_power_cap 25\N{NO-BREAK SPACE}%",
            "12.5 out, 3.0 in MB/s",
        ] in page.rows
    assert hardware.NO_GPU not in page.text


def test_energy_per_token_stands_beside_the_baselines() -> None:
    found = with_gpus(samples.better())
    rows = Page(report.html(found)).rows
    assert ["none", "2.00 J", "0.500", "1.00x the tokens per joule", "counter"] in rows
    assert [samples.NGRAM.label, "1.60 J", "0.625", "1.25x the tokens per joule", "counter"] in rows
    assert "| none | 2.00 J | 0.500 | 1.00x the tokens per joule | counter |" in report.markdown(found)
    assert "RTX 4090 at 312 W; 1.60 J per token, baseline 2.00 J" in shown(found)


def test_energy_that_a_window_did_not_tell_is_unknown() -> None:
    silent = replace(CARD, uuid="GPU-bbbb", energy_j=None, energy_source=EnergySource.UNKNOWN)
    found = with_gpus(samples.better(), CARD, silent)
    assert ["none", "unknown", "unknown", "unknown", "counter, unknown"] in Page(report.html(found)).rows
    assert "2 x RTX 4090 at 624 W; energy unknown" in shown(found)


def test_what_the_driver_refused_is_said_with_its_word() -> None:
    bare = GpuTelemetry(
        "GPU-gb10",
        "GB10",
        10,
        shared_memory_bytes=2**34,
        power_w=11.17,
        unknown={"sm_clock_hz": "NoPermission", "memory_bytes": "NotSupported"},
    )
    (row, *_) = hardware.gpus(with_gpus(samples.better(), bare)).rows
    said = [entry.text for entry in row]
    assert said[2:6] == ["unknown", "16.0 GiB shared with the host", "11 W", "unknown (NoPermission)"]


def test_without_a_gpu_one_line_says_so_and_the_host_stands_in_its_place() -> None:
    found = without_gpus(samples.better())
    page, text = Page(report.html(found)), report.markdown(found)
    assert page.text.count(hardware.NO_GPU) == text.count(hardware.NO_GPU) == 1
    assert hardware.gpus(found).rows == hardware.energy(found).rows == ()
    assert [row[0].text for row in hardware.host(found).rows] == ["none", samples.NGRAM.label]
    assert "Hardware    no GPU" in shown(found)


def test_the_terminal_says_what_the_host_did_without_a_gpu() -> None:
    found = without_gpus(with_gpus(samples.better()))
    assert hardware.in_short(found) == "no GPU; the server kept 1.50 of 32 cores busy"


def test_a_run_that_measured_nothing_has_no_hardware() -> None:
    nothing = samples.partial(0)
    assert hardware.in_short(nothing) == ""
    assert hardware.NO_GPU not in report.html(nothing)
    assert hardware.NO_GPU not in report.markdown(nothing)


def test_cautions_that_the_verdict_does_not_say_stand_with_the_hardware() -> None:
    limited = replace(CARD, power_limit_w=300.0)
    searching = with_gpus(samples.partial(3), limited)
    caution = "power limit not the default: 300 W on RTX 4090 GPU-aaaa1111 (default 450 W)"
    assert Page(report.html(searching)).text.count(caution) == 1
    assert caution in report.markdown(searching).replace("\\", "")
    said = replace(samples.better().verdicts[0], warnings=(caution,))
    confirmed = with_gpus(replace(samples.better(), winner=said, verdicts=(said,)), limited)
    assert Page(report.html(confirmed)).text.count(caution) == 2  # on top, and in the table of finalists


def test_other_programs_get_the_figures() -> None:
    baseline, ours, *_ = json.loads(report.as_json(with_gpus(samples.better())))["hardware"]
    assert (baseline["configuration"], baseline["joules_per_token"]) == ("none", 2.0)
    assert ours["gpus"][0]["uuid"] == "GPU-aaaa1111-2222"
    assert ours["gpus"][0]["energy_source"] == "counter"


def test_where_energy_is_the_objective_nothing_is_called_faster() -> None:
    found = with_gpus(replace(samples.better(), objective="tokens_per_joule"))
    page, text = Page(report.html(found)).text, shown(found)
    assert "1.21x the tokens per joule of the same server without speculation" in page
    assert "Output tokens per joule of GPU energy of a configuration divided by those of the baseline" in page
    assert "more frugal" in page and "less frugal" in page and "more frugal" in text
