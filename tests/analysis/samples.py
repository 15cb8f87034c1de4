"""Synthetic runs to draw: `python -m tests.analysis.samples FOLDER` writes their pages for a look."""

import math
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.excerpt import excerpt
from analysis.report import ReportInput, html, markdown
from analysis.timeline import Timeline
from results.reasons import Reason
from results.records import (
    BASELINE,
    Acceptance,
    AcceptanceState,
    ArmRun,
    Block,
    Cell,
    Effect,
    EnergySource,
    Failure,
    GpuTelemetry,
    KnobValue,
    Measurement,
    OutputCheck,
    Phase,
    Point,
    Quantiles,
    SpecCounters,
    Telemetry,
    Trial,
    TrialState,
    Verdict,
    VerdictKind,
)
from tests.analysis import clusters, maps
from tests.analysis.load_samples import LOG, over_time

CLASSES = ("code edit", "extraction", "reasoning", "chat", "translation")
CELLS = tuple(Cell(c, "closed(4)") for c in CLASSES)
CLASS_GAINS = (0.17, 0.09, 0.02, -0.09, -0.04)
BASE_TOKENS_PER_S = 88.0
OUTPUT_TOKENS = 6144  # of every window
NGRAM = Point("ngram-simple", {"size_n": 6, "size_m": 12})
DRAFT = Point("draft-model", {"n_max": 4, "p_min": 0.6})
CACHE = Point("ngram-cache", {"n_max": 8})
COMMAND = (
    "llama-server --model /models/Qwen3-8B-Q4_K_M.gguf --ctx-size 8192 --parallel 4 --port 8080 "
    "--spec-type ngram-simple --spec-ngram-size-n 6 --spec-ngram-size-m 12"
)
BASELINE_COMMAND = COMMAND.partition(" --spec-type")[0]
ENVIRONMENT: dict[str, object] = {
    "engine": {"name": "llama.cpp", "build": "b7204", "digest": "sha256:5f2c9a"},
    "model": {"file": "Qwen3-8B-Q4_K_M.gguf", "sha256": "98e1a0"},
    "host": {"cpu": "AMD EPYC 9354", "cores": 32, "memory_bytes": 270582939648, "governor": None},
    "gpus": [{"name": "RTX 4090", "power_limit_w": 450.0}, {"name": "RTX 4090", "power_limit_w": 450.0}],
    "flags": ["avx512", "amx"],
}


GPUS = tuple(
    GpuTelemetry(
        f"GPU-{i}",
        "RTX 4090",
        600,
        utilisation=0.96,
        memory_bytes=17 * 2**30,
        power_w=318.0 + i,
        power_limit_w=450.0,
        sm_clock_hz=2.5e9,
        temperature_c=66.0 + i,
        throttled={"sw_power_cap": 0.02},
        energy_j=19000.0,
        energy_source=EnergySource.COUNTER,
        pcie_tx_bytes_per_s=2.1e7,
        pcie_rx_bytes_per_s=4.4e7,
    )
    for i in range(2)
)
TELEMETRY = Telemetry(60.0, 1.42, 0.06, 0.03, 0.0, 0.01, 0.0, 6 * 2**30, 3.2e9, 32, GPUS)


def quantiles(p50: float) -> Quantiles:
    return Quantiles(p50, p50 * 1.6, p50 * 2.3)


def acceptance(point: Point, length: float) -> Acceptance:
    if point.is_baseline:
        return Acceptance(AcceptanceState.NOT_SPECULATING)
    first = min(0.95, 0.35 + 0.14 * length)
    shares = tuple(round(first * 0.82**i, 4) for i in range(6))
    drafts = round(OUTPUT_TOKENS / length)  # one in every verify step
    positions = tuple(round(share * drafts) for share in shares)
    counters = SpecCounters(drafts, 6 * drafts, sum(positions), positions)
    return Acceptance(AcceptanceState.MEASURED, "timings", counters, 0.4, None, length, shares)


def measurement(cell: Cell, point: Point, tokens_per_s: float, length: float) -> Measurement:
    tpot_s = 4 / tokens_per_s
    return Measurement(
        cell=cell,
        requests=24,
        failed=0,
        first_error=None,
        output_tokens=OUTPUT_TOKENS,
        wall_s=6144 / tokens_per_s,
        tokens_per_s=tokens_per_s,
        mean_request_tokens_per_s=tokens_per_s / 4,
        ttft_s=quantiles(0.21 if point.is_baseline else 0.225),
        tpot_s=quantiles(tpot_s),
        chunk_gap_s=quantiles(tpot_s if point.is_baseline else tpot_s * length * 0.9),
        end_to_end_s=quantiles(256 * tpot_s),
        concurrency=3.9,
        empty_share=0.0,
        truncated_share=0.4,
        degenerate_share=0.0,
        tokens_by_prompt={"p1": OUTPUT_TOKENS},
        acceptance=acceptance(point, length),
        telemetry=TELEMETRY,
    )


def arm(point: Point, logs: Sequence[float], length: float) -> ArmRun:
    measurements = [
        measurement(cell, point, BASE_TOKENS_PER_S * math.exp(log), length)
        for cell, log in zip(CELLS, logs, strict=True)
    ]
    return ArmRun(point, ("llama-server",), 8.0, 5.0, 70.0, {}, tuple(measurements))


def block(
    number: int, point: Point, logs: Sequence[float], length: float, phase: Phase = Phase.SEARCH
) -> Block:
    noise = random.Random(number)
    ours = arm(point, [v + noise.gauss(0, 0.012) for v in logs], length)
    theirs = arm(BASELINE, [noise.gauss(0, 0.008) for _ in logs], 1.0)
    outputs = {point.key: OutputCheck(24, 22, (180, 431))}
    control = OutputCheck(24, 23, (512,))
    return Block(number, phase, 1.8e9, 1.8e9 + 200, "prompts-1", (ours, theirs), outputs, control)


def trial(number: int, point: Point, log: float, blocks: Sequence[Block], source: str = "sampler") -> Trial:
    by_cell = {c.label: log + g for c, g in zip(CELLS, CLASS_GAINS, strict=True)}
    return Trial(number, point, source, TrialState.MEASURED, log, by_cell, tuple(b.number for b in blocks))


def failed_trial(number: int, point: Point, reason: Reason, evidence: str) -> Trial:
    return Trial(number, point, "sampler", TrialState.FAILED, None, {}, (), Failure(reason, evidence))


def effect(log: float, half_width: float, blocks: int = 8) -> Effect:
    return Effect(log, log - half_width, log + half_width, blocks)


def verdict(kind: VerdictKind, point: Point, log: float, half_width: float, length: float) -> Verdict:
    by_class = {c: effect(log + g, half_width * 1.5) for c, g in zip(CLASSES, CLASS_GAINS, strict=True)}
    return Verdict(
        kind=kind,
        point=point,
        effect=effect(log, half_width),
        by_class=by_class,
        cells=tuple(c.label for c in CELLS),
        identical_share=0.917,
        control_identical_share=0.958,
        acceptance_length=length,
        why="The whole interval lies above 1.00x."
        if log > half_width
        else "The interval reaches below 1.00x.",
    )


_FAILURES = (
    (
        DRAFT,
        16,
        Reason.START_OOM,
        "ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory",
    ),
    (
        CACHE,
        1,
        Reason.CONFIG_REJECTED,
        'error: invalid argument: --spec-ngram-size-n <n>: must be > 0 & "small"',
    ),
    (NGRAM, 48, Reason.HANG, "no token on any of 4 streams for 60.0 s; /health answered 200"),
)


def searched(count: int, gain: float, seed: int = 7) -> tuple[list[Trial], list[Block]]:
    """`count` trials around `gain`, with every fifth one failing and one Block behind each of the others."""
    draw, trials, blocks = random.Random(seed), list[Trial](), list[Block]()
    for number in range(count):
        point, knob, value = _point(draw, number)
        if number % 5 == 3:
            like, size, reason, evidence = _FAILURES[number // 5 % len(_FAILURES)]
            trials.append(failed_trial(number, _with_size(like, size), reason, evidence))
            continue
        log = gain - 0.004 * (value - 8) ** 2 / 2 + draw.gauss(0, 0.02) - (0.09 if knob == "n_max" else 0)
        logs, length = [log + g for g in CLASS_GAINS], 1.3 + 0.16 * value
        blocks.append(block(len(blocks), point, logs, length))
        trials.append(trial(number, point, log, blocks[-1:], "start" if number < 3 else "sampler"))
    return trials, blocks


def _point(draw: random.Random, number: int) -> tuple[Point, str, int]:
    if number == 0:
        return NGRAM, "size_m", 12
    value = draw.choice((4, 8, 12))
    if draw.random() < 0.6:
        knobs: dict[str, KnobValue] = {"size_n": draw.choice((3, 6)), "size_m": value}
        return Point("ngram-simple", knobs), "size_m", value
    return Point("draft-model", {"n_max": value, "p_min": draw.choice((0.4, 0.6))}), "n_max", value


def _with_size(point: Point, size: int) -> Point:
    return Point(point.method, {**point.knobs, "size": size})


def better(trials: int = 14) -> ReportInput:
    """A finished run with a winner, failures, a hopeless trial and a Block thrown away."""
    found, blocks = searched(trials, 0.21)
    slow = Point("draft-model", {"n_max": 16, "p_min": 0.0})
    found[5] = replace(found[5], point=slow, state=TrialState.HOPELESS, log_speedup=math.log(0.71), blocks=())
    logs = [0.19 + g for g in CLASS_GAINS]
    blocks += [block(900 + i, NGRAM, logs, 3.22, Phase.CONFIRM) for i in range(8)]
    pressed = Failure(Reason.HOST_PRESSURE, "2.4 foreign cores busy during arm 2 (limit 0.5)")
    blocks.append(replace(block(990, NGRAM, logs, 3.22, Phase.CONFIRM), invalid=pressed))
    found, lost = with_blocks_of_failures(found)
    winner = verdict(VerdictKind.BETTER, NGRAM, 0.1906, 0.042, 3.22)
    second = verdict(VerdictKind.UNDECIDED, DRAFT, 0.021, 0.06, 2.41)
    arms = {"baseline": blocks[-2].arm(BASELINE), "winner": blocks[-2].arm(NGRAM)}
    return ReportInput(
        name="qwen3-8b-4090",
        folder="runs/qwen3-8b-4090",
        timeline=over_time(blocks[-2].number, [(n, a) for n, a in arms.items() if a is not None]),
        excerpts={
            a.log: shown for a in lost for f in [a.failure] if f and (shown := excerpt(LOG, f.evidence))
        },
        trials=found,
        blocks=blocks + [_block_of(700 + i, arm) for i, arm in enumerate(lost)],
        verdicts=(winner, second),
        winner=winner,
        headline="ngram-simple with size_n=6 and size_m=12 serves 21 % more tokens per second than the same "
        "server without speculation.",
        banner=None,
        command=COMMAND,
        environment=ENVIRONMENT,
        sweep_yaml="name: qwen3-8b-4090\nengine: llamacpp\npace: closed(4)\n",
        calibration={"client_cores": 0.11, "overhead_share": 0.004, "chunk_timing_error_s": 0.00031},
        elapsed_s=9740.0,
        phases_s={"starting servers": 1460.0, "warming up": 610.0, "measuring": 5230.0, "confirming": 2440.0},
        finished=True,
    )


def load_without_gpu() -> Timeline | None:
    logs = [0.19 + g for g in CLASS_GAINS]
    return over_time(
        3, [("baseline", arm(BASELINE, [0.0] * 5, 1.0)), ("winner", arm(NGRAM, logs, 3.2))], gpus=0
    )


def with_blocks_of_failures(trials: Sequence[Trial]) -> tuple[list[Trial], list[ArmRun]]:
    """The failed trials with the number of a Block, and the arm of each that failed."""
    found, lost = list[Trial](), list[ArmRun]()
    for each in trials:
        if each.failure is None:
            found.append(each)
            continue
        number = 700 + len(lost)
        found.append(replace(each, blocks=(number,)))
        lost.append(
            ArmRun(
                each.point, ("llama-server",), 3.0, 0.0, 0.0, {}, (), each.failure, log=f"block{number}.log"
            )
        )
    return found, lost


def _block_of(number: int, lost: ArmRun) -> Block:
    theirs = arm(BASELINE, [0.0] * len(CELLS), 1.0)
    return Block(number, Phase.SEARCH, 1.8e9, 1.8e9 + 60, "prompts-1", (theirs, lost))


def mixed_signs(trials: int = 60) -> ReportInput:
    """A winner on the whole that loses in one class, after many trials."""
    report = better(trials)
    banner = "Faster on the whole but slower in chat: do not deploy it where chat dominates."
    winner = verdict(VerdictKind.BETTER, NGRAM, 0.055, 0.021, 2.61)
    headline = (
        "ngram-simple with size_n=6 and size_m=12 is 6 % faster than the same server without speculation."
    )
    return replace(
        report, headline=headline, banner=banner, winner=winner, verdicts=(winner, *report.verdicts[1:])
    )


def limited() -> ReportInput:
    """A run with limits and goodput: the longest drafts break one of them, the winner none."""
    report = better(30)
    blocks = [replace(b, arms=tuple(_with_goodput(a) for a in b.arms)) for b in report.blocks]
    limits = {"chunk_gap_p95_s": 0.195, "server_memory_bytes": 6.5 * 2**30}
    return replace(report, blocks=blocks, limits=limits, goodput={"ttft_s": 0.5, "end_to_end_s": 12.0})


def _with_goodput(run: ArmRun) -> ArmRun:
    """Faster arms bring more of their requests home in time."""
    measured = []
    for m in run.measurements:
        good = min(24, round(24 * ((m.tokens_per_s or 0.0) / 110) ** 2))
        telemetry = replace(m.telemetry, server_memory_bytes=round(5.7 * 2**30))
        share = good / 24
        measured.append(
            replace(m, telemetry=telemetry, goodput_per_s=good / m.wall_s, within_limits_share=share)
        )
    return replace(run, measurements=tuple(measured))


def nothing_beats() -> ReportInput:
    found, blocks = searched(14, -0.04, seed=3)
    finalists = (
        verdict(VerdictKind.WORSE, NGRAM, -0.062, 0.021, 2.6),
        verdict(VerdictKind.SAME, CACHE, -0.003, 0.012, 1.4),
    )
    base = better()
    return replace(
        base,
        trials=found,
        blocks=blocks,
        verdicts=finalists,
        winner=None,
        headline="At this load the server is compute-bound: verifying drafts costs more than it saves.",
        command=BASELINE_COMMAND,
    )


def partial(trials: int) -> ReportInput:
    """A run that was stopped, or is still going, after so many trials."""
    found, blocks = searched(trials, 0.2)
    return ReportInput(
        name="still-going",
        trials=found,
        blocks=blocks,
        elapsed_s=140.0 * trials,
        phases_s={"measuring": 140.0 * trials},
    )


def only_failures() -> ReportInput:
    failures = [failed_trial(i, _with_size(p, s), r, e) for i, (p, s, r, e) in enumerate(_FAILURES)]
    return ReportInput(name="all-failed", trials=failures, finished=True)


SAMPLES = {
    "better": better,
    "mixed": mixed_signs,
    "limited": limited,
    "nothing": nothing_beats,
    "partial0": lambda: partial(0),
    "partial1": lambda: partial(1),
    "partial3": lambda: partial(3),
    "failures": only_failures,
    "map": maps.sample,
    "searched-map": maps.sample_of_a_search,
    "cluster": clusters.sample,
    "cluster-depends": clusters.sample_that_depends,
}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, sample in SAMPLES.items():
        (folder / f"{name}.html").write_text(html(sample()), encoding="utf-8")
        (folder / f"{name}.md").write_text(markdown(sample()), encoding="utf-8")
