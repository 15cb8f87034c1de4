"""A night explains itself: what moved, what changed since the last good night, and what that points to."""

from collections.abc import Sequence

from analysis.nightly.changed import (
    changes,
    comparable,
    last_good,
    segment_began,
    settings,
    surroundings,
)
from analysis.nightly.expectation import FEWEST_NIGHTS
from analysis.nightly.figures import figure, name_of, sentence, shown
from analysis.nightly.headline import speed_up
from analysis.nightly.judgement import Judgement, State
from analysis.nightly.likely import likely
from analysis.nightly.moved import fell, recovered, warnings
from analysis.nightly.scale import WIDE_LOSS
from analysis.nightly.segments import earlier
from analysis.nightly.usual import told
from analysis.words import REASONS, REMEDIES, moment, percent
from results.nights import BASELINE, LENGTH, SPEED_UP, Night, NightKind, NightVerdict, kind_of
from results.records import Failure

MOST_CHANGES = 8
_FALSE_ALARM = (
    "Both servers were the same baseline, so this alarm is false and counts in the gate's own rate of them."
)
_NAME_IT = "To keep the old value, name it in the sweep's args; to keep the new one, pin again."
_NO_DIFFERENCE = "The servers report other settings than before."


def explain(history: Sequence[Night], judgement: Judgement) -> tuple[str, ...]:
    """Sentences, most telling first, then what the night says already.

    `history` may hold other pins, and tonight itself.
    """
    parts = {
        NightVerdict.PASS: _passed,
        NightVerdict.REGRESSION: _regression,
        NightVerdict.INSUFFICIENT: _insufficient,
        NightVerdict.CONFIG_DRIFT: _drift,
        NightVerdict.INVALID: _invalid,
    }
    found = [*parts[judgement.verdict](history, judgement), *judgement.night.said]
    return tuple(dict.fromkeys(filter(None, found)))


def since_pinned(pinned: Night, night: Night) -> list[str]:
    """Of the first night: what is no longer as it was pinned. `pinned` holds what was confirmed then."""
    fallen = [
        f"{name_of(series)} {figure(series, night.values[series])}, {figure(series, value)} when pinned"
        for series, value in pinned.values.items()
        if kind_of(series) in (SPEED_UP, BASELINE, LENGTH)
        and night.values.get(series, value) < (1 - WIDE_LOSS) * value
    ]
    said = [sentence(f"More than {percent(WIDE_LOSS)} lower: {'; '.join(fallen)}")] if fallen else []
    return [*filter(None, [_changed(pinned, night, "since it was pinned")]), *said]


def _passed(history: Sequence[Night], judgement: Judgement) -> list[str]:
    night = judgement.night
    changed = _changed_since_good(history, night)
    return [*warnings(judgement), *recovered(judgement), changed, *told(history, night)]


def _regression(history: Sequence[Night], judgement: Judgement) -> list[str]:
    night = judgement.night
    if night.kind is NightKind.AA:
        return [_FALSE_ALARM, *fell(judgement)]
    fault = _fault("The pinned configuration is at fault", night.failure) if night.failure else []
    return [
        *fault,
        likely(history, judgement),
        _what_changed(history, judgement),
        *fell(judgement),
        *told(history, night),
        *recovered(judgement),
        *warnings(judgement),
    ]


def _what_changed(history: Sequence[Night], judgement: Judgement) -> str:
    """Since the last good night; of what was lost slowly since the first night of the segment."""
    night = judgement.night
    states = {j.state for j in judgement.series}
    slowly = State.LEAK in states and State.REGRESSION not in states
    first = comparable(history, night)[:1] if slowly else []
    good = first[0] if first else last_good(history, night)
    if good is None:
        return "There is no earlier night of this pin on this machine to compare with."
    name = "the first night like it" if first else _named(good)
    same = "software, machine and settings are the same"
    since = f"since {name} ({moment(good.began_at)})"
    return _changed(good, night, since) or f"Nothing that is recorded changed {since}: {same}."


def _named(night: Night) -> str:
    return f"the last {'good' if night.verdict is NightVerdict.PASS else 'measured'} night"


def _changed_since_good(history: Sequence[Night], night: Night) -> str:
    good = last_good(history, night)
    return _changed(good, night, f"since {_named(good)} ({moment(good.began_at)})") if good else ""


def _changed(before: Night, now: Night, since: str) -> str:
    """What changed, in one sentence; "" if nothing did."""
    found = changes(before, now)
    more = [f"and {len(found) - MOST_CHANGES} more"] if len(found) > MOST_CHANGES else []
    listed = "; ".join([*found[:MOST_CHANGES], *more])
    return f"Changed {since}: {listed}." if found else ""


def _insufficient(history: Sequence[Night], judgement: Judgement) -> list[str]:
    night = judgement.night
    ratio = speed_up(judgement)
    nights = ratio.nights if ratio is not None else 0
    alike = len(comparable(history, night))
    said = (
        f"A judgement needs {FEWEST_NIGHTS} nights and has {nights}; until then only a large fall is told, as"
        " a warning."
    )
    accepted = f"There are {alike} nights like this one; those before an accepted shift do not count."
    return [
        *warnings(judgement),
        said,
        accepted if alike >= FEWEST_NIGHTS > nights else segment_began(history, night),
        *recovered(judgement),
        *told(history, night),
    ]


def _drift(history: Sequence[Night], judgement: Judgement) -> list[str]:
    night = judgement.night
    whole = [
        n for n in earlier(history, night) if n.failure is None and n.verdict is not NightVerdict.INVALID
    ]
    other = [n for n in whole if dict(n.effective) != dict(night.effective)]
    if not other:
        return [_NO_DIFFERENCE, _NAME_IT]
    came = "; ".join(surroundings(other[-1], night))
    with_it = f"It came with: {came}." if came else "Nothing else that is recorded changed with it."
    return [*(sentence(said) for said in settings(other[-1], night)), with_it, _NAME_IT]


def _invalid(history: Sequence[Night], judgement: Judgement) -> list[str]:
    night = judgement.night
    why = ["Not measured, and no reason was recorded."]
    if night.failure is not None:
        why = _fault("Not measured", night.failure)
    changed = _changed_since_good(history, night) if night.versions else ""
    return [*why, changed, *warnings(judgement)]


def _fault(whose: str, failure: Failure) -> list[str]:
    """The reason in words, the line that shows it, and what to do."""
    said = f"{whose}: {REASONS[failure.reason]} ({failure.reason})."
    evidence = shown(failure.evidence)
    return [said, f'It shows in: "{evidence}".' if evidence else "", REMEDIES[failure.reason]]
