"""A night as JUnit XML, as Jenkins and GitLab read it.

A REGRESSION or LEAK is a failure, a night that could not be measured or compared is an error, a series
with too few nights is skipped. GitLab shows the text of a failure, not its message: the text says all.
"""

import re
from datetime import UTC, datetime
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from analysis.nightly.figures import FAILED, change, figure, name_of, shown
from analysis.nightly.headline import headline, measured_with
from analysis.nightly.judgement import Judged, Judgement, State
from analysis.words import clean
from results.nights import NightKind, NightVerdict

MEASURED = "measured as pinned"  # the testcase of the night itself
# What words.clean leaves and XML 1.0 has no place for.
_FORBIDDEN = re.compile("[\ud800-\udfff\ufffe\uffff]")
_OF_THE_NIGHT = {
    NightVerdict.INVALID: "error",
    NightVerdict.CONFIG_DRIFT: "error",
    NightVerdict.REGRESSION: "failure",
}


def junit(judgement: Judgement) -> str:
    """One suite, of one pin on one machine; one testcase per judged series, and one of the night itself."""
    root = Element("testsuites")
    suite = SubElement(root, "testsuite", _suite(judgement))
    _properties(SubElement(suite, "properties"), judgement)
    _night(suite, judgement)
    for judged in judgement.series:
        if judged.state is not State.TOLD:
            _series(suite, judged, judgement)
    for counter, tag in (
        ("tests", "testcase"),
        ("failures", "failure"),
        ("errors", "error"),
        ("skipped", "skipped"),
    ):
        number = str(sum(1 for _ in suite.iter(tag)))
        suite.set(counter, number)
        if counter != "skipped":
            root.set(counter, number)
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, "unicode")}\n'


def xml_text(text: str) -> str:
    """Without the characters that XML 1.0 forbids, and without terminal codes."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", clean(text))


def _suite(judgement: Judgement) -> dict[str, str]:
    night = judgement.night
    began = datetime.fromtimestamp(night.began_at, UTC)
    return {
        "name": xml_text(f"{night.pin} on {night.machine}"),
        "timestamp": f"{began:%Y-%m-%dT%H:%M:%S}",  # UTC: the format has no place for a zone
        "hostname": xml_text(night.machine),
        "time": f"{max(0.0, night.ended_at - night.began_at):.3f}",
    }


def _class_name(judgement: Judgement) -> str:
    """`pin.machine`: to Jenkins a package and a class, to GitLab the suite."""
    night = judgement.night
    aa = "" if night.kind is NightKind.CHECK else f" {night.kind}"
    return ".".join(xml_text(part).replace(".", "_") for part in (f"{night.pin}{aa}", night.machine))


def _properties(parent: Element, judgement: Judgement) -> None:
    told = [(name_of(j.series), figure(j.series, j.value)) for j in judgement.series if j.state is State.TOLD]
    for name, value in (("verdict", judgement.verdict), *measured_with(judgement), *told):
        SubElement(parent, "property", {"name": xml_text(name), "value": xml_text(value)})


def _testcase(suite: Element, judgement: Judgement, name: str) -> Element:
    """The time is that of the suite: no series takes any of its own."""
    of = {"classname": _class_name(judgement), "name": xml_text(name), "time": "0.000"}
    return SubElement(suite, "testcase", of)


def _result(case: Element, tag: str, kind: str, message: str, lines: list[str]) -> None:
    found = SubElement(case, tag, {"type": kind, "message": xml_text(message)})
    found.text = xml_text("\n".join([message, *lines]))


def _night(suite: Element, judgement: Judgement) -> None:
    """Fails only by what no series shows: a fault of the winner, no figures, other settings."""
    night, case = judgement.night, _testcase(suite, judgement, MEASURED)
    by_series = any(j.state in FAILED for j in judgement.series)
    tag = _OF_THE_NIGHT.get(judgement.verdict)
    if tag is None or (judgement.verdict is NightVerdict.REGRESSION and by_series and night.failure is None):
        return
    kind = str(night.failure.reason if night.failure else judgement.verdict)
    _result(case, tag, kind, headline(judgement), list(night.said))


def _series(suite: Element, judged: Judged, judgement: Judgement) -> None:
    case = _testcase(suite, judgement, name_of(judged.series))
    if judged.state in FAILED:
        _result(
            case, "failure", judged.state, _message(judged), [*_figures(judged), "", *judgement.night.said]
        )
    elif judged.state is State.INSUFFICIENT:
        _result(case, "skipped", judged.state, _message(judged), _figures(judged))
    elif judged.warning:
        SubElement(case, "system-out").text = xml_text(judged.warning)


def _message(judged: Judged) -> str:
    now = f"{name_of(judged.series)} {figure(judged.series, judged.value)}"
    if judged.state is State.INSUFFICIENT:
        return f"{now}: too few nights to judge ({judged.nights})"
    return f"{now}, expected {figure(judged.series, judged.expected)} ({change(judged) or 'no change known'})"


def _figures(judged: Judged) -> list[str]:
    """Each on its own line; what is not known is left out."""
    named = (
        ("tonight", judged.value),
        ("rerun", judged.again),
        ("expected", judged.expected),
        ("lowest", judged.lowest),
    )
    lines = [f"{name}: {figure(judged.series, value)}" for name, value in named if value is not None]
    p_value = [f"p: {judged.p_value:.2g}"] if judged.p_value is not None else []
    return [
        *lines,
        f"nights: {judged.nights}",
        *p_value,
        *([shown(judged.warning)] if judged.warning else []),
    ]
