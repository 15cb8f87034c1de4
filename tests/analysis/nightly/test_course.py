"""What the trend page knows of one pin on one machine: stretches, what began them, since when it is so."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, nan

import pytest

from analysis.nightly import trend_content
from analysis.nightly.course import (
    Course,
    Trend,
    courses,
    curves,
    segments_begun,
    shifts_begun,
    since,
    versions_changed,
)
from results.nights import BASELINE, LENGTH, SPEED_UP, Accepted, Night, NightKind, NightVerdict
from tests.analysis.nightly.trends import SEGMENT, lost, nights, out


def trend(found: Sequence[Night], *accepted: Accepted) -> Trend:
    return Trend(found, accepted)


def course(found: Sequence[Night], *accepted: Accepted) -> Course:
    (one,) = courses(trend(found, *accepted))
    return one


def lengths(found: Sequence[Night], series: str, *accepted: Accepted) -> list[int]:
    """Of the stretches of a series."""
    (drawn,) = [c for c in curves(course(found, *accepted)) if c.series == series]
    return [len(stretch) for stretch in drawn.stretches]


def with_segment(found: Sequence[Night], begin: int, **changed: str) -> list[Night]:
    moved = [replace(night, segment={**night.segment, **changed}) for night in found[begin:]]
    return [*found[:begin], *moved]


def test_a_regression_comes_first_then_the_names() -> None:
    made = [*nights(3, machine="a"), *nights(3, machine="b"), *nights(3, machine="c")]
    made[5] = out(made[5], 0.1, SPEED_UP, again=True)
    found = courses(trend(made[::-1]))
    assert [one.machine for one in found] == ["b", "a", "c"]
    assert [night.began_at for night in found[0].nights] == [night.began_at for night in made[3:6]]


def test_nights_of_the_baseline_against_itself_are_kept_apart() -> None:
    found = course([*nights(3), *nights(2, kind=NightKind.AA)])
    assert (len(found.nights), len(found.aa)) == (3, 2)


def test_since_is_the_first_night_of_the_run_of_equal_verdicts() -> None:
    made = nights(20)
    made[16] = out(made[16], 0.1, SPEED_UP, again=True)
    made[18:] = [out(night, 0.1, SPEED_UP, again=True) for night in made[18:]]
    assert since(course(made)) == made[18]
    assert trend_content.since_said(course(made)).endswith("2 nights in a row")
    assert trend_content.last_good_said(course(made)).startswith("2026-11-28")
    assert trend_content.counted(course(made)) == "20: 3 passed, 14 not judged yet, 3 regression"


def test_a_driver_begins_a_segment_and_a_lost_night_does_not() -> None:
    made = with_segment(nights(30), 12, driver="580.65")
    made[20] = replace(lost(made[20]), segment={})
    (begun,) = segments_begun(made)
    assert (begun.night, begun.what) == (made[12], "driver 570.86 -> 580.65")
    assert lengths(made, SPEED_UP) == [12, 17]


def test_other_settings_begin_a_segment_too() -> None:
    made = nights(10)
    made[6:] = [replace(night, effective={"winner num_steps": "5"}) for night in made[6:]]
    (begun,) = segments_begun(made)
    assert (begun.night, begun.what) == (made[6], "winner num_steps 3 -> 5")


def test_an_accepted_shift_begins_a_stretch_of_its_series_alone() -> None:
    made = nights(20)
    shift = Accepted(made[8].began_at - 3600, SPEED_UP, "a smaller drafter")
    assert lengths(made, SPEED_UP, shift) == [8, 12]
    assert lengths(made, BASELINE, shift) == [20]
    (begun,) = shifts_begun(course(made, shift), SPEED_UP)
    assert (begun.night, begun.what, begun.accepted) == (made[8], "a smaller drafter", True)


@pytest.mark.parametrize(
    ("machine", "stretches"), [("all", [8, 12]), ("gpu-box-1", [8, 12]), ("other", [20])]
)
def test_an_accepted_shift_is_for_its_machine(machine: str, stretches: list[int]) -> None:
    made = nights(20)
    shift = Accepted(made[8].began_at, "all", "moved house", machine=machine)
    assert lengths(made, LENGTH, shift) == stretches


def test_a_shift_that_no_night_followed_begins_nothing() -> None:
    made = nights(5)
    assert lengths(made, SPEED_UP, Accepted(made[-1].began_at + 1, "all", "tomorrow")) == [5]


def test_versions_are_told_where_they_change_unless_the_segment_says_so() -> None:
    made = nights(10)
    made[4:] = [replace(n, versions={"engine": "0.5.12", "driver": "1"}) for n in made[4:]]
    (begun,) = versions_changed(made)
    assert begun.night == made[4]
    assert "driver" in SEGMENT
    assert begun.what == "engine 0.5.10 -> 0.5.12, image sha256:5f2c9ad01b7e -> (not set)"
    assert begun.brief == "engine 0.5.12"


def test_what_is_only_told_has_no_bound() -> None:
    made = nights(30)
    found = {c.series: c for c in curves(course(made))}
    assert found[SPEED_UP].last.bound is not None
    assert found["identical_share"].last.bound is None


@pytest.mark.parametrize("broken", [nan, inf])
def test_a_figure_that_is_no_number_is_no_night_of_its_series(broken: float) -> None:
    made = nights(6)
    made[2] = replace(made[2], values={**made[2].values, SPEED_UP: broken})
    assert lengths(made, SPEED_UP) == [5]
    assert lengths(made, BASELINE) == [6]


def test_headlines_name_the_worst() -> None:
    made = [*nights(20, machine="a"), *nights(20, machine="b"), *nights(20, machine="c")]
    assert trend_content.headline(courses(trend(made))) == "All 3: passed"
    made[19] = lost(made[19])
    assert trend_content.headline(courses(trend(made))) == "1 of 3: not measured"
    made[39] = out(made[39], 0.2, SPEED_UP, again=True)
    assert trend_content.headline(courses(trend(made))) == "1 of 3: regression"
    assert trend_content.headline(courses(trend(nights(20)))) == "Passed"
    only_aa = nights(4, kind=NightKind.AA)
    assert trend_content.headline(courses(trend(only_aa))) == "No night was checked"
    assert set(trend_content.SAID) == set(NightVerdict)
