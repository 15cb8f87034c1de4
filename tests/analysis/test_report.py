"""The report in its four formats, from finished, partial and failed runs."""

import csv as csv_format
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from analysis import findings, noise, report, words
from analysis.answer import Tone, answer
from analysis.block import OBJECTIVES
from analysis.report import ReportInput
from analysis.shrinkage import expected, of_trials
from analysis.terms import definitions
from results.reasons import Reason
from results.records import (
    BASELINE,
    Acceptance,
    AcceptanceState,
    Effect,
    Failure,
    Phase,
    Point,
    SpecCounters,
    Trial,
    TrialState,
    VerdictKind,
)
from tests.analysis import samples

_VOID = {"meta", "br", "hr", "img", "link", "input"}
BASELINE_TRIAL = Trial(0, BASELINE, "start", TrialState.MEASURED, 0.0, {}, ())
_FETCHING = {"src", "srcset", "action", "data", "poster", "background"}


class Page(HTMLParser):
    """Reads a page strictly: every tag closed in order, every id and reference collected."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.feed(document)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert name not in _FETCHING, (tag, name)
            assert not name.startswith("on"), (tag, name)
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.references.append(value or "")
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self._open or "script" in self._open:
            return
        self.words.append(data)
        if "td" in self._open or "th" in self._open:
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    return {name: Page(report.html(sample())) for name, sample in samples.SAMPLES.items()}


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_a_page_needs_nothing_but_itself(name: str, pages: dict[str, Page]) -> None:
    page = pages[name]
    assert len(page.ids) == len(set(page.ids))
    assert all(r.startswith("#") and r[1:] in page.ids for r in page.references)
    assert "link" not in page.tags and "img" not in page.tags and "iframe" not in page.tags
    assert page.tags.count("h1") == 1
    document = report.html(samples.SAMPLES[name]())
    assert not re.search(r"https?://|@import|url\((?!#)", document)


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_every_format_draws_every_run(name: str) -> None:
    sample = samples.SAMPLES[name]()
    document = json.loads(report.as_json(sample))
    assert document["finished"] is sample.finished
    assert len(document["trials"]) == len(sample.trials)
    assert len(list(csv_format.DictReader(report.csv(sample).splitlines()))) == len(sample.trials)
    assert report.markdown(sample).startswith("# ")


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_the_same_run_gives_the_same_page(name: str) -> None:
    assert report.html(samples.SAMPLES[name]()) == report.html(samples.SAMPLES[name]())


def test_the_answer_stands_on_top(pages: dict[str, Page]) -> None:
    text = pages["better"].text
    top = text[: text.index("Run the winner")]
    assert "1.21x the speed of the same server without speculation" in top
    assert "The interval is 1.16x to 1.26x, from 8 Blocks" in top
    assert all(cell.label in top for cell in samples.CELLS)
    assert samples.better().headline in top


def test_the_banner_comes_before_everything_but_the_headline(pages: dict[str, Page]) -> None:
    text = pages["mixed"].text
    banner = samples.mixed_signs().banner
    assert banner is not None and banner in text
    assert text.index(banner) < text.index("Holds for")
    assert "Caution" not in pages["better"].text


def test_nothing_beats_the_baseline_is_an_answer(pages: dict[str, Page]) -> None:
    said = answer(samples.nothing_beats())
    assert said.tone is Tone.STAY
    assert said.big == "No configuration beats the baseline"
    text = pages["nothing"].text
    assert "Run the server without speculation" in text
    assert "was confirmed at 1.00x (0.99x to 1.01x)" in text
    assert "It does gain in some classes: code edit 1.18x" in text


@pytest.mark.parametrize(
    ("kinds", "big", "tone"),
    [
        ((VerdictKind.UNDECIDED, VerdictKind.WORSE), "Not decided", Tone.OPEN),
        ((VerdictKind.INVALID,), "No valid answer", Tone.OPEN),
        ((VerdictKind.SAME, VerdictKind.INVALID), "No configuration beats the baseline", Tone.STAY),
        ((), "Nothing was confirmed", Tone.OPEN),
    ],
)
def test_no_winner_is_told_apart(kinds: tuple[VerdictKind, ...], big: str, tone: Tone) -> None:
    verdicts = [samples.verdict(kind, samples.NGRAM, -0.01, 0.02, 2.0) for kind in kinds]
    said = answer(replace(samples.nothing_beats(), verdicts=verdicts))
    assert (said.big, said.tone) == (big, tone)


def test_a_winner_that_is_not_better_is_not_announced() -> None:
    same = replace(samples.better().verdicts[0], kind=VerdictKind.SAME)
    said = answer(replace(samples.better(), winner=same, verdicts=(same,)))
    assert said.tone is Tone.STAY


def test_a_partial_run_says_what_is_missing(pages: dict[str, Page]) -> None:
    assert "Not finished" in pages["partial0"].text
    assert "No trial has been recorded." in pages["partial0"].text
    assert "The baseline has not been measured" in pages["partial0"].text
    assert "The baseline has not been measured" not in pages["partial1"].text
    assert "No finalist has been confirmed" in pages["partial3"].text
    assert "Best search estimate" in pages["partial3"].text
    assert "Nothing could be measured" in pages["failures"].text


def test_a_complete_run_misses_nothing(pages: dict[str, Page]) -> None:
    assert findings.missing(samples.better()) == []
    assert "What this run does not say" not in pages["better"].text


def test_a_run_without_acceptance_says_so() -> None:
    sample = samples.partial(1)
    assert "No acceptance was measured." not in findings.missing(sample)
    assert "No acceptance was measured." in findings.missing(replace(sample, blocks=()))


@pytest.mark.parametrize("name", ["better", "mixed", "failures"])
def test_every_failure_is_listed_with_reason_and_evidence(name: str, pages: dict[str, Page]) -> None:
    rows = pages[name].rows
    lost = findings.failed(samples.SAMPLES[name]().trials)
    assert lost
    for trial in lost:
        assert trial.failure is not None
        reason, evidence = trial.failure.reason, trial.failure.evidence
        meaning = f"{words.REASONS[reason]}. {words.REMEDIES[reason]}"
        expected = [str(trial.number), trial.point.label, reason.value, meaning, evidence]
        assert expected in rows


def test_a_failed_trial_has_no_speed_up_in_the_table_of_trials(pages: dict[str, Page]) -> None:
    rows = [
        r for r in pages["better"].rows if len(r) == 8 and r[5] in ("START_OOM", "CONFIG_REJECTED", "HANG")
    ]
    assert [r[2] for r in rows] == ["no number"] * 3


def test_every_trial_has_its_row_with_the_interval(pages: dict[str, Page]) -> None:
    rows = {r[0]: r for r in pages["mixed"].rows if len(r) == 8 and r[0].isdigit()}
    sample = samples.mixed_signs()
    for trial in sample.trials:
        assert rows[str(trial.number)][1] == trial.point.label
    effect = noise.trial_effect(sample.trials[0], noise.block_noise(sample.blocks))
    assert effect is not None
    assert rows["0"][2] == words.times_with_interval(effect)
    shrunken = expected(sample.trials[0], of_trials(sample.trials, noise.block_noise(sample.blocks)))
    assert shrunken is not None
    assert rows["0"][3] == words.times(shrunken)
    assert rows["5"][2:6] == ["0.71x", "", "", "stopped early"]


def test_a_block_that_was_thrown_away_says_why(pages: dict[str, Page]) -> None:
    thrown = next(r for r in pages["better"].rows if r[0] == "990")
    meaning = f"{words.REASONS[Reason.HOST_PRESSURE]}. {words.REMEDIES[Reason.HOST_PRESSURE]}"
    assert thrown[3:] == ["HOST_PRESSURE", meaning, "2.4 foreign cores busy during arm 2 (limit 0.5)"]


def test_latency_shows_baseline_and_winner(pages: dict[str, Page]) -> None:
    row = next(r for r in pages["better"].rows if r[:2] == ["chat @ closed(4)", "TTFT"])
    assert row[2:] == ["210 ms → 225 ms", "336 ms → 360 ms", "483 ms → 518 ms"]


def test_identical_outputs_stand_beside_their_control(pages: dict[str, Page]) -> None:
    row = next(r for r in pages["better"].rows if r[0] == samples.NGRAM.label and len(r) == 3)
    assert row[1:] == ["92\N{NO-BREAK SPACE}%", "96\N{NO-BREAK SPACE}%"]


def test_identical_outputs_of_a_partial_run_come_from_its_blocks(pages: dict[str, Page]) -> None:
    row = next(r for r in pages["partial1"].rows if r[0] == samples.NGRAM.label and len(r) == 3)
    assert row[1:] == ["92\N{NO-BREAK SPACE}%", "96\N{NO-BREAK SPACE}%"]


def test_the_command_can_be_copied_exactly(pages: dict[str, Page]) -> None:
    assert samples.COMMAND in "".join(pages["better"].words)


def test_environment_is_flattened_for_people(pages: dict[str, Page]) -> None:
    assert ["gpus.1.power_limit_w", "450"] in pages["better"].rows
    assert ["host.governor", "unknown"] in pages["better"].rows
    assert ["flags", "avx512, amx"] in pages["better"].rows


def test_every_term_is_defined(pages: dict[str, Page]) -> None:
    for term, meaning in definitions().items():
        assert f"{term}{meaning}" in pages["partial0"].text


def test_every_reason_has_words() -> None:
    assert set(words.REASONS) == set(words.REMEDIES) == set(Reason)
    assert set(words.VERDICTS) == set(VerdictKind)
    assert set(words.STATES) == set(TrialState)


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\" ' & \x1b[31m|`*_"


def hostile() -> ReportInput:
    point = Point(HOSTILE, {HOSTILE: HOSTILE})
    found, blocks = samples.searched(1, 0.1)
    shot = samples.failed_trial(7, point, Reason.HANG, HOSTILE)
    judged = replace(
        samples.verdict(VerdictKind.BETTER, point, 0.1, 0.01, 2.0),
        by_class={HOSTILE: Effect(0.1, 0.05, 0.15, 4)},
        cells=(HOSTILE,),
        why=HOSTILE,
        warnings=(HOSTILE,),
    )
    thrown = replace(blocks[0], number=99, invalid=Failure(Reason.CONFOUNDED, HOSTILE))
    return ReportInput(
        name=HOSTILE,
        trials=[
            *found,
            shot,
            replace(found[0], number=8, point=point, by_cell={HOSTILE: 0.1}, source=HOSTILE),
        ],
        blocks=[*blocks, thrown],
        verdicts=(judged,),
        winner=judged,
        headline=HOSTILE,
        banner=HOSTILE,
        command=HOSTILE,
        environment={HOSTILE: [{HOSTILE: HOSTILE}]},
        sweep_yaml=HOSTILE,
        calibration={HOSTILE: HOSTILE},
        phases_s={HOSTILE: 1.0},
        finished=True,
    )


def test_nothing_in_a_record_becomes_markup() -> None:
    page = Page(report.html(hostile()))
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert "\x1b" not in report.html(hostile())


def test_markdown_cells_stay_in_their_column() -> None:
    text = report.markdown(hostile())
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    assert len(tables) >= 6
    for lines in tables:
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        assert len(columns) == 1, lines
    outside_fences = "".join(text.split("```")[::2])
    assert not re.search(r"(?<!\\)<", outside_fences)


def test_a_fence_is_longer_than_the_backticks_inside() -> None:
    text = report.markdown(replace(samples.better(), command="echo ```` x"))
    assert "`````\necho ```` x\n`````" in text


def test_csv_has_factors_knobs_and_reasons() -> None:
    sample = samples.better()
    rows = {r["trial"]: r for r in csv_format.DictReader(report.csv(sample).splitlines())}
    first = rows["0"]
    assert float(first["speedup"]) == pytest.approx(math.exp(sample.trials[0].log_speedup or 0.0))
    assert float(first["low"]) < float(first["speedup"]) < float(first["high"])
    assert (first["knob.size_m"], first["blocks"], first["reason"]) == ("12", "1", "")
    assert rows["3"]["speedup"] == "" and rows["3"]["reason"] == "START_OOM"
    assert rows["5"]["state"] == "hopeless" and rows["5"]["low"] == ""


def test_json_has_the_confirmed_and_the_searched_number() -> None:
    document = json.loads(report.as_json(samples.better()))
    winner = document["winner"]
    assert winner["confirmed"]["speedup"] == pytest.approx(math.exp(0.1906))
    assert winner["search_estimate"] == pytest.approx(math.exp(samples.better().trials[0].log_speedup or 0.0))
    assert document["answer"]["tone"] == "faster"
    assert document["invalid_blocks"] == [
        {
            "block": 990,
            "phase": "confirm",
            "reason": "HOST_PRESSURE",
            "evidence": "2.4 foreign cores busy during arm 2 (limit 0.5)",
        }
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_a_trial_without_a_usable_number_counts_as_failed(value: float | None) -> None:
    sample = samples.partial(1)
    odd = replace(sample, trials=[replace(sample.trials[0], log_speedup=value)])
    assert json.loads(report.as_json(odd))["trials"][0]["speedup"] is None
    assert "NO_NUMBER" in Page(report.html(odd)).text


def test_log_ratios_are_never_shown() -> None:
    sample = samples.better()
    shown = report.html(sample) + report.markdown(sample) + report.csv(sample) + report.as_json(sample)
    assert "0.1906" not in shown
    assert f"{sample.trials[0].log_speedup}" not in shown


def test_a_limit_that_was_broken_is_said_with_the_speed_up_it_had() -> None:
    failure = Failure(Reason.LIMIT_EXCEEDED, "ttft p95 1.3 s > 1.0 s")
    trial = replace(samples.partial(1).trials[0], failure=failure, log_speedup=0.2, limits={"ttft_p95": 0.26})
    page = Page(report.html(ReportInput(name="x", trials=[trial])))
    assert any("ttft_p95 at 1.30x of its limit; speed-up 1.22x" in cell for row in page.rows for cell in row)


def test_a_run_says_where_the_intervals_of_its_trials_come_from(pages: dict[str, Page]) -> None:
    assert "fastest first, with 95 % intervals from how much the speed-up" in pages["better"].text
    assert "fastest first, without intervals" in pages["partial3"].text
    assert "the baseline changes from one Block" in Page(report.html(samples.partial(12))).text


@pytest.mark.parametrize(
    ("objective", "unit", "meaning"),
    [
        (
            "tokens_per_s",
            "the speed of the same server",
            "Output tokens per second of a configuration divided",
        ),
        ("mean_request_tokens_per_s", "the speed per request of", "per second, the mean over requests, of a"),
        (
            "ttft_p95_s",
            "as fast to the first token as the same server",
            "TTFT p95 of the baseline divided by",
        ),
        (
            "end_to_end_p50_s",
            "as fast to the last token as",
            "end-to-end time p50 of the baseline divided by",
        ),
    ],
)
def test_the_words_follow_the_objective(objective: str, unit: str, meaning: str) -> None:
    text = Page(report.html(replace(samples.better(), objective=objective))).text
    assert f"1.21x {unit}" in text
    assert meaning in text


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_has_words(objective: str) -> None:
    assert "without speculation" in words.than_baseline(objective)
    assert "in the same Blocks" in definitions(objective)["Speed-up"]


def test_same_is_as_wide_as_the_sweep_says() -> None:
    narrow = replace(samples.better(), same_margin=0.005)
    assert "SAME: it lies within 0.5 % of 1.00x" in Page(report.html(narrow)).text
    assert "SAME: it lies within 0.5 % of 1.00x" in report.markdown(narrow)


def test_a_run_without_a_number_says_what_failed_most_and_what_to_do(pages: dict[str, Page]) -> None:
    failures = [
        samples.failed_trial(i, samples.NGRAM, reason, f"line\n{i}")
        for i, reason in enumerate((Reason.HANG, Reason.START_OOM, Reason.START_OOM))
    ]
    ended = ReportInput(name="x", trials=[BASELINE_TRIAL, *failures], finished=True)
    said = answer(ended)
    assert (said.big, said.tone) == ("Nothing could be measured", Tone.OPEN)
    assert said.details == (
        "3 trials, 0 with a number, 3 failed.",
        "Not enough memory to start (START_OOM, 2 of 3 failures): line 1",
        words.REMEDIES[Reason.START_OOM],
    )
    assert words.REMEDIES[Reason.START_OOM] in pages["failures"].text
    assert answer(replace(ended, finished=False)).big == "Not finished"
    assert answer(replace(ended, trials=())).big == "Nothing could be measured"


@pytest.mark.parametrize(
    ("sample", "title"),
    [
        (samples.better(), "Run the winner"),
        (samples.nothing_beats(), "Run the server without speculation"),
        (replace(samples.partial(3), command="x"), "Run the best so far, which is not shown to be faster"),
    ],
)
def test_the_command_says_what_it_runs(sample: ReportInput, title: str) -> None:
    assert Page(report.html(sample)).text.count(title) >= 1
    assert f"## {title}\n\n```\n{sample.command}\n```" in report.markdown(sample)


def test_acceptance_is_pooled_over_windows_by_their_counts() -> None:
    sample = samples.partial(1)
    few = (Acceptance(AcceptanceState.UNKNOWN, counters=SpecCounters(100, 200, 50, (50,))), 150)
    many = (Acceptance(AcceptanceState.UNKNOWN, counters=SpecCounters(300, 600, 450, (270, 180))), 750)
    block = sample.blocks[0]
    arm = block.arm(samples.NGRAM)
    assert arm is not None
    measurements = tuple(
        replace(m, acceptance=a, tokens_by_prompt={"p1": tokens})
        for m, (a, tokens) in zip(arm.measurements, (few, many), strict=False)
    )
    pooled = findings.pooled_acceptance(
        samples.NGRAM, [replace(block, arms=(replace(arm, measurements=measurements),))]
    )
    assert pooled.length == pytest.approx(900 / 400)  # 900 tokens, 500 of them accepted drafts
    assert pooled.per_position == pytest.approx((0.8, 0.45))


def test_latency_comes_from_the_confirmation_where_there_is_one() -> None:
    logs = [0.0] * len(samples.CELLS)
    search = [samples.block(i, samples.NGRAM, [v - 1 for v in logs], 2.0) for i in range(3)]
    confirm = samples.block(9, samples.NGRAM, logs, 2.0, Phase.CONFIRM)
    alone = findings.latencies(samples.NGRAM, [confirm])
    assert findings.latencies(samples.NGRAM, [*search, confirm]) == alone
    assert findings.latencies(samples.NGRAM, search) != alone


def test_knob_effects_compare_values_that_were_repeated() -> None:
    values = [(1, 0.0), (1, 0.02), (2, 0.10), (2, 0.12), (3, 0.9), (4, 0.05), (4, 0.07), (4, 0.06)]
    trials = [samples.trial(i, Point("m", {"k": v}), log, ()) for i, (v, log) in enumerate(values)]
    (effect,) = findings.knob_effects(trials)
    assert (effect.knob, effect.worst_value, effect.best_value, effect.trials) == ("k", 1, 2, 7)
    assert [effect.worst, effect.best] == pytest.approx([0.01, 0.11])
    assert findings.knob_effects(trials[:7]) == []


@pytest.mark.parametrize(
    ("effect", "text"),
    [
        (Effect(math.log(1.23), math.log(1.18), math.log(1.29), 4), "1.23x (1.18x to 1.29x)"),
        (Effect(0.004, 0.001, 0.007, 4), "1.004x (1.001x to 1.007x)"),
        (Effect(0.1, -900.0, 900.0, 4), "1.11x (unknown to unknown)"),
        (None, "unknown"),
    ],
)
def test_speed_ups_are_factors(effect: Effect | None, text: str) -> None:
    assert words.times_with_interval(effect) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.998, "99.8 %"), (1.0, "100 %"), (0.003, "0.3 %"), (0.0, "0 %"), (0.874, "87 %"), (None, "unknown")],
)
def test_percent_is_never_rounded_to_all_or_nothing(share: float | None, text: str) -> None:
    assert words.percent(share) == text.replace(" %", "\N{NO-BREAK SPACE}%")


@pytest.mark.parametrize(
    ("seconds", "text"), [(42.0, "42 s"), (700.0, "12 min"), (11100.0, "3 h 05 min"), (0.0, "0 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert words.long_time(seconds) == text
