"""One chart of nights: its marks and their texts, its axes, and where its labels have room."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from analysis.nightly import curve_figure, curve_marks
from analysis.nightly.course import Begun, Course, Curve, Trend, courses, curves
from analysis.nightly.curve_axes import DAY_S, Days, apart, date_ticks, scale_of
from analysis.nightly.curve_labels import labels
from analysis.nightly.curve_marks import Form
from results.nights import BASELINE, SPEED_UP, Night, NightVerdict
from results.reasons import Reason
from results.records import Failure
from tests.analysis.nightly.trends import four_hundred, lost, nights, out, two_segments


def drawn(made: Sequence[Night], series: str = SPEED_UP) -> tuple[Course, Curve]:
    (course,) = courses(Trend(made))
    return course, next(c for c in curves(course) if c.series == series)


def forms(made: Sequence[Night], series: str = SPEED_UP) -> list[Form]:
    """Of the marks of the values."""
    return [mark.form for mark in curve_marks.of_values(drawn(made, series)[1])]


def test_a_breach_has_its_rerun_beside_it() -> None:
    made = nights(16)
    made[14] = out(made[14], 0.1, SPEED_UP, again=False)
    made[15] = out(made[15], 0.1, SPEED_UP, again=True)
    assert forms(made)[-4:] == [Form.BREACH, Form.AGAIN, Form.BREACH, Form.ALARM]
    assert forms(made, BASELINE).count(Form.AGAIN) == 0  # measured again too, but it was not out
    first, again = curve_marks.of_values(drawn(made)[1])[-2:]
    assert not first.rerun and again.rerun
    assert re.fullmatch(
        r"2026-11-30 .* UTC: 1\.4\d\dx, expected .*x, lowest .*x; breach, rerun 1\.\d+x, alarm", first.said
    )
    assert re.fullmatch(r"2026-11-30 .* UTC: the rerun, 1\.4\d\dx; alarm", again.said)


def test_a_slow_loss_is_an_alarm_without_a_breach() -> None:
    made = nights(16)
    made[15] = replace(made[15], alarms=(SPEED_UP,), verdict=NightVerdict.REGRESSION)
    assert forms(made)[-1] is Form.ALARM
    assert curve_marks.of_values(drawn(made)[1])[-1].said.endswith("; alarm")


def test_nights_that_are_not_judged_are_hollow() -> None:
    made = nights(16)
    made[15] = replace(made[15], verdict=NightVerdict.CONFIG_DRIFT)
    assert forms(made) == [*[Form.UNJUDGED] * 14, Form.NIGHT, Form.UNJUDGED]


def test_a_night_without_figures_is_at_the_foot_and_says_why() -> None:
    made = nights(16)
    made[5] = lost(made[5])
    broken = Failure(Reason.NOT_SPECULATING, "0 drafts in 900 tokens")
    made[9] = replace(made[9], values={}, failure=broken, verdict=NightVerdict.REGRESSION, said=())
    invalid, alarm = curve_marks.of_lost(made, SPEED_UP)
    assert (invalid.form, invalid.value) == (Form.INVALID, None)
    assert invalid.said.endswith("no figures. The server of the winner died in every Block.")
    assert (alarm.form, alarm.said.endswith("no figures. 0 drafts in 900 tokens")) == (Form.ALARM, True)


def test_the_caption_says_how_the_last_night_stands() -> None:
    course, curve = drawn(nights(16))
    said = curve_figure.summary(course, curve)
    said = re.sub(r"\d\.\d+", "N", said).replace("-", "+")
    assert said == "Last night Nx, +N % against the Nx expected from 15 nights; below Nx is a breach."
    course, curve = drawn([*nights(16)[:-1], lost(nights(16)[-1])])
    assert curve_figure.summary(course, curve).startswith("On 2026-11-29 ")


def test_every_mark_of_a_wide_chart_has_its_text_and_one_is_a_stop() -> None:
    course, curve = drawn(two_segments()[0])
    svg = curve_figure.wide(course, curve, "chart").svg
    marks = re.findall(r'<path[^>]*tabindex="(0|-1)"[^>]*><title>([^<]+)</title></path>', svg)
    assert [stop for stop, _ in marks].count("0") == 1 and marks[-1][0] == "0"
    dates = [said[:16] for _, said in marks]
    assert dates == sorted(dates)  # the arrow keys go along time
    assert len({*dates}) == 100  # also those without figures
    assert 'role="group"' in svg and svg.count("<svg") == svg.count("</svg>") == 1


def test_a_small_chart_marks_what_stands_out_and_the_last_night() -> None:
    made, _ = four_hundred()
    course, curve = drawn(made)
    assert curve_figure.small(course, curve, "chart").svg.count("<title>") < 60
    assert curve_figure.wide(course, curve, "chart").svg.count("<title>") > 400


def test_marks_lie_where_the_drawing_has_their_values() -> None:
    made = nights(5)
    course, curve = drawn(made)
    svg = curve_figure.wide(course, curve, "chart").svg
    line = re.search(
        r'<path d="M ([^"]*)" clip-path="[^"]*" style="fill: none; stroke: var\(--series-0\)', svg
    )
    assert line is not None
    numbers = [float(n) for n in re.findall(r"[\d.]+", line[1])]
    marks = re.findall(r'class="unjudged"[^>]* d="M([\d.]+) ([\d.]+)', svg)
    places = [(float(x), float(y)) for x, y in marks]
    expected = list(zip(numbers[::2], numbers[1::2], strict=True))
    assert len(places) == len(expected) == 5
    for place, at in zip(places, expected, strict=True):
        assert place == pytest.approx(at, abs=0.1)


def test_one_outlier_does_not_flatten_the_rest_and_has_its_figure() -> None:
    made = nights(40)
    made[20] = out(made[20], 0.7, SPEED_UP, again=False)
    course, curve = drawn(made)
    scale = scale_of(curve.seen)
    assert scale.low > 1.3 and scale.within(0.48) == scale.low
    assert ">0.4" in curve_figure.wide(course, curve, "chart").svg


def test_a_loss_that_matters_is_on_the_scale() -> None:
    made = nights(40)
    made[39] = out(made[39], 0.15, SPEED_UP, again=True)
    assert scale_of(drawn(made)[1].seen).low < 1.6 * 0.87


@pytest.mark.parametrize("value", [0.0, 1.0, 94.0])
def test_a_constant_series_has_a_scale(value: float) -> None:
    made = [replace(night, values={SPEED_UP: value}) for night in nights(3)]
    scale = scale_of(drawn(made)[1].seen)
    assert scale.low < value < scale.high


@pytest.mark.parametrize(
    ("nights_shown", "most"), [(1, 3), (3, 10), (14, 10), (40, 3), (100, 10), (400, 3), (2000, 10)]
)
def test_dates_are_few_and_at_equal_steps(nights_shown: int, most: int) -> None:
    high = datetime(2026, 11, 30, tzinfo=UTC).timestamp() / DAY_S
    ticks = date_ticks(high - nights_shown, high, most)
    assert 1 <= len(ticks) <= most
    assert len({said for _, said in ticks}) == len(ticks)
    steps = {round(b - a) for (a, _), (b, _) in pairwise(ticks)}
    assert len(steps) <= 1 or max(steps) - min(steps) <= 4  # months have different lengths


def test_dates_are_said_as_people_do() -> None:
    high = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp() / DAY_S
    assert [said for _, said in date_ticks(high - 2, high, 5)] == ["29 Nov", "30 Nov"]
    assert [said for _, said in date_ticks(high - 300, high, 4)] == ["Apr 2026", "Jul 2026", "Oct 2026"]


def test_labels_take_the_first_lane_with_room_and_stay_inside() -> None:
    made = nights(40)
    days = Days(made[0].began_at / DAY_S - 1, made[-1].began_at / DAY_S + 1, 890)
    begun = [Begun(made[i], "driver 570 -> 580", "driver 570 -> 580") for i in (5, 6, 7, 8, 39)]
    found = labels(begun, days)
    assert [label.lane for label in found] == [0, 1, 2, 0]  # the fourth has no room
    assert found[0].begin > days.place(made[5])
    assert found[-1].begin + 6 * len("driver 570 -> 580") <= 890


def test_marks_that_would_touch_are_thinned() -> None:
    assert apart([0.0, 1.0, 3.0, 4.5, 8.0], 3.0) == [True, False, True, False, True]
