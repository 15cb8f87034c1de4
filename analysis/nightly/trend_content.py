"""What the trend page says, whatever its form: the courses with their curves, and the verdicts in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis import words
from analysis.nightly.course import Course, Curve, curves, last_good, since, verdict_of
from analysis.nightly.trend_series import OVERALL, TOLD_ONLY, family
from results.nights import Night, NightVerdict

SAID = {  # worst first
    NightVerdict.REGRESSION: "regression",
    NightVerdict.INVALID: "not measured",
    NightVerdict.CONFIG_DRIFT: "not comparable",
    NightVerdict.INSUFFICIENT: "not judged yet",
    NightVerdict.PASS: "passed",
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A course with its series."""

    course: Course
    curves: tuple[Curve, ...]

    @property
    def overall(self) -> list[Curve]:
        return [c for name in OVERALL for c in self.curves if c.series == name]

    @property
    def families(self) -> dict[str, list[Curve]]:
        """The other series, by family: those in alarm first, those that are only told last."""
        rest = [c for c in self.curves if c.series not in OVERALL]
        rest.sort(key=lambda c: not self.in_alarm(c))
        names = sorted(dict.fromkeys(family(c.series) for c in rest), key=lambda name: name == TOLD_ONLY)
        return {name: [c for c in rest if family(c.series) == name] for name in names}

    def in_alarm(self, drawn: Curve) -> bool:
        return drawn.series in self.course.nights[-1].alarms


def drawn(found: Sequence[Course]) -> list[Drawn]:
    """The courses that were checked at all, with every series."""
    return [Drawn(course, curves(course)) for course in found if course.nights]


def headline(found: Sequence[Course]) -> str:
    """`Regression`, `2 of 3: regression`, `All 3: passed`."""
    verdicts = [verdict for course in found if (verdict := verdict_of(course)) is not None]
    if not verdicts:
        return "No night was checked"
    worst = next(verdict for verdict in SAID if verdict in verdicts)
    if len(verdicts) == 1:
        return SAID[worst].capitalize()
    number = verdicts.count(worst)
    return f"{'All' if number == len(verdicts) else f'{number} of'} {len(verdicts)}: {SAID[worst]}"


def since_said(course: Course) -> str:
    """`2026-11-28 02:00 UTC, 3 nights in a row`."""
    first = since(course)
    count = sum(night.began_at >= first.began_at for night in course.nights)
    in_a_row = " in a row" if count > 1 else ""
    return f"{words.moment(first.began_at)}, {words.count(count, 'night')}{in_a_row}"


def last_good_said(course: Course) -> str:
    """ "" if that is the last night."""
    if verdict_of(course) is NightVerdict.PASS:
        return ""
    good = last_good(course)
    return words.moment(good.began_at) if good is not None else "none has passed so far"


def counted(course: Course) -> str:
    """`20: 14 not judged yet, 5 passed, 1 regression`."""
    verdicts = [night.verdict for night in course.nights]
    told = [f"{verdicts.count(v)} {said}" for v, said in SAID.items() if v in verdicts]
    return f"{len(verdicts)}: {', '.join(reversed(told))}"


def explanation(night: Night) -> str:
    if night.said:
        return " ".join(night.said)
    return words.one_line(night.failure.evidence) if night.failure is not None else ""
