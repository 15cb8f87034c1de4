"""GitHub's annotations: the worst few, escaped as its runner reads them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.nightly.annotations import annotations, fence
from analysis.nightly.judgement import Judgement, State
from results.nights import SPEED_UP, NightVerdict
from results.reasons import Reason
from results.records import Failure
from tests.analysis.nightly import nights


def parsed(command: str) -> tuple[str, dict[str, str], str]:
    """Kind, properties and message, as the runner reads a line: up to the second `::`, then unescaped."""
    assert command.startswith("::")
    assert not set(command) & {"\n", "\r"}
    head, _, message = command[2:].partition("::")
    kind, _, rest = head.partition(" ")
    pairs = (part.partition("=") for part in rest.split(","))
    return (
        kind,
        {name: _unescaped(value, ",:\n\r%") for name, _, value in pairs},
        _unescaped(message, "\n\r%"),
    )


def _unescaped(text: str, characters: str) -> str:
    for character in characters:
        text = text.replace(f"%{ord(character):02X}", character)
    return text


def of(name: str) -> list[tuple[str, dict[str, str], str]]:
    return [parsed(command) for command in annotations(nights.explained(name), "ci/pinned.yaml")]


def test_none_on_a_good_night() -> None:
    assert of("pass") == []
    assert of("recovered") == []


def test_warnings_on_a_good_night() -> None:
    warned = nights.judged(SPEED_UP, 1.2, warning="12 % below the median")
    found = annotations(nights.judgement(nights.night(), (), warned), "p.yaml")
    assert found == ["::warning file=p.yaml,title=speed-up::12 %25 below the median"]


def test_the_worst_first_and_it_explains() -> None:
    found = of("drafter")
    assert [kind for kind, _, _ in found] == ["error"] * 5 + ["notice"]
    assert [p["title"] for _, p, _ in found[:2]] == ["acceptance at position 4", "acceptance at position 3"]
    assert found[0][2].startswith(
        "0.100, 0.100 in the rerun; expected 0.520, lowest 0.490 (20 nights). Likely the d"
    )
    assert "Likely" not in found[1][2]
    assert found[-1][2] == "1 more series in the summary of this step"
    assert {p["file"] for _, p, _ in found} == {"ci/pinned.yaml"}


def test_never_more_than_five_errors_three_warnings_and_one_notice() -> None:
    found = of("many")
    assert [kind for kind, _, _ in found] == ["error"] * 5 + ["warning"] * 3 + ["notice"]
    assert found[-1][2] == "12 more series in the summary of this step"  # 12 failed and 8 warned, 8 are shown


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("invalid", "Not measured: nothing is known of tonight"),
        ("drifted", "Not comparable: the server ran with other settings than in the nights before"),
        ("not-speculating", "Regression: the pinned configuration is broken"),
    ],
)
def test_a_night_that_no_series_shows_is_one_error(name: str, title: str) -> None:
    ((kind, properties, message),) = of(name)
    assert (kind, properties["title"]) == ("error", title)
    assert message.startswith(nights.explained(name).night.said[0])


def test_a_regression_that_no_series_shows_is_an_error_all_the_same() -> None:
    bare = Judgement(nights.night(verdict=NightVerdict.REGRESSION), ())
    assert annotations(bare, "p")[0].startswith("::error file=p,title=Regression::")


def test_too_few_nights_are_no_error() -> None:
    shown = annotations(nights.explained("young", 5), "p")
    assert [parsed(command)[0] for command in shown] == ["warning", "notice"]
    assert "too few nights" in shown[-1]


def test_a_leak_says_that_it_is_slow() -> None:
    (kind, properties, message), *rest = of("leak")
    assert (kind, properties["title"], rest) == ("error", "speed-up", [])
    assert (
        "lost slowly over the nights (20 compared). 2.4 % below the first 14 nights of the segment."
        in message
    )


@given(st.text(), st.text(), st.text())
def test_no_text_of_a_record_begins_a_command(file: str, cell: str, said: str) -> None:
    """One line each, and what was put in comes out: nothing ends a property or the message early."""
    evil = f"{said}\n::set-env name=PATH::/evil\r::error::,title=x%0A"
    down = replace(nights.judged(SPEED_UP, 1.0, State.REGRESSION), series=f"{SPEED_UP}/{cell}{evil}")
    broken = Failure(Reason.HANG, evil)
    tonight = nights.night(verdict=NightVerdict.REGRESSION, failure=broken, said=(evil,))
    for command in annotations(Judgement(tonight, (down,)), file):
        kind, properties, _ = parsed(command)
        assert (kind, set(properties), properties["file"]) == ("error", {"file", "title"}, file)


def test_a_fence_stops_and_resumes_commands() -> None:
    assert fence("4f2a") == ("::stop-commands::4f2a", "::4f2a::")
