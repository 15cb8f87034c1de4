"""The night in Markdown, in a terminal and in JSON."""

import io
import json
import re
from dataclasses import replace

import cmarkgfm
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from analysis.nightly.figures import bare, change_between, figure, name_of
from analysis.nightly.judgement import Judgement, State
from analysis.nightly.text import MOST_ROWS, as_json, lines, summary
from results.nights import SPEED_UP, NightVerdict
from tests.analysis.nightly import nights


def rendered(markdown: str) -> str:
    """HTML as GitHub makes it."""
    options = cmarkgfm.Options.CMARK_OPT_UNSAFE
    return str(cmarkgfm.github_flavored_markdown_to_html(markdown, options))


def shown(judgement: Judgement, width: int, *, colours: bool = False) -> str:
    written = io.StringIO()
    kind = "standard" if colours else None
    console = Console(file=written, width=width, highlight=False, force_terminal=colours, color_system=kind)  # type: ignore[arg-type]
    for renderable in lines(judgement):
        console.print(renderable)
    return written.getvalue()


class TestSummary:
    @pytest.mark.parametrize(
        ("name", "first"),
        [
            ("pass", "Passed: 1.210x the speed of the baseline, nothing got worse"),
            ("drafter", "Regression: speed-up fell from 1.210x to 1.080x, and 5 more series"),
            ("machine", "Regression: baseline throughput fell from 400.0 tokens/s to 330.0 tokens/s"),
            ("not-speculating", "Regression: the pinned configuration is broken"),
            ("leak", "Regression: speed-up is lost slowly over the nights"),
            (
                "young",
                "Not judged yet: too few nights to compare with; tonight 1.060x the speed of the baseline",
            ),
            ("drifted", "Not comparable: the server ran with other settings than in the nights before"),
            ("invalid", "Not measured: nothing is known of tonight"),
            ("false-alarm", "False alarm: the gate tells a difference between the baseline and itself"),
        ],
    )
    def test_the_first_line_is_the_verdict_in_words(self, name: str, first: str) -> None:
        assert summary(nights.explained(name)).splitlines()[0] == f"## {first}"

    @pytest.mark.parametrize("name", nights.SAMPLES)
    def test_then_every_sentence_of_the_explanation(self, name: str) -> None:
        page = rendered(summary(nights.explained(name)))
        assert page.count("<li>") == len(nights.explained(name).night.said)

    def test_the_worst_stand_first_and_the_rest_is_folded(self) -> None:
        page = rendered(summary(nights.explained("many")))
        open_, folded, _ = page.split("<details>")
        series = re.findall(r"<td>speed-up, class (\d+) @", page)
        assert series[:2] == ["11", "10"]
        assert len(series) == 40
        assert open_.count("<td>speed-up") == MOST_ROWS
        assert "20 more series" in folded
        assert "<table>" in folded  # rendered, not left as text

    def test_told_series_and_what_it_was_measured_with(self) -> None:
        page = rendered(summary(nights.explained("drafter")))
        assert '<td>winner\'s start time</td>\n<td align="right">74.0 s</td>' in page
        assert "<td>engine</td>\n<td>sglang 0.5.23</td>" in page
        assert "5 Blocks" in page

    def test_columns_without_a_figure_are_not_drawn(self) -> None:
        young = summary(nights.explained("young", 5))
        assert "| series | tonight | nights | state |" in young
        assert "| rerun |" not in summary(nights.explained("pass"))

    @given(st.text(), st.text())
    def test_no_text_of_a_record_acts_as_markup(self, said: str, cell: str) -> None:
        evil = "<script>x</script> **b** [a](b) | `c` ![i](j) </details>"
        tonight = nights.night(
            verdict=NightVerdict.REGRESSION, said=(f"S {said}{evil}",), versions={"v": evil}
        )
        down = replace(nights.judged(SPEED_UP, 1.0, State.REGRESSION), series=f"{SPEED_UP}/{cell}{evil}")
        page = rendered(summary(Judgement(tonight, (down,))))
        assert not re.search(r"<(script|strong|em|a|img|code|del)\b", page)
        assert page.count("</details>") == 1
        assert page.count("<tr>") == 2 + 1 + len(nights.SEGMENT) + 3 + 1


def test_a_night_that_was_measured_in_part_is_not_called_unknown() -> None:
    part = Judgement(nights.invalid().night, (nights.judged(SPEED_UP, 1.0),))
    assert summary(part).startswith("## Not judged: not everything could be measured\n")


class TestTerminal:
    @pytest.mark.parametrize("width", [80, 120])
    @pytest.mark.parametrize("name", nights.SAMPLES)
    def test_no_line_is_wider_and_no_figure_is_broken(self, name: str, width: int) -> None:
        text = shown(nights.explained(name), width)
        assert max(map(len, text.splitlines())) <= width
        for judged in nights.explained(name).series:
            if judged.state is not State.TOLD:
                assert bare(judged.series, judged.value) in text.split("Judged")[1].split()
                assert str(judged.state) in text

    def test_the_verdict_stands_on_top_and_is_explained(self) -> None:
        text = shown(nights.explained("drafter"), 120).splitlines()
        assert text[0] == "Regression: speed-up fell from 1.210x to 1.080x, and 5 more series"
        assert text[1].startswith("Likely the drafter")

    def test_red_for_what_failed_and_green_for_what_passed(self) -> None:
        text = shown(nights.explained("drafter"), 120, colours=True)
        assert "\x1b[31mREGRESSION" in text
        assert "\x1b[32mPASS" in text
        assert text.startswith("\x1b[1;31m")
        assert shown(nights.explained("pass"), 120, colours=True).startswith("\x1b[1;32m")

    def test_what_a_record_says_is_no_markup_of_the_terminal(self) -> None:
        tonight = nights.night(said=("[red]a[/red] \x1b[31mb",))
        assert "[red]a[/red] b" in shown(nights.judgement(tonight), 80)


class TestJson:
    def test_the_records_as_they_are(self) -> None:
        judgement = nights.explained("drafter")
        found = json.loads(as_json(judgement))
        assert found["verdict"] == "REGRESSION"
        assert found["night"]["segment"] == nights.SEGMENT
        assert found["night"]["said"] == list(judgement.night.said)
        first = next(s for s in found["series"] if s["series"] == SPEED_UP)
        assert (first["value"], first["lowest"], first["state"]) == (1.08, 1.21 * 0.97, "REGRESSION")
        assert first["change"] == judgement.series[0].change

    def test_keys_do_not_depend_on_the_night(self) -> None:
        documents = [json.loads(as_json(nights.explained(name))) for name in nights.SAMPLES]
        assert len({tuple(d) for d in documents}) == 1
        assert len({tuple(d["night"]) for d in documents}) == 1
        assert len({tuple(s) for d in documents for s in d["series"]}) == 1

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    def test_no_nan(self, value: float) -> None:
        tonight = nights.night(values={SPEED_UP: value})
        judgement = Judgement(tonight, (nights.judged(SPEED_UP, value),))
        found = json.loads(as_json(judgement), parse_constant=pytest.fail)
        assert found["night"]["values"][SPEED_UP] is found["series"][0]["value"] is None

    def test_a_failure_is_told(self) -> None:
        found = json.loads(as_json(nights.explained("invalid")))
        assert found["night"]["failure"]["reason"] == "HOST_PRESSURE"


@pytest.mark.parametrize(
    ("series", "value", "said"),
    [
        ("speed_up", 1.2, "1.200x"),
        ("baseline_tokens_per_s", 12345.6, "12346 tokens/s"),
        ("baseline_tokens_per_s", 94.31, "94.3 tokens/s"),
        ("acceptance_length", 2.5, "2.500"),
        ("acceptance_at_12/chat @ closed(4)", 0.4567, "0.457"),
        ("identical_share", 0.957, "96\N{NO-BREAK SPACE}%"),
        ("winner_start_s", 0.0421, "0.0421 s"),
        ("winner_memory_bytes", 2.5 * 2**30, "2.5 GiB"),
        ("something_new", 3.21, "3.2"),
        ("speed_up", None, "unknown"),
        ("speed_up", float("nan"), "unknown"),
    ],
)
def test_figures_with_their_units(series: str, value: float | None, said: str) -> None:
    assert figure(series, value) == said


def test_names() -> None:
    assert name_of("acceptance_at_12/chat @ closed(4)") == "acceptance at position 12, chat @ closed(4)"
    assert name_of("acceptance_at_all") == "acceptance at all"
    assert name_of("something_new") == "something new"


def test_changes() -> None:
    assert change_between("speed_up", 1.0, 0.95) == "-5.0 %"
    assert change_between("acceptance_at_1", 0.6, 0.2) == "-40.0 points"
    assert change_between("speed_up", 0.0, 0.95) == change_between("speed_up", None, 1.0) == ""
