"""The trend page: the last night of each pin on each machine in words, then its series over the nights."""

from collections.abc import Sequence
from dataclasses import replace

from analysis import words
from analysis.markup import chart, folded, paragraph, section, table, text
from analysis.nightly import curve_figure, trend_content, trend_tables
from analysis.nightly.course import Course, Curve, Trend, courses, curves, verdict_of
from analysis.nightly.curve_marks import night_text
from analysis.nightly.false_alarms import false_alarms
from analysis.nightly.trend_content import Drawn
from analysis.page import document
from analysis.tables import Table
from results.nights import SPEED_UP, NightVerdict

_MOST_ROWS = 31  # more are folded
_HOW_TO_READ = (
    "Each dot is a night. The grey band is what the nights before it lead to expect, down to the lowest "
    "that is no breach. A breach is measured again at once; only if the rerun is out too is it an alarm. "
    "Point at a mark to read it; with the keyboard, Tab to the chart, then left and right."
)
_AA = (
    "The baseline against itself, judged by the same rule. There is nothing to find, so every alarm here is "
    "a false one."
)
_TERMS = {
    "Night": "One run of tuner check: the pinned winner against the pinned baseline, on one machine.",
    "Expected, lowest": (
        "Middle and lower end of the interval that the nights before, in the same stretch, predict for the "
        "next. It is never narrower than the smallest effect that counts."
    ),
    "Breach": "The first measurement of a night is below the lowest. It is measured again at once.",
    "Alarm": "The rerun is below it too, or the series was lost slowly over the nights: a regression.",
    "Segment": (
        "Nights that may be compared, because GPU, driver, prompts, settings and the like are equal. Another "
        "driver begins a new segment by itself, and its first nights are not judged."
    ),
    "Accepted shift": "Somebody accepted a new level with a reason; nights are compared from there on.",
    "Change point": (
        "Where another level seems to begin, found over all nights of a stretch, later ones too. A help for "
        "the eye: no verdict rests on it."
    ),
    "A/A night": "The baseline against itself. Whatever the gate finds there is a false alarm.",
}


def page(trend: Trend) -> str:
    """Of at least one night."""
    found = courses(trend)
    drawn = trend_content.drawn(found)
    parts = {f"course-{i}": (one.course.name, _course(one, f"course-{i}")) for i, one in enumerate(drawn)}
    parts["aa"] = ("A/A nights", _aa(found))
    parts["terms"] = ("Terms", _terms())
    shown = {id: (name, inside) for id, (name, inside) in parts.items() if inside}
    links = "".join(f'<li><a href="#{id}">{text(name)}</a></li>' for id, (name, _) in shown.items())
    body = "".join(inside for _, inside in shown.values())
    title = f"Nightly gate: {trend_content.headline(found)}"
    return document(title, links, f"{_head(found)}{body}")


def _head(found: Sequence[Course]) -> str:
    checked = [course for course in found if course.nights]
    where = checked[0].name if len(checked) == 1 else f"{len(checked)} pins and machines"
    inside = _brief(checked[0]) if len(checked) == 1 else table(trend_tables.verdicts(checked), titled=False)
    return (
        f'<header class="{_tone(checked)}"><p class="eyebrow">Nightly gate, {text(where)}</p>'
        f'<h1 class="sentence"><span>{text(trend_content.headline(found))}</span></h1>{inside}</header>'
    )


def _tone(checked: Sequence[Course]) -> str:
    verdicts = {verdict_of(course) for course in checked}
    if NightVerdict.REGRESSION in verdicts:
        return "alarm"
    return "passed" if verdicts == {NightVerdict.PASS} else "open"


def _brief(course: Course) -> str:
    last = course.nights[-1]
    known = {
        "Last night": words.moment(last.began_at),
        "Since": trend_content.since_said(course),
        "It says": trend_content.explanation(last),
        "Last good": trend_content.last_good_said(course),
        "Nights": trend_content.counted(course),
    }
    shown = "".join(
        f"<div><dt>{name}</dt><dd>{paragraph(said)}</dd></div>" for name, said in known.items() if said
    )
    return f'<dl class="brief">{shown}</dl>'


def _course(one: Drawn, id: str) -> str:
    return section(
        id,
        one.course.name,
        paragraph(_HOW_TO_READ, "note"),
        *(_wide(one.course, c, f"{id}-wide-{i}") for i, c in enumerate(one.overall)),
        *(_family(one, name, curves, f"{id}-{i}") for i, (name, curves) in enumerate(one.families.items())),
        _long(trend_tables.began(one.course, one.overall)),
        _long(trend_tables.nights(one.course)),
    )


def _wide(course: Course, shown: Curve, id: str) -> str:
    content = trend_tables.of_curve(shown)
    drawn = chart(curve_figure.wide(course, shown, id), night_text(shown.series, shown.last))
    return f"{drawn}{folded(content.title, table(content, titled=False))}"


def _family(one: Drawn, name: str, curves: Sequence[Curve], id: str) -> str:
    alarms = sum(one.in_alarm(c) for c in curves)
    said = f"{name}: {words.count(len(curves), 'series', 'series')}{f', {alarms} in alarm' if alarms else ''}"
    small = "".join(chart(curve_figure.small(one.course, c, f"{id}-{i}")) for i, c in enumerate(curves))
    told = table(trend_tables.of_family(name, curves))
    return folded(said, f'<div class="multiples">{small}</div>{told}', shown=alarms > 0)


def _long(content: Table) -> str:
    if len(content.rows) <= _MOST_ROWS:
        return table(content)
    return folded(content.title, table(content, titled=False))


def _aa(found: Sequence[Course]) -> str:
    measured = [_aa_course(course, f"aa-{i}") for i, course in enumerate(found) if course.aa]
    counted = table(trend_tables.false_alarms(found), titled=False)
    said = paragraph(_AA, "note") if counted else ""
    return section("aa", "A/A nights: the gate's own false alarms", said, counted, *measured)


def _aa_course(course: Course, id: str) -> str:
    """Its rate of false alarms, and the speed-up of the baseline over itself."""
    alone = replace(course, nights=course.aa, accepted=())
    drawn = [_wide(alone, c, id) for c in curves(alone) if c.series == SPEED_UP]
    return f"<h3>{text(course.name)}</h3>{paragraph(str(false_alarms(course.aa)))}{''.join(drawn)}"


def _terms() -> str:
    shown = "".join(f"<div><dt>{text(t)}</dt><dd>{text(d)}</dd></div>" for t, d in _TERMS.items())
    return section("terms", "What the words mean", f'<dl class="terms">{shown}</dl>')
