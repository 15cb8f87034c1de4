"""The figures: what they draw, what they say, and that they fit into a page of any colour."""

import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from analysis import findings, plots, svg
from analysis.report_input import ReportInput
from results.records import Point, TrialState
from tests.analysis import samples

ALL = {"convergence", "ranking", "knobs", "class-map", "confirmation", "positions", "lengths"}


@pytest.fixture(scope="module")
def better() -> ReportInput:
    return samples.better()


@pytest.fixture(scope="module")
def drawn(better: ReportInput) -> dict[str, plots.Figure]:
    return plots.figures(better)


def texts(figure: plots.Figure) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", figure.svg)


def test_a_full_run_has_every_figure(drawn: dict[str, plots.Figure]) -> None:
    assert drawn.keys() == ALL


@pytest.mark.parametrize("id", sorted(ALL))
def test_colours_are_the_pages_own(drawn: dict[str, plots.Figure], id: str) -> None:
    assert "var(--" in drawn[id].svg
    assert not re.search(r'[:"] ?#[0-9a-fA-F]{3,8}\b', re.sub(r'href="#[^"]*"', "", drawn[id].svg))
    assert "font-family" not in drawn[id].svg
    assert "http" not in drawn[id].svg


@pytest.mark.parametrize("id", sorted(ALL))
def test_every_figure_is_described(drawn: dict[str, plots.Figure], id: str) -> None:
    figure = drawn[id]
    assert figure.svg.startswith(f'<svg viewBox="0 0 {svg.WIDTH} ')
    assert 'role="img"' in figure.svg
    assert f'<title id="figure-{id}-title">{figure.title}</title>' in figure.svg
    assert f'<desc id="figure-{id}-text">' in figure.svg
    assert re.search(r"\d", figure.caption) and figure.caption.endswith(".")


def test_the_same_records_draw_the_same_svg(better: ReportInput, drawn: dict[str, plots.Figure]) -> None:
    again = plots.figures(better)
    assert {id: f.svg for id, f in again.items()} == {id: f.svg for id, f in drawn.items()}


def test_references_inside_a_figure_are_kept_and_unique(drawn: dict[str, plots.Figure]) -> None:
    page = "".join(f.svg for f in drawn.values())
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', page)) <= {(i, "") for i in ids} | {
        ("", i) for i in ids
    }


def test_drawing_leaves_the_settings_of_matplotlib_alone(better: ReportInput) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    plots.convergence(better)
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("id", ["convergence", "ranking"])
def test_failures_are_marked_by_reason_and_not_drawn_as_slow(drawn: dict[str, plots.Figure], id: str) -> None:
    labels = {k.label: k.glyph for k in drawn[id].keys}
    assert labels["START_OOM (1)"] == "a" and labels["HANG (1)"] == "c"
    assert {"a", "b", "c", "failed"} <= set(texts(drawn[id]))
    assert "3 trials failed and have no number" in drawn["convergence"].caption
    assert "of 11 measured trials" in drawn["ranking"].caption


def test_neighbouring_failures_of_one_reason_share_a_letter() -> None:
    figure = plots.ranking(samples.mixed_signs(60))
    assert figure is not None
    assert [t for t in texts(figure) if t in "abc"] == ["a", "b", "c"]


def test_best_so_far_names_the_trial_that_first_reached_it(drawn: dict[str, plots.Figure]) -> None:
    trials = findings.measured(samples.better().trials)
    best = max(trials, key=lambda t: t.log_speedup or 0.0)
    expected = f"{math.exp(best.log_speedup or 0.0):.2f}x in trial {best.number}"
    assert expected in drawn["convergence"].caption


def test_classes_are_named_from_best_to_worst(drawn: dict[str, plots.Figure]) -> None:
    assert "from 1.43x (code edit) to 1.11x (chat)" in drawn["class-map"].caption
    names = [t for t in texts(drawn["class-map"]) if t in samples.CLASSES]
    assert names == ["code edit", "extraction", "reasoning", "translation", "chat"]


def test_classes_before_the_confirmation_are_called_a_search_estimate() -> None:
    figure = plots.classes(samples.partial(3))
    assert figure is not None and "not confirmed" in figure.caption


def test_confirmed_stands_beside_the_search_estimate(drawn: dict[str, plots.Figure]) -> None:
    estimate = findings.search_estimate(samples.better(), samples.NGRAM)
    assert estimate is not None
    assert f"the search saw {math.exp(estimate):.2f}x" in drawn["confirmation"].caption
    assert "it is 1.21x" in drawn["confirmation"].caption


def test_acceptance_caption_states_the_first_and_the_last_position(drawn: dict[str, plots.Figure]) -> None:
    assert "80\N{NO-BREAK SPACE}% of the drafts" in drawn["positions"].caption
    assert "30\N{NO-BREAK SPACE}% all 6" in drawn["positions"].caption


def test_the_longest_acceptance_is_not_called_the_fastest(drawn: dict[str, plots.Figure]) -> None:
    assert "while the fastest trial" in drawn["lengths"].caption


@pytest.mark.parametrize("trials", [0, 1, 3])
def test_knobs_are_hidden_when_there_are_too_few_trials(trials: int) -> None:
    assert plots.knobs(samples.partial(trials)) is None


def test_no_trial_no_figure() -> None:
    assert plots.figures(samples.partial(0)) == {}
    assert plots.figures(samples.only_failures()) == {}


def test_stopped_early_is_hollow() -> None:
    whole = samples.partial(1)
    hollow = replace(whole, trials=[replace(whole.trials[0], state=TrialState.HOPELESS)])
    for report, filled in ((whole, True), (hollow, False)):
        figure = plots.convergence(report)
        assert figure is not None and ("fill: var(--paper)" not in figure.svg) is filled


def test_labels_are_text_whatever_they_contain() -> None:
    point = Point("a<b>&$x^2$", {"#000001": 'id="x" url(#y) 1.23456 \x1b[31mred'})
    verdict = replace(samples.better().verdicts[0], point=point, by_class={})
    figure = plots.confirmation(ReportInput(name="x", verdicts=[verdict]))
    assert figure is not None
    assert "a&lt;b&gt;&amp;$x^2$ #000001=id=" in figure.svg
    assert "\x1b" not in figure.svg


def test_more_methods_than_marks_share_the_last() -> None:
    trials = [replace(samples.trial(i, Point(f"m{i}"), 0.01 * i, ())) for i in range(8)]
    figure = plots.convergence(ReportInput(name="x", trials=trials))
    assert figure is not None
    assert [k.label for k in figure.keys if k.label.startswith("m")] == [
        "m0",
        "m1",
        "m2",
        "m3",
        "m4",
        "m5, m6, m7",
    ]


@pytest.mark.parametrize(("spread", "decimals"), [(0.2, 2), (0.004, 3)])
def test_the_marks_of_a_scale_are_told_apart(spread: float, decimals: int) -> None:
    trials = [samples.trial(i, samples.NGRAM, spread * (i - 3), ()) for i in range(7)]
    figure = plots.ranking(ReportInput(name="x", trials=trials))
    assert figure is not None
    marks = [t for t in texts(figure) if re.fullmatch(r"[\d.]+x", t)]
    values = [float(m.removesuffix("x")) for m in marks]
    steps = {round(b - a, 6) for a, b in pairwise(values)}
    assert len(marks) >= 3 and len(steps) == 1  # as even as they are drawn
    assert all(len(m.removesuffix("x").partition(".")[2]) == decimals for m in marks)
