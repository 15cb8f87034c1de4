"""The map on the page, in a terminal, as Markdown and as JSON: the same, and never by colour alone."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from analysis.heatmap import heat_map
from analysis.loadmap import State, load_map
from analysis.map_tables import compromise_sentence, per_cell, state_word
from analysis.report import as_json, html, markdown
from results.records import Cell, Point, Weights
from tests.analysis import maps, samples
from tests.analysis.maps import COPY, LONG, WAITED, confirmed
from tests.analysis.test_terminal import shown

ONE, FOUR = Cell("chat", "closed(1)"), Cell("chat", "closed(4)")


class Fields(HTMLParser):
    """The text of every field, by the class of its state, and the scopes of the heads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: list[tuple[str, str]] = []
        self.scopes: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag == "th":
            self.scopes.append(given.get("scope") or "none")
        if tag == "td":
            self.fields.append((given.get("class") or "", ""))
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "td"

    def handle_data(self, data: str) -> None:
        if self._inside:
            css, said = self.fields.pop()
            self.fields.append((css, f"{said} {data.strip()}".strip()))


def test_every_field_says_its_state_in_words_beside_its_colour() -> None:
    fields = Fields(heat_map(maps.sample())).fields
    assert len(fields) == 18
    for css, said in fields:
        assert State[css.split()[0].upper()].value in said
    assert ("faster above", "1.65x ▲ faster ngram-simple size_m=32") in fields
    assert ("slower below", "0.85x ▼ slower off; closest: ngram-simple size_m=8") in fields
    assert ("limited", "⊘ capacity-limited") in fields
    assert ("undecided", "0.99x ? not decided off; closest: ngram-simple size_m=8") in fields


def test_search_estimates_are_told_apart_in_words_too() -> None:
    page = heat_map(maps.sample_of_a_search())
    assert {css.split()[0] for css, _ in Fields(page).fields} == {"searched"}
    assert all("one Block, optimistic" in said for _, said in Fields(page).fields)
    assert "by search estimates alone" in page
    assert "no winner" in page


def test_it_is_a_table_with_a_caption_and_heads() -> None:
    page = heat_map(maps.sample())
    assert page.count("<caption>") == 1
    scopes = Fields(page).scopes
    assert (scopes.count("col"), scopes.count("rowgroup"), scopes.count("row")) == (5, 3, 6)
    assert "none" not in scopes
    assert 'tabindex="0" role="region" aria-label="Load map"' in page
    assert [s for s in State if f"{s.value}:" in page] == [
        State.FASTER,
        State.SAME,
        State.SLOWER,
        State.UNDECIDED,
        State.LIMITED,
    ]


def test_one_length_has_no_column_of_lengths() -> None:
    page = heat_map(confirmed([(COPY, {ONE: 0.2, FOUR: -0.2})]))
    assert "as they are" not in page
    assert '<th scope="col">Prompts' not in page


def test_the_colour_grows_with_the_effect_and_stays_pale_enough_to_read_on() -> None:
    strengths = [int(s) for s in re.findall(r"--strength:(\d+)%", heat_map(maps.sample()))]
    assert len(set(strengths)) > 5
    assert min(strengths) >= 12 and max(strengths) == 50


def test_nothing_of_a_record_is_markup() -> None:
    odd = Point("<script>", {"k": '"><b>'})
    cell = Cell("<i>chat", "closed(1)")
    page = html(confirmed([(odd, {cell: 0.2, FOUR: -0.3}), (LONG, {cell: 0.1, FOUR: -0.3})]))
    assert "<script>:" not in page and "<i>" not in page and '"><b>' not in page


@pytest.mark.parametrize("name", sorted(samples.SAMPLES.keys() - {"map", "searched-map"}))
def test_one_cell_or_none_has_no_map(name: str) -> None:
    report = replace(samples.SAMPLES[name](), blocks=())
    assert heat_map(report) == ""
    assert '<section id="map"' not in html(report)
    assert json.loads(as_json(report))["map"] is None
    assert "Load map" not in markdown(report) and "Load map" not in shown(report)


def test_the_terminal_shows_the_grid_and_what_stands_for_what() -> None:
    text = shown(maps.sample(), 80)
    table = text[text.index("Load map") :]
    assert re.search(r"chat +as they are +1\.11x \(1\) +open \(0\.99x\) +off \(0\.85x\)", table)
    assert re.search(r"code_edit +1024 tokens +1\.77x \(2\) +1\.58x \(2\) +capacity-limited", table)
    assert f"(1) {COPY.label}\n(2) {LONG.label}\n" in table
    assert "off (1.00x same)" in table
    assert "one Block" not in table
    assert "~1.22x (1)" in shown(maps.sample_of_a_search())


def test_one_load_and_length_is_in_the_table_of_the_classes_already() -> None:
    report = confirmed([(COPY, {ONE: 0.2, Cell("code", "closed(1)"): -0.2})])
    assert load_map(report) is not None
    assert "Load map" not in shown(report)
    assert "Load map" in markdown(report)


def test_where_it_holds_is_said_in_few_words() -> None:
    text = " ".join(shown(confirmed([(COPY, dict.fromkeys(maps.cells(), 0.2))])).split())
    held = "code_edit, chat @ closed(1), closed(4), prompts as they are or 1024 tokens. Nothing is claimed"
    assert f"Holds for {held} beyond." in text


def test_a_limited_cell_is_marked_wherever_the_verdict_is() -> None:
    report = confirmed([(COPY, {ONE: 0.2, FOUR: 0.2})], limited=[(COPY, FOUR)])
    for told in (html(report), markdown(report).replace("\\_", "_"), " ".join(shown(report).split())):
        assert f"{COPY.label}: {WAITED}" in told
    assert f"<li>{FOUR.label}</li>" not in html(report)
    told_json = json.loads(as_json(report))
    assert [*told_json["verdicts"][0]["capacity_limited"]] == [FOUR.label]
    cell = next(c for c in told_json["map"]["cells"] if c["pace"] == "closed(4)")
    assert (cell["state"], cell["speedup"], cell["best"]) == ("capacity-limited", None, None)
    assert cell["baseline"]["tokens_per_s"] == pytest.approx(80)


def test_json_says_everything_as_factors() -> None:
    told = json.loads(as_json(confirmed([(COPY, {ONE: 0.3, FOUR: -0.2}), (LONG, {ONE: 0.5, FOUR: -0.6})])))
    found = told["map"]
    assert found["one_for_all"] == {"method": "ngram-simple", "knobs": dict(COPY.knobs)}
    assert found["gain_of_a_choice_per_cell"] == pytest.approx(1.2214, abs=1e-3)
    one, four = found["cells"]
    assert (one["class"], one["pace"], one["context_tokens"], one["state"]) == (
        "chat",
        "closed(1)",
        None,
        "faster",
    )
    assert one["interval"]["low"] < one["speedup"] < one["interval"]["high"]
    assert one["loss"] == pytest.approx(1.2214, abs=1e-3)
    assert four["best"] == {"method": "none", "knobs": {}}
    assert told["verdicts"][0]["by_cell"].keys() == {ONE.label, FOUR.label}


def test_every_cell_has_a_row_with_what_the_one_for_all_loses_there() -> None:
    report = confirmed([(COPY, {ONE: 0.3, FOUR: -0.2}), (LONG, {ONE: 0.5, FOUR: -0.6})])
    table = per_cell(report)
    rows = [dict(zip(table.columns, (e.text for e in row), strict=True)) for row in table.rows]
    assert [r["Best"] for r in rows] == [LONG.label, "off"]
    assert [r["Its loss"] for r in rows] == ["18.1\N{NO-BREAK SPACE}%"] * 2
    assert [r["One for all"] for r in rows] == ["1.35x", "0.82x"]
    assert rows[0]["Tokens/s"].startswith("80 → 13")
    assert "Weight" not in table.columns
    weighted = per_cell(replace(report, weights=Weights(paces={"closed(4)": 0})))
    assert [row[-1].text for row in weighted.rows] == ["1", "0"]
    assert "not counted" in heat_map(replace(report, weights=Weights(paces={"closed(4)": 0})))


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        ({ONE: 0.2, FOUR: 0.3}, "In no Cell is another one faster."),
        (
            {ONE: 0.4, FOUR: -0.1},
            "It is at most 9.5\N{NO-BREAK SPACE}% behind the best of a Cell (off in chat @ closed(4));"
            " a choice for every Cell would gain 5.1 % on the whole.",
        ),
    ],
)
def test_the_one_for_all_is_said_with_what_it_costs(logs: dict[Cell, float], said: str) -> None:
    found = load_map(confirmed([(COPY, logs)]))
    assert found is not None
    assert compromise_sentence(found).endswith(f"{COPY.label}. {said}")


def test_an_energy_objective_is_more_frugal_not_faster() -> None:
    assert state_word(State.FASTER, "tokens_per_joule") == "more frugal"
    assert state_word(State.SLOWER, "tokens_per_s") == "slower"
