"""A Diagnosis for a terminal: step by step what was checked, seen, and follows; the conclusion last."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from analysis.renderables import BAD, CAUTION, GOOD, text
from results.wiring import Conclusion, Diagnosis, Finding, Outcome, Section, Severity, Step

if TYPE_CHECKING:
    from rich.console import RenderableType

TITLES = {
    Step.DEFINITIONS: "Definitions",
    Step.STATE: "Processes, GPUs and shared memory",
    Step.WIRING: "Wiring by folders, flags and version",
    Step.CAPTURE: "Capture from the running server",
    Step.SERVED: "Which wiring the server uses",
    Step.TRAINED: "Which wiring the drafter was trained with",
    Step.CONCLUSION: "Conclusion",
}
_SEVERITIES = {Severity.FATAL: BAD, Severity.LIKELY: CAUTION, Severity.INFO: ""}
_OUTCOMES = {Outcome.NAMED: BAD, Outcome.CLEARED: GOOD, Outcome.UNDECIDED: CAUTION}
_BESIDE = {"checked": "checked  ", "seen": "seen     ", "follows": "follows  "}


def diagnosis_lines(diagnosis: Diagnosis) -> "Iterator[RenderableType]":
    for section in diagnosis.sections:
        yield from _section(section)
    if diagnosis.conclusion is not None:
        yield from _conclusion(diagnosis.conclusion)


def _section(section: Section) -> "Iterator[RenderableType]":
    number = list(Step).index(section.step) + 1
    yield text("")
    yield text(f"{number}. {TITLES[section.step]}", "bold")
    if section.skipped:
        yield _line("skipped  ", section.skipped)
        return
    for name, beside in _BESIDE.items():
        for at, line in enumerate(getattr(section, name)):
            yield _line(beside if at == 0 else " " * len(beside), line)
    for finding in section.findings:
        yield from _finding(finding)


def _finding(finding: Finding) -> "Iterator[RenderableType]":
    """A remark claims no cause: healthy drafters have some."""
    is_remark = finding.severity is Severity.INFO
    said = finding.seen if is_remark else f"{finding.cause.value}: {finding.seen}"
    yield _line(f"{finding.severity:<7}  ", said, _SEVERITIES[finding.severity])
    yield _line("         rule: ", finding.rule)
    if finding.fix is not None:
        yield _line("         if so: " if is_remark else "         change: ", finding.fix.words)


def _conclusion(conclusion: Conclusion) -> "Iterator[RenderableType]":
    yield text("")
    yield text(
        f"{conclusion.outcome}: {conclusion.sentence.removeprefix('Undecided: ')}",
        f"bold {_OUTCOMES[conclusion.outcome]}".strip(),
    )
    for line in conclusion.evidence:
        yield _line("  because  ", line)
    if conclusion.fix is not None:
        yield _line("  change   ", conclusion.fix.words)
    if conclusion.accept_length is not None:
        after = conclusion.accept_length_after
        then = f"; {after:.2f} predicted after the change" if after is not None else ""
        yield _line("  length   ", f"{conclusion.accept_length:.2f} tokens a round as served{then}")


def _line(before: str, said: str, style: str = "") -> "RenderableType":
    """Folded lines begin below the text, not below what stands before it."""
    from rich.table import Table

    drawn = Table.grid(padding=0)
    drawn.add_column(no_wrap=True)
    drawn.add_column()
    drawn.add_row(text(f"  {before}", "dim"), text(said, style))
    return drawn
