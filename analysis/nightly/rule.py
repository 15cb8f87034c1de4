"""The rule of the nightly gate: which series are out, which are a regression, and what the night is.

Two stages. A first measurement below its prediction interval, and by more than matters, is measured again
at once. An alarm needs the rerun out as well, and then that both together are too low for chance once
all series of the night are looked at. docs/nightly-rule.md has the formulas and what simulation says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.nightly.discoveries import discoveries
from analysis.nightly.expectation import ALPHA, Expectation, expectations
from analysis.nightly.judgement import Judged, Judgement, State
from analysis.nightly.leak import leaks
from analysis.nightly.remarks import not_measured, warning
from analysis.nightly.scale import change, is_judged, is_usable, off_scale, on_scale
from analysis.nightly.segments import MOST_NIGHTS, drift, lost, reference, segment, settled
from analysis.nightly.sums import mean
from results.nights import SPEED_UP, Accepted, Night, NightVerdict
from results.reasons import Reason

FAULTS_OF_THE_WINNER = frozenset({Reason.NOT_SPECULATING, Reason.BROKEN_DRAFTER, Reason.INVALID_OUTPUT})


@dataclass(frozen=True, slots=True)
class _Findings:
    """What the rule finds in one night. `before` and `expected` are by series, on their scales."""

    before: Mapping[str, Sequence[float]]  # every judged series of tonight
    expected: Mapping[str, Expectation]  # those with enough nights
    breached: tuple[str, ...]
    confirmed: tuple[str, ...] = ()
    leaking: tuple[str, ...] = ()


def breaches(history: Sequence[Night], tonight: Night, accepted: Sequence[Accepted] = ()) -> tuple[str, ...]:
    """The series whose first measurement is out: they need a rerun now. None in a night with a failure."""
    return () if tonight.failure is not None else _first_look(history, tonight, accepted).breached


def judge(history: Sequence[Night], tonight: Night, accepted: Sequence[Accepted] = ()) -> Judgement:
    """The final judgement; `tonight.again` holds the rerun if there was a breach.

    Verdict: INVALID for a failure that is not the winner's; REGRESSION for one that is, whatever the
    history, and for an alarm or a leak; CONFIG_DRIFT if the servers ran with other settings than the night
    before; INSUFFICIENT if the overall speed-up has too few nights to be compared with; else PASS.
    A breach without a rerun is not confirmed and is no alarm: its `warning` says so. Whoever wanted
    the rerun and could not measure it gives the night a failure, which makes it INVALID.
    """
    found = _first_look(history, tonight, accepted)
    found = found if _is_invalid(tonight) else _second_look(found, tonight)
    verdict = _verdict(tonight, found, drifted=bool(drift(history, tonight)))
    said = dict.fromkeys((*tonight.said, *map(not_measured, lost(history, tonight))))
    alarms = found.confirmed + found.leaking
    night = replace(tonight, breached=found.breached, alarms=alarms, verdict=verdict, said=tuple(said))
    return Judgement(night, tuple(_judged(series, tonight, found) for series in tonight.values))


def references(
    history: Sequence[Night], tonight: Night, accepted: Sequence[Accepted] = ()
) -> dict[str, list[float]]:
    """What every judged series of tonight is compared with: places on its scale, the oldest first."""
    nights = segment(history, tonight)
    judged = (s for s, value in tonight.values.items() if is_judged(s) and is_usable(s, value))
    return {series: reference(nights, tonight, series, accepted) for series in judged}


def _first_look(history: Sequence[Night], tonight: Night, accepted: Sequence[Accepted]) -> _Findings:
    before = references(history, tonight, accepted)
    expected = expectations(before)
    return _Findings(before, expected, out(tonight.values, expected))


def _second_look(found: _Findings, tonight: Night) -> _Findings:
    """With the rerun, and with the nights behind: what is an alarm."""
    confirmed = out_twice(tonight.values, tonight.again, found.expected)
    night = replace(tonight, breached=found.breached, alarms=confirmed)
    return replace(found, confirmed=confirmed, leaking=_leaking(found, night))


def out(values: Mapping[str, float], expected: Mapping[str, Expectation]) -> tuple[str, ...]:
    """The series that lie below their interval."""
    usable = [s for s in expected if is_usable(s, values.get(s))]
    return tuple(s for s in usable if on_scale(s, values[s]) < expected[s].lowest)


def out_twice(
    values: Mapping[str, float], again: Mapping[str, float], expected: Mapping[str, Expectation]
) -> tuple[str, ...]:
    """The series below their interval in both measurements, and too low for chance among all of them.

    The mean of both is taken for one measurement, though it varies less: how much of a bad night a rerun an
    hour later shares is not known.
    """
    below = out(again, expected)
    chances = dict.fromkeys(expected, 1.0)
    for series in (s for s in out(values, expected) if s in below):
        middle = mean([on_scale(series, values[series]), on_scale(series, again[series])])
        chances[series] = expected[series].p_value(middle)
    return discoveries(chances, ALPHA)


def _leaking(found: _Findings, night: Night) -> tuple[str, ...]:
    """Of the series that are no alarm yet."""
    figures = {s: settled(night, s) for s in found.before if s not in night.alarms}
    usable = {s: value for s, value in figures.items() if value is not None and is_usable(s, value)}
    return leaks({s: [*found.before[s], on_scale(s, value)] for s, value in usable.items()})


def _verdict(tonight: Night, found: _Findings, drifted: bool) -> NightVerdict:
    if _is_invalid(tonight):
        return NightVerdict.INVALID
    if tonight.failure is not None or found.confirmed or found.leaking:
        return NightVerdict.REGRESSION
    if drifted:
        return NightVerdict.CONFIG_DRIFT
    return NightVerdict.PASS if SPEED_UP in found.expected else NightVerdict.INSUFFICIENT


def _is_invalid(night: Night) -> bool:
    return night.failure is not None and night.failure.reason not in FAULTS_OF_THE_WINNER


def _judged(series: str, tonight: Night, found: _Findings) -> Judged:
    expected, before = found.expected.get(series), found.before.get(series, ())
    judged = Judged(
        series,
        _state(series, found),
        tonight.values[series],
        tonight.again.get(series),
        nights=len(before[-MOST_NIGHTS:]),
        breached=series in found.breached,
    )
    judged = _with_interval(judged, expected) if expected is not None else judged
    return replace(judged, warning=warning(judged, before))


def _state(series: str, found: _Findings) -> State:
    if not is_judged(series):
        return State.TOLD
    if series in found.confirmed:
        return State.REGRESSION
    if series in found.leaking:
        return State.LEAK
    return State.PASS if series in found.expected else State.INSUFFICIENT


def _with_interval(judged: Judged, expected: Expectation) -> Judged:
    centre = off_scale(judged.series, expected.centre)
    return replace(
        judged,
        expected=centre,
        lowest=off_scale(judged.series, expected.lowest),
        change=change(judged.series, judged.value, centre),
        p_value=expected.p_value(on_scale(judged.series, judged.value)),
    )
