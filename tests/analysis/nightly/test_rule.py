from dataclasses import replace

import numpy as np
import pytest

from analysis.nightly.judgement import Judged, Judgement, State
from analysis.nightly.rule import breaches, judge
from analysis.nightly.segments import changed_segment, drift
from results.nights import SPEED_UP, Accepted, Night, NightVerdict
from results.reasons import Reason
from results.records import Failure
from tests.analysis.nightly.by_hand import of, steady
from tests.analysis.nightly.simulated import DAY_S

LENGTH = "acceptance_length"
CASE_57_GAINS = (26.7, 24.6, 26.3, 25.9, 20.7, 23.4, 22.3, 24.2, 17.3, 19.9, 25.6, 24.3)  # percent


def the(judgement: Judgement, series: str = SPEED_UP) -> Judged:
    return next(judged for judged in judgement.series if judged.series == series)


def test_a_night_like_those_before_passes_and_says_what_was_expected() -> None:
    judgement = judge(steady(20), of(20, 1.5))
    assert judgement.verdict is NightVerdict.PASS
    judged = the(judgement)
    assert (judged.state, judged.nights, judged.breached, judged.warning) == (State.PASS, 20, False, "")
    assert judged.expected == pytest.approx(1.5, rel=0.002)
    assert judged.lowest is not None
    assert 1.44 < judged.lowest < 0.97 * 1.5 + 0.002
    assert judged.change == pytest.approx(0.0, abs=0.002)
    assert judged.p_value == pytest.approx(0.5, abs=0.1)


def test_out_twice_is_a_regression() -> None:
    tonight = of(20, 1.38)
    assert breaches(steady(20), tonight) == (SPEED_UP,)
    judgement = judge(steady(20), replace(tonight, again={SPEED_UP: 1.39}))
    assert judgement.verdict is NightVerdict.REGRESSION
    assert judgement.night.breached == judgement.night.alarms == (SPEED_UP,)
    judged = the(judgement)
    assert (judged.state, judged.again) == (State.REGRESSION, 1.39)
    assert judged.change == pytest.approx(-0.08, abs=0.002)


def test_out_once_passes_and_is_told() -> None:
    judgement = judge(steady(20), of(20, 1.38, again={SPEED_UP: 1.5}))
    assert judgement.verdict is NightVerdict.PASS
    assert (judgement.night.breached, judgement.night.alarms) == ((SPEED_UP,), ())
    assert the(judgement).warning == "below its bound at first, not in the rerun"


def test_out_without_a_rerun_is_not_confirmed_and_says_so() -> None:
    judgement = judge(steady(20), of(20, 1.2))
    assert (judgement.verdict, judgement.night.breached) == (NightVerdict.PASS, (SPEED_UP,))
    assert the(judgement).warning == "below its bound and not measured again: not confirmed"


def test_a_rerun_that_could_not_be_measured_makes_the_night_invalid() -> None:
    failure = Failure(Reason.HOST_PRESSURE, "the rerun could not be measured")
    judgement = judge(steady(20), of(20, 1.2, failure=failure))
    assert (judgement.verdict, judgement.night.breached) == (NightVerdict.INVALID, (SPEED_UP,))
    assert judgement.night.alarms == ()


def test_better_is_never_a_regression() -> None:
    tonight = of(20, 2.5, again={SPEED_UP: 2.5})
    assert breaches(steady(20), tonight) == ()
    assert judge(steady(20), tonight).verdict is NightVerdict.PASS


@pytest.mark.parametrize("nights", [0, 13])
def test_with_few_nights_nothing_is_an_alarm(nights: int) -> None:
    judgement = judge(steady(nights), of(20, 0.9, again={SPEED_UP: 0.9}))
    assert judgement.verdict is NightVerdict.INSUFFICIENT
    judged = the(judgement)
    assert (judged.state, judged.nights, judged.breached) == (State.INSUFFICIENT, nights, False)
    assert (judged.expected, judged.lowest, judged.p_value) == (None, None, None)


@pytest.mark.parametrize(
    ("nights", "value", "warned"), [(2, 1.0, False), (3, 1.36, False), (3, 1.32, True), (13, 1.32, True)]
)
def test_the_wide_guard_warns_while_nights_are_few(nights: int, value: float, warned: bool) -> None:
    warning = the(judge(steady(nights), of(20, value))).warning
    assert bool(warning) is warned
    assert not warned or warning.startswith(f"12\N{NO-BREAK SPACE}% below the median of the {nights} nights")


def test_the_wide_guard_of_a_share_is_in_points() -> None:
    history = [of(i, 1.5, values={"acceptance_at_1": 0.6}) for i in range(5)]
    judgement = judge(history, of(9, 1.5, values={"acceptance_at_1": 0.48}))
    assert the(judgement, "acceptance_at_1").warning.startswith("12 points below the median")


def test_a_figure_that_is_none_is_not_judged() -> None:
    judgement = judge(steady(20), of(20, float("nan")))
    assert judgement.verdict is NightVerdict.INSUFFICIENT
    assert the(judgement).warning == "nan is no figure that can be judged"


def test_the_verdict_waits_for_the_overall_speed_up_alone() -> None:
    young = {"speed_up/new @ closed(1)": 1.2}
    judgement = judge(steady(20), of(20, 1.5, values={SPEED_UP: 1.5, **young}))
    assert judgement.verdict is NightVerdict.PASS
    assert the(judgement, *young).state is State.INSUFFICIENT
    assert judge([], of(20, 1.5, values={})).verdict is NightVerdict.INSUFFICIENT


def test_what_is_told_is_never_judged() -> None:
    history = [of(i, 1.5, values={SPEED_UP: 1.5, "identical_share": 1.0}) for i in range(20)]
    tonight = of(20, 1.5, values={SPEED_UP: 1.5, "identical_share": 0.1}, again={"identical_share": 0.1})
    judgement = judge(history, tonight)
    assert judgement.verdict is NightVerdict.PASS
    assert the(judgement, "identical_share") == Judged("identical_share", State.TOLD, 0.1, 0.1)


@pytest.mark.parametrize("reason", [Reason.NOT_SPECULATING, Reason.BROKEN_DRAFTER, Reason.INVALID_OUTPUT])
def test_a_fault_of_the_winner_is_a_regression_from_the_first_night(reason: Reason) -> None:
    tonight = of(0, 1.5, values={}, failure=Failure(reason, "seen in the log"))
    assert judge([], tonight).verdict is NightVerdict.REGRESSION
    assert breaches(steady(20), replace(tonight, values={SPEED_UP: 0.5}, began_at=99 * DAY_S)) == ()


@pytest.mark.parametrize("reason", [Reason.START_FAILED, Reason.HANG, Reason.THROTTLED, Reason.WRONG_SERVER])
def test_any_other_failure_is_invalid(reason: Reason) -> None:
    assert judge([], of(0, 1.5, failure=Failure(reason, "x"))).verdict is NightVerdict.INVALID


def test_a_series_that_was_not_measured_is_said_once() -> None:
    history = [of(i, 1.5, values={SPEED_UP: 1.5, LENGTH: 2.0}) for i in range(3)]
    once = judge(history, of(9, 1.5)).night
    assert once.said == ("acceptance_length was not measured, though it was the last time.",)
    assert judge(history, once).night.said == once.said


def test_among_many_series_a_loss_must_be_surer() -> None:
    """At 13 degrees t = -4 is one night in 1,300: enough for one series, not among forty."""
    cells = [f"speed_up/c{i}" for i in range(39)]
    spread = 3.0 ** np.linspace(-1, 1, 39)  # cells of unequal noise: each is judged by its own

    def few(number: int, speed_up: float) -> Night:
        turn = 1 if number % 2 else -1
        values = {c: float(1.5 * np.exp(0.01 * s * turn)) for c, s in zip(cells, spread, strict=True)}
        return of(number, speed_up, values={SPEED_UP: speed_up, **values})

    noisy = [1.5 * float(np.exp(0.02 * turn)) for turn in (1, -1) * 7]
    low = 1.5 * float(np.exp(-0.02 * 4.2))
    alone = judge([of(i, v) for i, v in enumerate(noisy)], of(20, low, again={SPEED_UP: low}))
    assert alone.verdict is NightVerdict.REGRESSION
    among = judge([few(i, v) for i, v in enumerate(noisy)], replace(few(20, low), again={SPEED_UP: low}))
    assert among.verdict is NightVerdict.PASS
    assert the(among).warning.startswith("below its bound twice")


# Cases: what was seen in public, and others of their kinds.


def gains(percents: tuple[float, ...]) -> list[Night]:
    return [of(i, 1 + gain / 100) for i, gain in enumerate(percents)]


def test_the_interval_inside_one_night_is_no_error_bar_for_the_next() -> None:
    """Case 57: one configuration twelve times, 17.3 to 26.7 % faster; each sure of its gain to 1.6 points."""
    assert np.std(CASE_57_GAINS, ddof=1) == pytest.approx(2.9, abs=0.2)
    tonight = of(30, 1.207)
    assert tonight.values[SPEED_UP] < 1.255  # below the interval inside the third night, 25.5 to 27.1 %
    mean, sd = np.mean(CASE_57_GAINS), np.std(CASE_57_GAINS, ddof=1)
    assert mean - 2 * sd < 20.7 < mean + 2 * sd
    judgement = judge(gains(CASE_57_GAINS), tonight)
    assert judgement.verdict is NightVerdict.INSUFFICIENT
    assert (judgement.night.breached, the(judgement).warning) == ((), "")
    longer = judge(gains((*CASE_57_GAINS, *CASE_57_GAINS)), tonight)
    assert (longer.verdict, longer.night.breached) == (NightVerdict.PASS, ())
    assert the(longer).lowest == pytest.approx(1.16, abs=0.01)


def test_out_of_the_spread_between_nights_needs_a_repeat() -> None:
    """Case 57: fail only on a repeat."""
    history, tonight = gains((*CASE_57_GAINS, *CASE_57_GAINS)), of(30, 1.10)
    assert breaches(history, tonight) == (SPEED_UP,)
    assert judge(history, replace(tonight, again={SPEED_UP: 1.22})).verdict is NightVerdict.PASS
    assert judge(history, replace(tonight, again={SPEED_UP: 1.10})).verdict is NightVerdict.REGRESSION


def test_other_defaults_of_a_new_build_are_drift_and_no_regression() -> None:
    """Case 11: the same command line, 42.8 tok/s with the old build, 32.7 with the new."""
    old = {"winner n_max": "16", "winner p_min": "0.75"}
    history = steady(20, effective=old)
    tonight = of(20, 1.5 * 32.7 / 42.8, effective={"winner n_max": "3", "winner p_min": "0.0"})
    assert breaches(history, tonight) == ()
    assert judge(history, tonight).verdict is NightVerdict.CONFIG_DRIFT
    assert drift(history, tonight) == {"winner n_max": ("16", "3"), "winner p_min": ("0.75", "0.0")}
    drifted = judge(history, tonight).night
    again = judge([*history, drifted], replace(tonight, id="next", began_at=21 * DAY_S))
    assert again.verdict is NightVerdict.INSUFFICIENT


@pytest.mark.parametrize(
    "changed", [{"gpu": "X", "driver": "580"}, {"gpu": "X", "power_limit": "250 W"}, {"gpu": "Y"}]
)
def test_other_conditions_begin_a_new_segment_by_themselves(changed: dict[str, str]) -> None:
    history, tonight = steady(20), of(20, 1.2, segment=changed)
    assert breaches(history, tonight) == ()
    assert judge(history, tonight).verdict is NightVerdict.INSUFFICIENT
    assert changed_segment(history, tonight)


def test_one_outlier_night_does_not_blind_the_gate() -> None:
    """Neither one that the rerun took back, nor one before there was any interval, nor a lucky one."""
    taken_back = of(20, 1.2, breached=(SPEED_UP,), again={SPEED_UP: 1.5})
    for outlier in (taken_back, of(20, 1.2), of(20, 1.9)):
        early, late = [replace(outlier, began_at=-DAY_S), *steady(20)], [*steady(20), outlier]
        for history in (early, late):
            tonight = of(30, 1.42)
            assert breaches(history, tonight) == (SPEED_UP,)
            assert judge(history, replace(tonight, again={SPEED_UP: 1.42})).night.alarms == (SPEED_UP,)


def test_a_regression_stays_one_until_it_is_mended_or_accepted() -> None:
    history = steady(20)
    for number in range(20, 50):
        tonight = of(number, 1.4, again={SPEED_UP: 1.4})
        judged = judge(history, tonight).night
        assert judged.alarms == (SPEED_UP,)
        history.append(judged)
    assert judge(history, of(50, 1.5)).verdict is NightVerdict.PASS
    shift = Accepted(50 * DAY_S, "all", "the new default is slower and wanted")
    assert judge(history, of(50, 1.4), [shift]).verdict is NightVerdict.INSUFFICIENT
    settled = [*history, *(of(50 + i, v * 1.4 / 1.5) for i, v in enumerate(np.tile((1.49, 1.51), 8)))]
    assert judge(settled, of(70, 1.4), [shift]).verdict is NightVerdict.PASS
    assert breaches(settled, of(70, 1.3), [shift]) == (SPEED_UP,)


def test_a_shift_accepted_for_one_series_leaves_the_others() -> None:
    def both(number: int, speed_up: float, length: float) -> Night:
        return of(number, speed_up, values={SPEED_UP: speed_up, LENGTH: length})

    history = [both(i, n.values[SPEED_UP], n.values[SPEED_UP] + 1) for i, n in enumerate(steady(20))]
    shift = Accepted(20 * DAY_S, LENGTH, "a new drafter")
    assert breaches(history, both(20, 1.3, 2.0), [shift]) == (SPEED_UP,)
    assert breaches(history, both(20, 1.3, 2.0)) == (SPEED_UP, LENGTH)


def test_two_machines_in_one_history_are_judged_apart() -> None:
    ours = steady(20)
    theirs = [
        replace(n, id=f"b {n.id}", machine="b", began_at=n.began_at + 60, values={SPEED_UP: 1.1})
        for n in ours
    ]
    mixed = [night for pair in zip(theirs, ours, strict=True) for night in pair]
    tonight = of(20, 1.5)
    assert judge(mixed, tonight) == judge(ours, tonight)
    assert breaches(mixed, replace(tonight, machine="b", values={SPEED_UP: 1.0})) == (SPEED_UP,)
