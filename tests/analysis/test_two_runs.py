"""Two runs side by side: like with like, within intervals, and nothing claimed of one against the other."""

import json
import math
from dataclasses import replace

import pytest

from analysis import two_runs, two_runs_page, two_runs_tables
from analysis.report_input import Comparison, ReportInput, Side
from analysis.two_runs import TwoRuns
from results.records import Effect, Phase, Verdict, VerdictKind
from tests.analysis import samples
from tests.analysis.test_report import Page, hostile


def confirmed(log: float, half_width: float = 0.02, searched: float = 0.3) -> ReportInput:
    """A run with NGRAM confirmed at `log`, and seen in the search at `searched`."""
    verdict = samples.verdict(VerdictKind.BETTER, samples.NGRAM, log, half_width, 2.0)
    return ReportInput(
        name="x",
        trials=[samples.trial(1, samples.NGRAM, searched, ())],
        verdicts=(verdict,),
        winner=verdict,
        finished=True,
    )


@pytest.mark.parametrize(
    ("change", "beyond"), [(0.0, False), (0.028, False), (0.029, True), (-0.028, False), (-0.029, True)]
)
def test_a_speed_up_moved_if_both_intervals_do_not_explain_it(change: float, beyond: bool) -> None:
    (found,) = two_runs.moved(TwoRuns(confirmed(0.2), confirmed(0.2 + change)))
    assert found.change == pytest.approx(change)
    assert found.beyond_noise is beyond  # sqrt(0.02^2 + 0.02^2) = 0.0283


def test_confirmations_are_compared_where_both_have_one() -> None:
    (found,) = two_runs.moved(TwoRuns(confirmed(0.2, searched=0.4), confirmed(0.2, searched=0.1)))
    assert found.a.confirmed and found.b.confirmed and found.change == 0


def test_a_confirmation_is_never_set_beside_a_search_estimate() -> None:
    searched = replace(confirmed(0.0, searched=0.3), verdicts=(), winner=None)
    (found,) = two_runs.moved(TwoRuns(confirmed(0.2, searched=0.3), searched))
    assert not found.a.confirmed and not found.b.confirmed and found.change == 0


def test_without_an_interval_nothing_is_said_of_noise() -> None:
    searched = replace(confirmed(0.0), verdicts=(), winner=None)
    (found,) = two_runs.moved(TwoRuns(searched, searched))
    assert found.beyond_noise is None
    assert two_runs_tables.speedups(TwoRuns(searched, searched)).rows[0][4].text == "unknown: no interval"


def test_runs_with_different_objectives_have_no_common_speed_up() -> None:
    two = TwoRuns(confirmed(0.2), replace(confirmed(0.2), objective="tpot_p50_s"))
    assert two_runs.moved(two) == []
    assert "no speed-up compares" in two_runs.sentence(two)


def test_the_sentence_names_what_moved() -> None:
    two = TwoRuns(confirmed(math.log(1.25)), confirmed(math.log(1.05)))
    assert f"most of all {samples.NGRAM.label}: from 1.25x to 1.05x." in two_runs.sentence(two)
    assert "none moved beyond its noise" in two_runs.sentence(TwoRuns(confirmed(0.2), confirmed(0.2)))
    assert two_runs.sentence(TwoRuns(confirmed(0.2), samples.partial(0))).startswith("No configuration")


def test_what_was_asked_and_where_is_compared_setting_by_setting() -> None:
    a = replace(
        confirmed(0.2), sweep_yaml="name: a\nload: [{closed: 1}]\n", environment={"host": {"cpu": "X"}}
    )
    b = replace(a, sweep_yaml="name: a\nload: [{closed: 8}]\nseed: 3\n", environment={"host": {"cpu": "Y"}})
    two = TwoRuns(a, b)
    rows = [tuple(e.text for e in row) for row in two_runs_tables.sweeps(two).rows]
    assert rows == [("load.0.closed", "1", "8"), ("seed", "not set", "3")]
    assert [e.text for e in two_runs_tables.environments(two).rows[0]] == ["host.cpu", "X", "Y"]
    assert two_runs.cautions(two) == ["The machine or its software is not the same."]


def test_the_hour_is_no_difference_of_the_environment() -> None:
    a = replace(confirmed(0.2), environment={"host": {"taken_at": 1.7e9, "cpu": None}})
    b = replace(confirmed(0.2), environment={"host": {"taken_at": 1.8e9}})
    assert two_runs_tables.environments(TwoRuns(a, b)).rows == () and two_runs.cautions(TwoRuns(a, b)) == []


def test_the_two_files_of_a_comparison_stay_apart() -> None:
    yaml = "# A: a.yaml\nseed: 1\nspace: {none: }\n\n# B: b.yaml\nseed: 2\n"
    sides = (Side("A", "a.yaml", samples.NGRAM), Side("B", "b.yaml", samples.DRAFT))
    a = replace(confirmed(0.2), comparison=Comparison(sides), sweep_yaml=yaml)
    b = replace(a, sweep_yaml=yaml.replace("seed: 2", "seed: 9"))
    rows = [tuple(e.text for e in row) for row in two_runs_tables.sweeps(TwoRuns(a, b)).rows]
    assert rows == [("B.seed", "2", "9")]


def test_baselines_are_shown_as_no_paired_measurement() -> None:
    logs = [0.0] * len(samples.CELLS)
    confirm = [samples.block(i, samples.NGRAM, logs, 2.0, Phase.CONFIRM) for i in (1, 2)]
    search = [samples.block(i, samples.NGRAM, logs, 2.0) for i in (3, 4, 5)]
    both = TwoRuns(
        ReportInput("a", blocks=[*search, *confirm]), ReportInput("b", blocks=[*confirm[:1], *search])
    )
    assert [(len(each.a), len(each.b)) for each in two_runs.baselines(both)] == [(2, 1)] * 5
    mixed = TwoRuns(ReportInput("a", blocks=[*search, *confirm]), ReportInput("b", blocks=search))
    assert [(len(each.a), len(each.b)) for each in two_runs.baselines(mixed)] == [(3, 3)] * 5
    assert two_runs_tables.throughput(both).note.startswith("Not a paired measurement")


@pytest.mark.parametrize("draw", [two_runs_page.html, two_runs_page.markdown, two_runs_page.as_json])
@pytest.mark.parametrize("name", samples.SAMPLES)
def test_every_pair_of_runs_can_be_drawn(name: str, draw: object) -> None:
    assert callable(draw)
    text = draw(TwoRuns(samples.better(), samples.SAMPLES[name]()))
    assert "qwen3-8b-4090" in text


def test_all_forms_say_that_nothing_is_paired() -> None:
    two = TwoRuns(samples.better(), samples.nothing_beats())
    document = json.loads(two_runs_page.as_json(two))
    assert document["paired"] is False
    for text in (Page(two_runs_page.html(two)).text, two_runs_page.markdown(two)):
        assert "no paired measurement" in text and "tuner compare" in text


def test_json_has_the_numbers() -> None:
    document = json.loads(two_runs_page.as_json(TwoRuns(confirmed(0.2), confirmed(0.1))))
    (found,) = document["speedups"]
    assert found["a"] == pytest.approx(
        {"speedup": math.exp(0.2), "low": math.exp(0.18), "high": math.exp(0.22), "confirmed": True}
    )
    assert found["beyond_noise"] is True and found["change"] == pytest.approx(math.exp(-0.1))


def test_nothing_in_a_record_becomes_markup() -> None:
    drawn = Page(two_runs_page.html(TwoRuns(replace(hostile(), sweep_yaml="a: '<img>'"), samples.better())))
    assert drawn.tags.count("script") == 1 and "img" not in drawn.tags


def test_an_effect_without_width_is_no_division() -> None:
    verdict = Verdict(VerdictKind.SAME, samples.NGRAM, Effect(0.0, 0.0, 0.0, 4), {}, (), None, None, None, "")
    same = ReportInput("x", verdicts=(verdict,))
    (found,) = two_runs.moved(TwoRuns(same, same))
    assert found.beyond_noise is False
