"""The verdict in a terminal: all of it, within any width, and nothing of a record as markup."""

import io
import shlex
from dataclasses import replace

import pytest

from analysis import report as reports
from analysis.report_input import ReportInput
from analysis.terminal import continued, verdict_lines
from results.reasons import Reason
from results.records import Effect, Point, VerdictKind
from tests.analysis import samples


def shown(report: ReportInput, width: int = 100, *, colours: bool = False) -> str:
    from rich.console import Console

    written = io.StringIO()
    console = Console(
        file=written,
        width=width,
        highlight=False,
        force_terminal=colours,
        color_system="standard" if colours else None,
    )
    for renderable in verdict_lines(report):
        console.print(renderable)
    return written.getvalue()


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", samples.SAMPLES)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    lines = shown(samples.SAMPLES[name](), width).splitlines()
    assert max(map(len, lines)) <= width


def test_the_answer_stands_on_top_and_the_command_at_the_end() -> None:
    lines = shown(samples.better()).splitlines()
    assert lines[0] == "1.21x the speed of the same server without speculation"
    command = lines[lines.index("Run the winner") + 1 :]
    assert " ".join(line.rstrip("\\").strip() for line in command) == samples.COMMAND


def test_what_is_said_in_the_title_is_not_said_again() -> None:
    headline = "No configuration beats the baseline. Closest: it is near."
    lines = shown(replace(samples.nothing_beats(), headline=headline)).splitlines()
    assert lines[:2] == ["No configuration beats the baseline", "Closest: it is near."]


def test_a_run_without_a_number_says_why_and_what_to_do() -> None:
    text = shown(replace(samples.only_failures(), headline="Nothing could be measured."))
    assert text.count("Nothing could be measured") == 1
    assert "Not enough memory to start (START_OOM, 1 of 3 failures)" in text
    assert "smaller context" in text


def test_the_baseline_is_what_to_run_when_nothing_beats_it() -> None:
    text = shown(samples.nothing_beats())
    assert "Run the server without speculation\nllama-server --model" in text


def test_finalists_stand_fastest_first_with_confirmed_and_searched_number() -> None:
    text = shown(replace(samples.better(), verdicts=samples.better().verdicts[::-1]))
    better, undecided = (line for line in text.splitlines() if "BETTER" in line or "UNDECIDED" in line)
    said = "ngram-simple size_m=12 size_n=6 BETTER 1.21x (1.16x to 1.26x) 1.19x 8"
    assert " ".join(better.split()) == said
    assert undecided.split()[:3] == ["draft-model", "n_max=4", "p_min=0.6"]


def test_classes_are_those_of_the_largest_estimate_when_there_is_no_winner() -> None:
    text = shown(samples.nothing_beats())
    assert samples.nothing_beats().verdicts[0].point == samples.NGRAM
    assert f"{samples.CACHE.label}, by class" in text
    assert f"{samples.NGRAM.label}, by class" not in text
    lines = text[text.index("by class") :].splitlines()
    assert [line.split("  ")[0] for line in lines[2:7]] == [
        "code edit",
        "extraction",
        "reasoning",
        "translation",
        "chat",
    ]
    assert "slower" in lines[6] and "faster" in lines[2] and "not certain" in lines[4]


def test_facts_of_the_best_and_the_reason_of_the_invalid() -> None:
    best = replace(samples.better().verdicts[0], warnings=("outputs: 40 % equal the baseline's",))
    invalid = replace(
        best, kind=VerdictKind.INVALID, point=samples.DRAFT, effect=None, why="failed in Block 3"
    )
    text = shown(replace(samples.better(), winner=best, verdicts=(best, invalid)), 160)
    assert (
        "code edit, extraction, reasoning, chat, translation @ closed(4). Nothing is claimed beyond." in text
    )
    assert "3.22 tokens per verification step" in text
    assert "92\N{NO-BREAK SPACE}% identical" in text and "itself: 96\N{NO-BREAK SPACE}%" in text
    assert "outputs: 40 % equal the baseline's" in text
    assert f"{samples.DRAFT.label}: failed in Block 3" in text


def test_every_pace_keeps_its_classes() -> None:
    cells = ("chat @ closed(1)", "code @ closed(1)", "chat @ closed(4)")
    best = replace(samples.better().verdicts[0], cells=cells)
    text = shown(replace(samples.better(), winner=best, verdicts=(best,)))
    assert "chat, code @ closed(1); chat @ closed(4)." in text


def test_every_failed_configuration_is_named_and_its_evidence_takes_one_line() -> None:
    long = "first line of the log\n" + "and more " * 40
    trials = [
        *(samples.failed_trial(i, Point("m", {"k": i}), Reason.HANG, long) for i in range(3)),
        samples.failed_trial(3, Point("m", {"k": 3}), Reason.START_OOM, "out of memory"),
    ]
    text = shown(ReportInput(name="x", trials=trials, headline="h"), 80)
    assert "4 of 4 trials could not be measured" in text
    (evidence,) = (line for line in text.splitlines() if "first line" in line)
    assert evidence.startswith("HANG") and evidence.endswith("…") and len(evidence) == 80
    assert "m k=0, m k=1, m k=2" in text and "m k=3" in text


def test_nothing_of_a_record_is_markup_or_a_terminal_code() -> None:
    odd = "[/red][bold]x[/] \x1b[31m"
    point = Point(odd, {})
    verdict = replace(
        samples.verdict(VerdictKind.INVALID, point, 0.1, 0.01, 2.0),
        by_class={odd: Effect(0.1, 0.05, 0.15, 4)},
        cells=(odd,),
        why=odd,
        warnings=(odd,),
    )
    judged = replace(verdict, kind=VerdictKind.BETTER)
    text = shown(
        ReportInput(
            name=odd,
            trials=[samples.failed_trial(1, point, Reason.HANG, odd)],
            verdicts=(judged, verdict),
            winner=judged,
            headline=odd,
            banner=odd,
            command=odd,
            finished=True,
        ),
        200,
    )
    assert "\x1b" not in text
    assert text.count("[/red][bold]x[/]") == 13


def test_colours_are_readable_on_white_and_on_black() -> None:
    """Of the terminal's sixteen: no yellow (33), blue (34) or cyan (36), and no background."""
    codes = {
        code
        for sample in samples.SAMPLES.values()
        for part in shown(sample(), colours=True).split("\x1b[")[1:]
        for code in part.partition("m")[0].split(";")
    }
    assert {"1", "32", "31", "35"} <= codes <= {"0", "1", "2", "31", "32", "35"}


@pytest.mark.parametrize(
    "command",
    [
        samples.COMMAND,
        shlex.join(["server", "--json", '{"a": "b c"}', "--it's", "x" * 90, "--flag", *["word"] * 30]),
        'NCCL_ALGO=\'Ring Tree\' server --x="a \\" b" ' + "--flag value " * 12 + "-v",
        "short",
    ],
)
def test_a_command_over_several_lines_is_the_same_command(command: str) -> None:
    written = continued(command)
    joined = written.replace("\\\n", "")  # as a shell reads it
    assert shlex.split(joined) == shlex.split(command)
    assert all(len(line) <= 76 or "x" * 90 in line for line in written.splitlines())


def test_values_stay_beside_their_flags() -> None:
    lines = continued("server " + " ".join(f"--flag-number-{i} value-{i}" for i in range(9))).splitlines()
    assert len(lines) > 2
    assert all(line.strip().startswith(("server", "--flag")) for line in lines)


@pytest.mark.parametrize("command", ["server --x 'never closed", "two  spaces", "", "a\\"])
def test_a_command_that_cannot_be_read_is_left_alone(command: str) -> None:
    assert continued(command) == command


def test_the_report_holds_the_evidence_that_the_terminal_cuts() -> None:
    long = "word " * 60 + "end"
    run = ReportInput(name="x", trials=[samples.failed_trial(1, samples.NGRAM, Reason.HANG, long)])
    assert long not in shown(run) and long in reports.markdown(run)
