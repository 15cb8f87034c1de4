"""What a report says of how the search measured, and of what its estimates were worth."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from analysis import findings, tables
from analysis.report import as_json, csv, html, markdown
from analysis.report_input import ReportInput
from analysis.searched import finalists_note, how_compared
from analysis.terminal import verdict_lines
from results.records import BASELINE, Block, Effect, Phase, Point, Trial, TrialState, Verdict, VerdictKind
from tests.analysis.build import CHAT, FAST, SLOW, arm, block, measurement
from tests.records import trial

STRONG = Point("none", {"--batch": 8})


def anchor(number: int, log: float) -> Block:
    run = replace(arm(BASELINE, measurement(CHAT, 100 * math.exp(log))), start_s=9.0, measured_s=2.0)
    return replace(block(number, phase=Phase.SEARCH, arms=(run,)), started_at=100.0 * number)


def alone(number: int, point: Point) -> Block:
    return block(number, phase=Phase.SEARCH, arms=(arm(point, measurement(CHAT, 120)),))


def searched(changes: Sequence[float], trials: Sequence[Trial]) -> ReportInput:
    """Anchors in Blocks 0, 10, 20 ... that change by so much."""
    levels = [sum(changes[:i]) for i in range(len(changes) + 1)]
    return ReportInput(
        "anchored", trials=trials, blocks=[anchor(10 * i, log) for i, log in enumerate(levels)]
    )


def test_a_search_with_the_baseline_in_every_block_says_so() -> None:
    report = ReportInput("paired", trials=[trial(1, FAST, 0.1), trial(2, SLOW, -0.1)])
    assert how_compared(report) == "Every trial is compared with the baseline of its own Block."
    assert how_compared(ReportInput("empty", trials=[trial(0, BASELINE, 0.0, blocks=())])) == ""


def test_anchors_are_counted_and_their_change_is_told() -> None:
    found = [
        trial(1, FAST, 0.1, blocks=(0,)),
        trial(2, FAST, 0.1, blocks=(1,), anchors=(0, 10)),
        trial(3, FAST, 0.1, blocks=(11,), anchors=(10, 20)),
        trial(4, FAST, 0.1, blocks=(21,), anchors=(20,)),
        trial(5, SLOW, -0.9, blocks=(22,), state=TrialState.HOPELESS),
    ]
    assert how_compared(searched([0.004, -0.01], found)) == (
        "3 trials are compared with the baseline as interpolated between 3 launches of it (drift anchors),"
        " since a start takes long; 1 trial with the baseline of the same Block."
        " 1 trial had one anchor only, since the run was stopped before the next."
        " Between two anchors the baseline changed by up to 1.0 %."
    )
    assert how_compared(searched([0.004, -0.05], found)).endswith(
        "by up to 5.1 %. That is more than counts as the same: take those estimates with care."
    )


def test_every_form_of_the_report_says_how_trials_were_compared() -> None:
    report = searched([0.01], [trial(1, FAST, 0.1, blocks=(1,), anchors=(0, 10))])
    said = "drift anchors"
    assert said in html(report)
    assert said in markdown(report)
    assert said in as_json(report)
    assert '"anchors": [\n        0,\n        10\n      ]' in as_json(report)
    assert "anchors" not in csv(report)


def verdict(point: Point, log: float) -> Verdict:
    effect = Effect(log, log - 0.01, log + 0.01, 4)
    return Verdict(VerdictKind.BETTER, point, effect, {}, (), None, None, None, "told")


def rebased() -> ReportInput:
    """The search was against BASELINE; a finalist's settings made one that is faster by 0.2."""
    confirmed = [
        replace(block(n, (FAST, {CHAT: 0.1})), compared_with=STRONG, prompt_set="held-out") for n in (5, 6)
    ]
    found = [
        trial(1, FAST, 0.34, blocks=(1,)),
        trial(2, SLOW, 0.1, blocks=(2,)),
        trial(3, STRONG, 0.2, blocks=(3,), source="finalist"),
    ]
    own = [replace(alone(n, t.point), prompt_set="tuning") for n, t in enumerate(found, 1)]
    return ReportInput("rebased", trials=found, blocks=[*own, *confirmed], verdicts=[verdict(FAST, 0.1)])


def test_search_estimates_are_told_against_the_baseline_of_the_confirmation() -> None:
    report = rebased()
    assert findings.search_estimate(report, FAST) == pytest.approx(0.14)
    assert findings.search_estimate(replace(report, blocks=report.blocks[:3]), FAST) == pytest.approx(0.34)
    without = replace(report, trials=report.trials[:2])
    assert findings.search_estimate(without, FAST) is None  # nobody measured how far they are apart


def test_the_finalists_note_says_what_was_held_out_and_how_the_estimates_did() -> None:
    assert finalists_note(rebased()) == (
        "Fresh servers and held-out prompts (set held-out; the search had set tuning)."
        " The baseline is the server without speculation at its best settings: none --batch=8."
        " Confirmed figures are 3.9 % below the search estimates on average."
    )
    assert finalists_note(rebased()) in tables.finalists(rebased()).note
    same = [replace(b, prompt_set="one") for b in rebased().blocks]
    assert "held-out" not in finalists_note(replace(rebased(), blocks=same))


def test_the_terminal_names_an_unusual_baseline_and_search() -> None:
    from rich.console import Console

    def shown(report: ReportInput) -> str:
        console = Console(width=200, force_terminal=False)
        with console.capture() as capture:
            for line in verdict_lines(report):
                console.print(line)
        return capture.get()

    assert "none --batch=8" in shown(rebased())
    assert "drift anchors" not in shown(rebased())
    anchored = searched([0.01], [trial(1, FAST, 0.1, blocks=(1,), anchors=(0, 10))])
    assert "drift anchors" in shown(anchored)
