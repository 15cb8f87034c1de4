"""The JUnit file of a night: valid, whatever a record holds, and read by others as it is meant."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import junitparser
import pytest
import xmlschema
from hypothesis import given
from hypothesis import strategies as st

from analysis.nightly.judgement import Judgement, State
from analysis.nightly.junit import MEASURED, junit, xml_text
from results.nights import SPEED_UP, NightVerdict, series_of
from results.reasons import Reason
from results.records import Failure
from tests.analysis.nightly import nights

ANY = st.text(st.characters(), min_size=1, max_size=40)  # surrogates and control characters too


@cache
def _schema() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))


def cases(judgement: Judgement) -> dict[str, Element]:
    """Valid testcases by name."""
    written = junit(judgement)
    _schema().validate(written)
    return {case.get("name", ""): case for case in fromstring(written).iter("testcase")}


def result_of(case: Element) -> str:
    return case[0].tag if len(case) else "passed"


@pytest.mark.parametrize("name", nights.SAMPLES)
def test_every_night_is_valid(name: str) -> None:
    assert cases(nights.explained(name))


def test_the_schema_refuses_what_is_wrong() -> None:
    good = junit(nights.explained("drafter"))
    twice = good.replace('name="speed-up"', 'name="baseline throughput"')
    for bad in (good.replace("<failure ", "<broken ").replace("</failure>", "</broken>"), twice):
        with pytest.raises(xmlschema.XMLSchemaValidationError):
            _schema().validate(bad)


def test_what_each_state_becomes() -> None:
    tonight = nights.night(verdict=NightVerdict.REGRESSION)
    mixed = nights.judgement(
        tonight,
        [SPEED_UP],
        nights.judged("acceptance_length", 2.0, State.LEAK),
        nights.judged("acceptance_at_1", 0.5, State.INSUFFICIENT, nights=3),
    )
    found = {name: result_of(case) for name, case in cases(mixed).items()}
    assert found["speed-up"] == found["acceptance length"] == "failure"
    assert found["acceptance at position 1"] == "skipped"
    assert found["baseline throughput"] == found[MEASURED] == "passed"
    assert not any("winner" in name for name in found)  # told, so no testcase


def test_counts_and_times_are_those_of_the_suite() -> None:
    root = fromstring(junit(nights.explained("drafter")))
    suite = root[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("11", "6", "0")
    assert (root.get("tests"), root.get("failures")) == ("11", "6")
    assert (suite.get("time"), suite.get("timestamp")) == ("1987.500", "2026-11-30T02:10:00")


def test_the_text_alone_says_all_since_gitlab_shows_nothing_else() -> None:
    text = cases(nights.explained("drafter"))["speed-up"][0].text or ""
    for said in (
        "speed-up 1.080x, expected 1.210x (-10.7 %)",
        "rerun: 1.084x",
        "lowest: 1.174x",
        "nights: 20",
        "Likely the drafter",
        "sglang 0.5.22 -> sglang 0.5.23",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("name", "result", "kind"),
    [
        ("invalid", "error", "HOST_PRESSURE"),
        ("drifted", "error", "CONFIG_DRIFT"),
        ("not-speculating", "failure", "NOT_SPECULATING"),
    ],
)
def test_a_night_whose_series_show_nothing_is_one_testcase(name: str, result: str, kind: str) -> None:
    found = cases(nights.explained(name))
    assert (found[MEASURED][0].tag, found[MEASURED][0].get("type")) == (result, kind)
    assert [case for case in found if result_of(found[case]) in ("error", "failure")] == [MEASURED]


@pytest.mark.parametrize("name", nights.SAMPLES)
def test_a_red_night_is_never_a_green_file(name: str) -> None:
    """And no green night a red one: whoever reads the file alone sees the same."""
    shown = nights.explained(name)
    found = {result_of(case) for case in cases(shown).values()}
    red = shown.verdict not in (NightVerdict.PASS, NightVerdict.INSUFFICIENT)
    assert bool(found & {"failure", "error"}) == red


def test_a_regression_that_no_series_shows_fails_all_the_same() -> None:
    shown = Judgement(nights.night(verdict=NightVerdict.REGRESSION), ())
    assert result_of(cases(shown)[MEASURED]) == "failure"


def test_told_series_and_versions_are_properties() -> None:
    root = fromstring(junit(nights.explained("pass")))
    properties = {p.get("name"): p.get("value") for p in root.iter("property")}
    assert properties["winner's start time"] == "74.0 s"
    assert properties["verdict"] == "PASS"
    assert properties["driver"] == "580.95.05"


def test_two_machines_and_the_aa_night_do_not_hide_each_other() -> None:
    """GitLab keys a testcase by classname and name; a dot would split the name of the pin in Jenkins."""
    other = replace(nights.night(), machine="gpu-box-2.lan", pin="qwen-3.5")
    names = {
        next(iter(cases(shown).values())).get("classname")
        for shown in (
            nights.explained("pass"),
            nights.judgement(other),
            nights.explained("false-alarm"),
        )
    }
    assert names == {"qwen3-235b.gpu-box-1", "qwen-3_5.gpu-box-2_lan", "qwen3-235b A/A.gpu-box-1"}


def test_another_reader_sees_the_same() -> None:
    suites = junitparser.JUnitXml.fromstring(junit(nights.explained("drafter")).encode())
    (suite,) = suites
    failed = [case.name for case in suite if case.result and isinstance(case.result[0], junitparser.Failure)]
    assert len(failed) == suite.failures == 6
    assert suite.hostname == "gpu-box-1"


@given(ANY, ANY, ANY, ANY)
def test_nothing_of_a_record_makes_it_invalid(pin: str, machine: str, said: str, cell: str) -> None:
    tonight = replace(
        nights.night(verdict=NightVerdict.REGRESSION),
        pin=f"p{pin}",
        machine=f"m{machine}",
        said=(said,),
        versions={f"v{cell}": said},
        failure=Failure(Reason.INVALID_OUTPUT, said),
    )
    down = replace(
        nights.judged(SPEED_UP, 1.0, State.REGRESSION), series=series_of(SPEED_UP, cell), warning=said
    )
    found = cases(Judgement(tonight, (down,)))
    junit(Judgement(tonight, (down,))).encode()  # no lone surrogate
    assert xml_text(said).split() == (found[MEASURED][0].text or "").split("\n", 1)[1].split()


@pytest.mark.parametrize("bad", ["\x00", "\x0b", "\x1b[31m", "\ud800", "\ufffe", "\uffff", "\x7f"])
def test_forbidden_characters_are_cleaned(bad: str) -> None:
    assert bad not in xml_text(f"a{bad}b")
    assert xml_text("tab\tline\nünïcode 🙂") == "tab\tline\nünïcode 🙂"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_figure_that_is_none_is_said_as_unknown(value: float) -> None:
    down = replace(nights.judged(SPEED_UP, value, State.REGRESSION), again=None)
    case = cases(Judgement(nights.night(verdict=NightVerdict.REGRESSION), (down,)))["speed-up"]
    assert "speed-up unknown, expected 1.210x" in (case[0].text or "")
