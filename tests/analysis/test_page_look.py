"""What the style sheet promises: contrast, print, motion; and that every figure's column is explained."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest

from analysis import cells, failures, hardware, report, sides, tables, variables
from analysis.page import SECTIONS
from analysis.report_input import Comparison, ReportInput, Side
from analysis.tables import Table
from analysis.terms import definitions
from results.records import BASELINE, VerdictKind
from tests.analysis import samples
from tests.analysis.test_report import Page

STYLE = (Path(tables.__file__).parent / "report.css").read_text()
TEXTS = ("--ink", "--muted", "--good", "--bad")
GROUNDS = ("--paper", "--surface")
MARKS = (*(f"--series-{i}" for i in range(6)), "--good", "--bad", "--caution-edge")
# What explains a column of figures: its term among the definitions.
COLUMNS = {
    "Confirmed": "Confirmed",
    "Search estimate": "Search estimate",
    "Expected": "Expected",
    "Blocks": "Block",
    "Block": "Block",
    "Answer": "BETTER, WORSE, SAME, UNDECIDED",
    "Verdict": "BETTER, WORSE, SAME, UNDECIDED",
    "Speed-up": "Speed-up",
    "Cell": "Cell",
    "Baseline": "Baseline",
    "Tokens/s": "Tokens/s",
    "Ratio": "Tokens/s",
    "In flight": "In flight",
    "TTFT p50": "TTFT",
    "TPOT p50": "TPOT",
    "p50": "TTFT",
    "p95": "TTFT",
    "p99": "TTFT",
    "Acceptance length": "Acceptance length",
    "Length": "Acceptance length",
    "Per position": "Acceptance per position",
    "Accepted / proposed": "Accepted / proposed",
    "Drafts": "Drafts",
    "Asked for": "Asked for",
    "Energy per token": "Energy per token",
    "Tokens per joule": "Energy per token",
    "Against the baseline": "Energy per token",
    **dict.fromkeys(("Busy", "Power", "SM clock", "Hottest", "Held by", "PCIe"), "Figures of a GPU"),
    **dict.fromkeys(
        ("Server", "Load client", "Others", "Stolen", "Pressure", "Clock"), "Figures of the host"
    ),
}
ONE_WORD = {  # columns that name things, and whole numbers whose name says it all
    *(
        "Configuration",
        "Why",
        "Class",
        "Metric",
        "Reason",
        "What it means",
        "Evidence",
        "Phase",
        "Arms in order",
    ),
    *("Trial", "State", "Proposed by", "Source", "Setting", "What", "Value", "Time", "Share of the run"),
    *("Side", "Given as", "A", "B", "Variable", "Winner", "Best finalist", "Best trial", "From", "GPU"),
    *("Memory", "Requests", "Tokens", "Identical to the baseline", "Control: baseline to itself"),
    *("Identical to A", "Control: A to itself"),
}


def _themes() -> dict[str, dict[str, str]]:
    blocks = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    light, dark, printed = (dict(re.findall(r"(--[\w-]+): (#[0-9a-f]+)", block)) for block in blocks)
    return {"light": light, "dark": dark, "print": printed}


THEMES = _themes()


def _luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    digits = colour.removeprefix("#")
    whole = digits if len(digits) == 6 else "".join(2 * d for d in digits)
    parts = [int(whole[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    low, high = sorted((_luminance(a), _luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize(("theme", "text", "ground"), [*product(THEMES, TEXTS, GROUNDS)])
def test_text_can_be_read(theme: str, text: str, ground: str) -> None:
    assert contrast(THEMES[theme][text], THEMES[theme][ground]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
def test_cautions_can_be_read(theme: str) -> None:
    assert contrast(THEMES[theme]["--ink"], THEMES[theme]["--caution"]) >= 4.5


@pytest.mark.parametrize(("theme", "mark"), [*product(THEMES, MARKS)])
def test_marks_can_be_seen(theme: str, mark: str) -> None:
    assert contrast(THEMES[theme][mark], THEMES[theme]["--paper"]) >= 3


def test_every_theme_has_every_colour() -> None:
    used = set(re.findall(r"var\((--[\w-]+)\)", STYLE))
    assert used - {"--strength"} <= THEMES["light"].keys()  # that one is set for each field of the map
    assert THEMES["light"].keys() == THEMES["dark"].keys() == THEMES["print"].keys()


def test_nothing_moves_for_those_who_do_not_want_it() -> None:
    moving = [
        line
        for line in STYLE.splitlines()
        if re.search(r"scroll-behavior: smooth|transition|animation", line)
    ]
    assert moving and all("prefers-reduced-motion: no-preference" in line for line in moving)


def _tables(shown: ReportInput) -> Iterator[Table]:
    makers = (
        tables.finalists,
        tables.classes,
        tables.latency,
        tables.outputs,
        tables.acceptance,
        tables.settings,
        tables.trials,
        tables.phases,
        tables.calibration,
        cells.cells,
        failures.failures,
        failures.invalid_blocks,
        hardware.energy,
        hardware.gpus,
        hardware.host,
        sides.sides,
        variables.variables,
    )
    yield from (make(shown) for make in makers)


def test_every_column_of_figures_is_defined() -> None:
    labels = {v.point.label for v in samples.better().verdicts}
    seen = {column for shown in _tables(samples.better()) for column in shown.columns} - labels
    assert len(seen) > 40
    unexplained = {c for c in seen - ONE_WORD if c not in COLUMNS}
    assert not unexplained
    assert set(COLUMNS.values()) <= definitions().keys()


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_headings_go_down_one_level_at_a_time(name: str) -> None:
    levels = [int(h) for h in re.findall(r"<h([1-6])[ >]", report.html(samples.SAMPLES[name]()))]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_a_page_has_landmarks_and_every_figure_has_words(name: str) -> None:
    document = report.html(samples.SAMPLES[name]())
    assert document.count('<main id="main"') == document.count("<nav aria-label=") == 1
    assert '<a class="skip" href="#main">' in document and '<html lang="en">' in document
    drawn = document.count("<svg ")
    assert (
        drawn == document.count("<title id=") == document.count("<desc id=") == document.count("<figcaption>")
    )
    assert document.count("<table") == document.count("<caption>")


def test_navigation_names_the_parts_that_are_there() -> None:
    document = report.html(samples.better())
    inside = re.search(r"<nav.*?</nav>", document, re.DOTALL)
    assert inside is not None
    linked = re.findall(r'href="#([\w-]+)">', inside[0])
    assert linked == re.findall(r'<section id="([\w-]+)"', document)
    assert set(linked) <= {part.id for part in SECTIONS} and len(linked) >= 10


def test_the_top_says_what_to_do_how_sure_and_where() -> None:
    text = Page(report.html(samples.better())).text
    top = text[: text.index("Run the winner")]
    for part in ("What to do Start the server with this command", "How sure", "Holds for", "Configuration"):
        assert part.replace(" ", "") in top.replace(" ", "")


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("nothing", "Keep speculation off: run the server with this command."),
        ("partial0", "it goes on from the last Block. Nothing has been recorded so far."),
        ("partial3", "it goes on from the last Block."),
        ("failures", "what failed"),
    ],
)
def test_every_answer_says_what_to_do(name: str, action: str) -> None:
    assert action in Page(report.html(samples.SAMPLES[name]())).text


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        (VerdictKind.BETTER, "Run B, the faster one with this command."),
        (VerdictKind.WORSE, "Run A, the faster one with this command."),
        (VerdictKind.SAME, "Take either"),
        (VerdictKind.UNDECIDED, "More Blocks may decide it"),
    ],
)
def test_a_comparison_says_what_to_do(kind: VerdictKind, action: str) -> None:
    sides = (Side("A", "a.yaml", replace(BASELINE, name="A")), Side("B", "b.yaml", samples.NGRAM))
    judged = samples.verdict(kind, samples.NGRAM, 0.0, 0.1, 2.0)
    shown = ReportInput("x", verdicts=(judged,), comparison=Comparison(sides), command="x", finished=True)
    assert action in Page(report.html(shown)).text


def test_an_unfinished_run_is_marked_as_such() -> None:
    assert "Not finished" in Page(report.html(samples.partial(3))).text
    assert "not finished" in Page(report.html(replace(samples.better(), finished=False))).text
    assert "not finished" not in Page(report.html(samples.better())).text.lower()


def test_many_cells_are_folded_in_the_verdict() -> None:
    cells_of = tuple(f"c{i} @ closed(4)" for i in range(20))
    winner = replace(samples.better().verdicts[0], cells=cells_of)
    shown = report.html(replace(samples.better(), winner=winner))
    assert "<summary>20 Cells, and for no other</summary>" in shown
    assert "Cells, and for no other" not in report.html(samples.better())


def test_failures_come_with_the_lines_of_their_log() -> None:
    document = report.html(samples.better())
    assert "<summary>Trial 3, draft-model n_max=4 p_min=0.6 size=16: START_OOM</summary>" in document
    marked = re.findall(r"<mark>(.*?)</mark>", document)
    assert marked == ["&gt; ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory"]
    assert "sk-not-a-real-key" not in document and "&lt;secret&gt;" in document


def test_how_to_reproduce_has_exact_commands() -> None:
    document = Page(report.html(samples.better())).text
    assert "tuner sweep runs/qwen3-8b-4090/sweep.yaml --run runs/qwen3-8b-4090-again" in document
    assert "tuner report runs/qwen3-8b-4090" in document


def test_a_run_without_a_folder_has_no_commands_to_reproduce_it() -> None:
    assert "Sweep again" not in report.html(replace(samples.better(), folder=""))
