from dataclasses import replace

import pytest

from analysis.nightly.scale import on_scale
from analysis.nightly.segments import changed_segment, drift, lost, reference, segment, settled
from results.nights import Accepted, NightKind, NightVerdict
from results.reasons import Reason
from results.records import Failure
from tests.analysis.nightly.by_hand import of, steady
from tests.analysis.nightly.simulated import DAY_S

TONIGHT = of(50, 1.5)


@pytest.mark.parametrize(
    "other",
    [
        {"pin": "another"},
        {"kind": NightKind.AA},
        {"machine": "b"},
        {"segment": {"gpu": "Y"}},
        {"segment": {"gpu": "X", "driver": "2"}},
        {"effective": {"winner n_max": "3"}},
        {"verdict": NightVerdict.INVALID},
        {"failure": Failure(Reason.NOT_SPECULATING, "0 drafts")},
        {"began_at": 60 * DAY_S},
        {"id": TONIGHT.id},
    ],
)
def test_a_night_is_compared_with_earlier_ones_like_it(other: dict[str, object]) -> None:
    like = of(1, 1.4)
    assert segment([like, of(2, 1.6, **other)], TONIGHT) == [like]


def test_a_night_merged_twice_counts_once_and_the_order_of_lines_does_not_matter() -> None:
    nights = steady(3)
    assert segment([nights[2], nights[0], nights[1], nights[0]], TONIGHT) == nights


def test_going_back_to_the_old_driver_goes_back_to_its_nights() -> None:
    old = steady(3)
    new = steady(3, first=3, segment={"gpu": "X", "driver": "2"})
    assert segment([*old, *new], TONIGHT) == old


def test_an_alarm_is_no_reference_for_its_own_series() -> None:
    nights = [of(1, 1.5), of(2, 1.2, alarms=("speed_up",)), of(3, 1.4, alarms=("acceptance_length",))]
    assert reference(nights, TONIGHT, "speed_up") == pytest.approx([0.405, 0.336], abs=1e-3)


@pytest.mark.parametrize(
    ("shift", "count"),
    [
        (Accepted(20 * DAY_S, "speed_up", "new prompts"), 5),
        (Accepted(20 * DAY_S, "all", "new prompts", machine="a"), 5),
        (Accepted(20 * DAY_S, "all", "another machine", machine="b"), 25),
        (Accepted(20 * DAY_S, "acceptance_length", "another series"), 25),
        (Accepted(70 * DAY_S, "all", "after tonight"), 25),
    ],
)
def test_an_accepted_shift_begins_a_new_segment(shift: Accepted, count: int) -> None:
    assert len(reference(steady(25), TONIGHT, "speed_up", [shift])) == count


def test_of_several_accepted_shifts_the_last_counts() -> None:
    shifts = [Accepted(20 * DAY_S, "all", "second"), Accepted(5 * DAY_S, "speed_up", "first")]
    assert len(reference(steady(25), TONIGHT, "speed_up", shifts)) == 5


def test_a_breach_that_was_not_confirmed_is_replaced_by_its_rerun() -> None:
    out = of(1, 1.2, breached=("speed_up",), again={"speed_up": 1.49})
    assert settled(out, "speed_up") == 1.49
    assert settled(replace(out, breached=()), "speed_up") == 1.2
    assert settled(replace(out, again={}), "speed_up") == 1.2
    assert settled(replace(out, alarms=("speed_up",)), "speed_up") == 1.2
    assert settled(out, "acceptance_length") is None


def test_what_has_no_place_on_the_scale_is_left_out() -> None:
    nights = [of(1, 0.0), of(2, float("nan")), of(3, -1.0), of(4, 1.0)]
    assert reference(nights, TONIGHT, "speed_up") == [0.0]


def test_what_changed_is_named_also_where_one_side_does_not_tell() -> None:
    before = of(1, 1.5, segment={"gpu": "X", "driver": "570.1", "power_limit": "300 W"})
    tonight = replace(TONIGHT, segment={"gpu": "X", "driver": "580.2", "clocks": "fixed"})
    assert changed_segment([before], tonight) == {
        "clocks": ("unknown", "fixed"),
        "driver": ("570.1", "580.2"),
        "power_limit": ("300 W", "unknown"),
    }
    assert changed_segment([], tonight) == {}


def test_only_settings_that_both_nights_tell_can_drift() -> None:
    before = of(1, 1.5, effective={"winner n_max": "16", "winner p_min": "0.75"})
    newer = replace(TONIGHT, effective={"winner n_max": "16", "winner topk": "1"})
    assert drift([before], newer) == {}
    assert segment([before], newer) == [before]
    other = replace(newer, effective={"winner n_max": "3", "winner topk": "1"})
    assert drift([before], other) == {"winner n_max": ("16", "3")}
    assert segment([before], other) == []


def test_a_night_with_a_fault_is_nothing_to_drift_from() -> None:
    broken = of(2, 1.5, effective={}, verdict=NightVerdict.INVALID)
    assert drift([of(1, 1.5), broken], TONIGHT) == {}
    assert drift([broken], TONIGHT) == {}


def test_a_series_that_is_gone_is_named() -> None:
    before = of(1, 1.5, values={"speed_up": 1.5, "acceptance_length": 2.0, "winner_start_s": 3.0})
    assert lost([before], TONIGHT) == ("acceptance_length",)
    assert lost([before], replace(TONIGHT, failure=Failure(Reason.HANG, "no token"))) == ()
    assert lost([], TONIGHT) == ()


def test_the_alarms_that_were_accepted_are_what_is_expected_from_then_on() -> None:
    before, down = steady(3), [of(3 + i, 1.2, alarms=("speed_up",)) for i in range(2)]
    after = [of(5, 1.21), of(6, 1.0, alarms=("speed_up",)), of(7, 1.19)]
    nights = [*before, *down, *after]
    shift = Accepted(down[0].began_at, "speed_up", "wanted")
    kept = [on_scale("speed_up", value) for value in (1.2, 1.2, 1.21, 1.19)]
    assert reference(nights, TONIGHT, "speed_up", [shift]) == pytest.approx(kept)
    assert len(reference(nights, TONIGHT, "speed_up")) == 3 + 2
