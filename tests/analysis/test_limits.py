"""Limits: what they bound, how the worst Cell decides, and what is said when the baseline breaks one."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from analysis.answer import Tone, answer, command_title
from analysis.limit_tables import in_short
from analysis.limits import (
    LIMITS,
    broken_by_baseline,
    bytes_of,
    limit_ratios,
    median_ratios,
    shown,
    value,
    words,
)
from analysis.report import as_json, html, markdown
from analysis.report_input import Comparison, ReportInput, Side
from analysis.verdict import AnswerKind, conclude
from analysis.verdict import answer as answer_of
from results.reasons import Reason
from results.records import (
    BASELINE,
    ArmRun,
    Block,
    Cell,
    Effect,
    Failure,
    GpuTelemetry,
    Measurement,
    Phase,
    Point,
    Quantiles,
    Telemetry,
    Verdict,
    VerdictKind,
    Weights,
)
from tests.analysis import samples
from tests.analysis.build import CHAT, CODE, FAST, arm, block, measurement

GIB = 2**30
SMALL = GpuTelemetry("GPU-a", "A", memory_bytes=10 * GIB, power_w=200.0, energy_j=300.0)
FULL = GpuTelemetry("GPU-b", "A", memory_bytes=20 * GIB, power_w=100.0, energy_j=100.0)
LIMIT = {"ttft_p95_s": 0.5}


def on(*gpus: GpuTelemetry, **other: Any) -> Measurement:
    return measurement(telemetry=Telemetry(2.0, gpus=gpus, **other))


def quick(ttft_s: float, cell: Cell = CHAT, tokens_per_s: float = 100.0) -> Measurement:
    return measurement(cell, tokens_per_s, ttft_s=Quantiles(ttft_s, ttft_s, ttft_s))


@pytest.mark.parametrize(
    ("name", "found", "expected"),
    [
        ("ttft_p95_s", quick(0.4), 0.4),
        ("server_memory_bytes", on(server_memory_bytes=3 * GIB), 3 * GIB),
        ("server_memory_bytes", on(), None),
        ("gpu_memory_bytes", on(SMALL, FULL), 20 * GIB),  # of the fullest, not of all together
        ("gpu_memory_bytes", on(SMALL, replace(FULL, memory_bytes=None)), None),
        ("gpu_memory_bytes", on(SMALL, gpu_mismatch="others"), None),
        ("gpu_memory_bytes", on(), None),
        ("power_w", on(SMALL, FULL), 300.0),  # of all together
        ("power_w", on(SMALL, replace(FULL, power_w=None)), None),
        ("power_w", on(), None),
        ("joules_per_token", on(SMALL, FULL), 2.0),  # 400 J, 200 tokens
        ("joules_per_token", on(), None),
    ],
)
def test_what_a_limit_bounds(name: str, found: Measurement, expected: float | None) -> None:
    assert value(found, name) == expected


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_can_be_said_with_its_unit(name: str) -> None:
    assert shown(name, 0.5 * GIB).split(" ", 1)[1] in ("s", "MiB", "J per token", "W")
    assert "was not measured" in words(name, None, 1.0)


@pytest.mark.parametrize(
    ("name", "reached", "limit", "said"),
    [
        ("ttft_p95_s", 0.612, 0.5, "ttft_p95_s is 0.612 s, the limit 0.5 s"),
        ("gpu_memory_bytes", 24.2 * GIB, 24 * GIB, "gpu_memory_bytes is 24.2 GiB, the limit 24 GiB"),
        ("gpu_memory_bytes", 24.004 * GIB, 24 * GIB, "is 24.004 GiB, the limit 24 GiB"),  # told apart
        ("server_memory_bytes", 700 * 2**20, 0.5 * GIB, "is 700 MiB, the limit 512 MiB"),
        ("power_w", 1250, 1200, "power_w is 1250 W, the limit 1200 W"),
        ("joules_per_token", 1.5, 1.2, "is 1.5 J per token, the limit 1.2 J per token"),
    ],
)
def test_how_it_is_said(name: str, reached: float, limit: float, said: str) -> None:
    assert words(name, math.log(reached / limit), limit).endswith(said)


def test_the_worst_cell_decides() -> None:
    run = arm(FAST, quick(0.4), quick(0.6, CODE))
    assert limit_ratios(run, LIMIT) == {"ttft_p95_s": pytest.approx(math.log(1.2))}
    assert limit_ratios(arm(FAST, quick(0.4), measurement(CODE)), LIMIT) == {"ttft_p95_s": None}
    assert limit_ratios(arm(FAST), LIMIT) == {"ttft_p95_s": None}


def test_a_cell_that_does_not_count_breaks_no_limit() -> None:
    run, weights = arm(FAST, quick(0.4), quick(0.6, CODE)), Weights(classes={"code": 0})
    assert limit_ratios(run, LIMIT, weights) == {"ttft_p95_s": pytest.approx(math.log(0.8))}


def test_a_figure_of_nothing_is_finite() -> None:
    found = limit_ratios(arm(FAST, quick(0.0)), LIMIT)["ttft_p95_s"]
    assert found is not None and math.isfinite(found) and found < 0


def test_over_several_blocks_the_median_one_decides() -> None:
    runs = [arm(FAST, quick(t)) for t in (0.4, 0.45, 9.0)]
    assert median_ratios(runs, LIMIT) == {"ttft_p95_s": pytest.approx(math.log(0.9))}
    assert median_ratios([*runs, arm(FAST, measurement())], LIMIT) == {"ttft_p95_s": None}
    assert median_ratios([], LIMIT) == {"ttft_p95_s": None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("24 GiB", 24 * GIB),
        ("24GiB", 24 * GIB),
        ("1.5 gib", 1.5 * GIB),
        ("800 MB", 800e6),
        ("512 KiB", 2**19),
        ("2 TiB", 2 * 2**40),
        ("16g", 16e9),
        ("1.5e9", 1.5e9),
        ("4096 B", 4096),
    ],
)
def test_amounts_of_memory(text: str, expected: float) -> None:
    assert bytes_of(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1 GiB", "24 Gibs", "24 s", "1..5 GB", "nan", "inf GiB"])
def test_what_is_no_amount_of_memory(text: str) -> None:
    with pytest.raises(ValueError, match=r"write e\.g\. 24 GiB"):
        bytes_of(text)


# The baseline and its limits


def confirmed(theirs_s: float, ours_s: float, speed: float, phase: Phase = Phase.CONFIRM) -> list[Block]:
    """Blocks in which baseline and candidate reach these times to the first token."""
    made = []
    for number, wobble in enumerate((0.0, 0.3, -0.3, 0.1)):
        runs: tuple[ArmRun, ...] = (
            arm(BASELINE, quick(theirs_s)),
            arm(FAST, quick(ours_s, tokens_per_s=100 * speed + wobble)),
        )
        made.append(replace(block(number, phase=phase), arms=runs))
    return made


def test_a_baseline_that_breaks_a_limit_is_named() -> None:
    assert broken_by_baseline(confirmed(0.6, 0.4, 1.0), LIMIT) == "ttft_p95_s is 0.6 s, the limit 0.5 s"
    assert broken_by_baseline(confirmed(0.4, 0.6, 1.0), LIMIT) == ""
    assert broken_by_baseline([], LIMIT) == ""
    assert broken_by_baseline(confirmed(0.6, 0.4, 1.0), {"power_w": 1.0}) == ""  # unknown is not broken
    searched = confirmed(0.6, 0.4, 1.0, Phase.SEARCH)
    assert "0.6 s" in broken_by_baseline(searched, LIMIT)
    assert broken_by_baseline([*searched, *confirmed(0.4, 0.4, 1.0)], LIMIT) == ""  # the confirmation says
    spoiled = Failure(Reason.HOST_PRESSURE, "a build ran")
    assert broken_by_baseline([replace(b, invalid=spoiled) for b in searched], LIMIT) == ""


def judged(theirs_s: float, ours_s: float, speed: float) -> ReportInput:
    blocks = confirmed(theirs_s, ours_s, speed)
    verdicts = conclude(blocks, [FAST], limits=LIMIT)
    breaks = broken_by_baseline(blocks, LIMIT)
    found = answer_of(verdicts, breaks)
    return ReportInput(
        name="run",
        blocks=blocks,
        verdicts=verdicts,
        winner=found.winner,
        headline=found.sentence,
        banner=found.banner,
        limits=LIMIT,
        baseline_breaks=breaks,
        finished=True,
    )


def test_a_faster_one_wins_and_the_baseline_is_told_to_break_a_limit() -> None:
    report = judged(0.6, 0.4, 1.2)
    assert report.winner is not None and report.winner.kind is VerdictKind.BETTER
    assert report.banner == "The baseline itself breaks a limit: ttft_p95_s is 0.6 s, the limit 0.5 s."
    assert answer(report).tone is Tone.FASTER


@pytest.mark.parametrize(
    ("speed", "kind", "told"),
    [
        (0.9, VerdictKind.WORSE, "of the baseline: slower, which is the price of the limits."),
        (1.0, VerdictKind.SAME, "of the baseline: as fast."),
    ],
)
def test_a_slower_one_that_alone_keeps_the_limits_is_the_answer(
    speed: float, kind: VerdictKind, told: str
) -> None:
    report = judged(0.6, 0.4, speed)
    assert report.winner is not None and report.winner.kind is kind
    assert report.headline.startswith(
        "The baseline breaks a limit (ttft_p95_s is 0.6 s, the limit 0.5 s); eagle3 num_steps=3 keeps every"
    )
    assert report.banner == ""  # said already
    said = answer(report)
    assert (said.tone, said.big) == (Tone.LIMITS, "It keeps the limits, the baseline does not")
    assert said.details[-1].endswith(told)
    assert command_title(report) == "Run the one that keeps the limits"
    assert "beats the baseline" not in html(report)


def test_a_slower_one_is_no_answer_where_the_baseline_keeps_the_limits() -> None:
    report = judged(0.4, 0.4, 0.9)
    assert (report.winner, report.banner) == (None, "")
    assert report.headline.startswith("No configuration beats the baseline.")


@pytest.mark.parametrize(
    ("theirs_s", "headline", "detail"),
    [
        (0.4, "No configuration keeps the limits, so none beats the baseline", "Run the server without"),
        (0.7, "nor does the baseline: ttft_p95_s is 0.7 s, the limit 0.5 s.", "breaks a limit as well"),
    ],
)
def test_nobody_keeps_the_limits(theirs_s: float, headline: str, detail: str) -> None:
    report = judged(theirs_s, 0.6, 1.5)
    assert report.winner is None
    assert headline in report.headline
    said = answer(report)
    assert (said.tone, said.big) == (Tone.STAY, "No configuration keeps the limits")
    assert detail in said.details[0]
    assert "LIMIT_EXCEEDED: ttft_p95_s is 0.6 s, the limit 0.5 s" in said.details[1]


def test_the_best_of_those_that_keep_the_limits() -> None:
    def verdict(kind: VerdictKind, log: float, name: str) -> Verdict:
        return Verdict(
            kind, Point(name), Effect(log, log - 0.01, log + 0.01, 4), {}, (), None, None, None, "w"
        )

    out = replace(verdict(VerdictKind.INVALID, 0, "out"), effect=None)
    slow, slower = verdict(VerdictKind.WORSE, -0.1, "slow"), verdict(VerdictKind.WORSE, -0.2, "slower")
    found = answer_of([slower, out, slow], "x")
    assert (found.kind, found.winner, found.best) == (AnswerKind.KEEPS_LIMITS, slow, slower)
    early = replace(slow, kind=VerdictKind.UNDECIDED, effect=None)  # before any look nothing is known to keep
    assert answer_of([early], "x").kind is AnswerKind.UNDECIDED


def test_a_side_that_breaks_a_limit_is_not_the_one_to_run() -> None:
    a, b = Point("none", name="A"), Point("eagle3", {"k": 3}, "B")
    compared = Comparison((Side("A", "a.yaml", a), Side("B", "b.yaml", b)))
    report = ReportInput("run", comparison=compared, command="serve", baseline_breaks="ttft", limits=LIMIT)
    assert command_title(report) == "Run B, which keeps the limits"
    assert command_title(replace(report, baseline_breaks="")) == "Run A, the faster one"


# The report


def test_limits_and_goodput_have_tables() -> None:
    report = samples.limited()
    text = markdown(report)
    columns = ("chunk\\_gap\\_p95\\_s, at most 0.195 s", "server\\_memory\\_bytes, at most 6.5 GiB")
    assert f"| Configuration | {' | '.join(columns)} |" in text
    assert "| none | 0.0733 s, kept | 5.7 GiB, kept |" in text
    assert "A request counts with ttft\\_s at most 0.5 s, end\\_to\\_end\\_s at most 12 s." in text
    assert "| code edit @ closed(4) | 62 % → 100 % | 0.214/s → 0.494/s |" in text


def test_without_limits_there_is_no_table_of_them() -> None:
    text = markdown(samples.better())
    assert "## Limits" not in text and "## Goodput" not in text
    assert '<section id="limits"' not in html(samples.better())


def test_a_broken_limit_is_a_word_in_the_table() -> None:
    report = replace(samples.limited(), limits={"ttft_p50_s": 0.22})
    assert "0.225 s, broken" in markdown(report)
    assert "0.21 s, kept" in markdown(report)


def test_the_document_for_programs_has_them() -> None:
    document = json.loads(as_json(samples.limited()))
    assert document["limits"]["chunk_gap_p95_s"] == 0.195
    assert document["goodput"] == {"ttft_s": 0.5, "end_to_end_s": 12.0}
    assert document["baseline_breaks"] is None
    assert [g["cell"] for g in document["goodput_by_cell"]] == [c.label for c in samples.CELLS]
    first = document["goodput_by_cell"][0]
    assert first["share"] == 1.0 and first["per_s"] > first["per_s_before"] > 0


def test_the_terminal_says_how_the_best_stands_to_the_limits() -> None:
    told = in_short(samples.NGRAM, samples.limited())
    assert told.startswith(
        "chunk_gap_p95_s 0.191 s, kept (at most 0.195 s), server_memory_bytes 5.7 GiB, kept"
    )
    assert in_short(samples.NGRAM, samples.better()) == ""
