"""The verdict for a terminal: rich renderables, printed by the command line."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from analysis import crossover, map_tables, nodes, sides
from analysis.accuracy import in_words
from analysis.answer import Answer, Tone, answer, command_title
from analysis.cost_section import prediction_line
from analysis.findings import best_verdict, confirmed_against, failed, missing, reason_of, search_estimate
from analysis.hardware import in_short
from analysis.labels import grouped
from analysis.limit_tables import in_short as limits_in_short
from analysis.loadmap import CellAnswer, State, load_map
from analysis.profile_findings import cautions, latest
from analysis.profile_findings import headline as profile_headline
from analysis.profile_findings import in_short as profile_in_short
from analysis.profile_section import profile_tables
from analysis.renderables import BAD as _BAD
from analysis.renderables import CAUTION as _CAUTION
from analysis.renderables import GOOD as _GOOD
from analysis.renderables import grid as _grid
from analysis.renderables import plain as _plain
from analysis.renderables import section as _section
from analysis.renderables import table as _table
from analysis.renderables import text as _text
from analysis.report_input import ReportInput
from analysis.searched import how_compared
from analysis.words import clean, count, one_line, percent, signs, times, times_with_interval
from results.profile import Profile
from results.records import BASELINE, Effect, Trial, Verdict, VerdictKind

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_TONES = {Tone.FASTER: _GOOD, Tone.STAY: "", Tone.LIMITS: "", Tone.OPEN: _CAUTION}
_KINDS = {VerdictKind.BETTER: _GOOD, VerdictKind.WORSE: _BAD, VerdictKind.SAME: ""}
_COMMAND_WIDTH = 76  # characters of a line, so that no terminal breaks it inside an argument
# What a shell takes as one word, its quotes included.
_SHELL_WORD = re.compile(r"""(?:[^\s'"\\]|'[^']*'|"(?:\\.|[^"\\])*"|\\.)+""", re.DOTALL)


def verdict_lines(report: ReportInput) -> "Iterator[RenderableType]":
    """What is known of a run, top first: answer, warnings, finalists, classes, facts, failures, command."""
    yield from _head(report, answer(report))
    best = best_verdict(report)
    if report.comparison is not None:
        yield from _compared(report)
    elif report.verdicts:
        yield from _section("Confirmed on held-out prompts", _finalists(report))
    if best is not None and best.by_class:
        yield from _section(f"{best.point.label}, by class", _classes(best, report.objective))
    yield from _load_map(report)
    if facts := _facts(report, best):
        yield _text("")
        yield _grid(facts, "bold")
    if lost := failed(report.trials):
        tried = count(sum(t.point != BASELINE for t in report.trials), "trial")
        title = f"{len(lost)} of {tried} could not be measured; the report has the evidence in full"
        yield from _section(title, _failures(lost))
    yield from profile_lines(report.profiles)
    if report.command:
        yield from _section(command_title(report), _text(continued(clean(report.command))))


def profile_lines(profiles: Sequence[Profile]) -> "Iterator[RenderableType]":
    """Where the time of a step goes, for the servers that were profiled last; nothing without any."""
    pair = latest(profiles)
    if pair is None:
        return
    yield _text("")
    yield _text(profile_headline(pair), "bold")
    yield from (_text(sentence, _CAUTION) for sentence in cautions(pair))
    for shown in profile_tables(profiles)[:2]:
        yield from _section(f"{shown.title} ({pair.subject.cell.label})", _plain(shown))
    yield _text("")
    yield _grid([(profile.arm, _text(profile_in_short(profile))) for profile in pair.shown], "bold")


def _compared(report: ReportInput) -> "Iterator[RenderableType]":
    """Who is who, what differs, and what each reaches."""
    yield _text("")
    yield _plain(sides.named(report))
    for shown in (sides.differences(report), sides.sides(report)):
        if shown.rows:
            yield from _section(shown.title, _plain(shown))


def _head(report: ReportInput, said: Answer) -> "Iterator[RenderableType]":
    yield _text(" ".join(filter(None, (said.big, said.unit))), f"bold {_TONES[said.tone]}")
    headline = report.headline.removeprefix(f"{said.big}.").strip()  # which is said already
    yield from (_text(sentence) for sentence in ([headline] if headline else said.details))
    yield from (_text(sentence) for sentence in crossover.sentences(load_map(report)))
    for warning in (report.banner or "").splitlines():
        yield _text(warning, f"bold {_CAUTION}")


def _finalists(report: ReportInput) -> "Table":
    table = _table("configuration", "verdict", "speed-up", "in search", "Blocks")
    for verdict in sorted(report.verdicts, key=_estimate, reverse=True):
        table.add_row(
            _text(verdict.point.label),
            _text(verdict.kind, _KINDS.get(verdict.kind, _CAUTION)),
            times_with_interval(verdict.effect),
            times(search_estimate(report, verdict.point)),
            str(verdict.effect.blocks if verdict.effect else 0),
        )
    return table


def _estimate(verdict: Verdict) -> float:
    return verdict.effect.log_ratio if verdict.effect else float("-inf")


def _classes(verdict: Verdict, objective: str) -> "Table":
    table = _table("class", "speed-up", "")
    fastest_first = sorted(verdict.by_class.items(), key=lambda item: -item[1].log_ratio)
    for workload_class, effect in fastest_first:
        table.add_row(_text(workload_class), times_with_interval(effect), _sign(effect, objective))
    return table


def _load_map(report: ReportInput) -> "Iterator[RenderableType]":
    """Where there is more than one load or length; a single one is in the table of the classes."""
    from rich.table import Table

    drawn = load_map(report)
    if drawn is None or len({(a.cell.pace, a.cell.context_tokens) for a in drawn.cells}) < 2:
        return
    paces, lengths = map_tables.paces_of(drawn), map_tables.has_lengths(drawn)
    numbers = {point.key: number for number, point in enumerate(drawn.points, start=1)}
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("class", *(["prompts"] if lengths else []), *paces):
        table.add_column(name, overflow="fold")
    for (name, length), found in map_tables.rows_of(drawn).items():
        fields = [_field(found[p], numbers) if p in found else _text("") for p in paces]
        table.add_row(_text(name), *([_text(length)] if lengths else []), *fields)
    yield from _section("Load map: the best in every Cell", table)
    yield from (_text(f"({numbers[p.key]}) {p.label}", "dim") for p in drawn.points)
    there = {a.state for a in drawn.cells}
    yield from (_text(f"{sign}: {said}", "dim") for sign, (said, of) in _SIGNS.items() if there & {*of})
    yield _text(map_tables.compromise_sentence(drawn))


_SIGNS = {
    "open": ("not decided; in brackets the largest estimate", (State.UNDECIDED,)),
    "off": ("nothing measured is faster; in brackets what comes closest", (State.SAME, State.SLOWER)),
    "~": ("one Block of the search, optimistic", (State.SEARCHED,)),
}


def _field(answer: CellAnswer, numbers: Mapping[str, int]) -> "Text":
    if answer.shown is None:
        return _text(answer.state, "dim")
    number = times(answer.shown.log_speedup)
    if answer.state is State.SEARCHED:
        return _text(f"~{number} ({numbers[answer.shown.point.key]})", "dim")
    if answer.best is not None:
        return _text(f"{number} ({numbers[answer.best.key]})", _GOOD)
    said = {State.SAME: f"off ({number} same)", State.UNDECIDED: f"open ({number})"}.get(answer.state)
    return _text(said or f"off ({number})", _BAD if answer.state is State.SLOWER else "dim")


def _sign(effect: Effect, objective: str) -> "Text":
    if not effect.signs_are_certain:
        return _text("not certain", "dim")
    better, worse = signs(objective)
    return _text(better, _GOOD) if effect.low > 0 else _text(worse, _BAD)


def _facts(report: ReportInput, best: Verdict | None) -> "list[tuple[str, Text]]":
    """What else is known of the best, and what makes the others invalid, as (name, text)."""
    facts = _facts_of(best, report) if best is not None else []
    if report.comparison is not None:
        lines = [_text(f"- {sentence}") for sentence in missing(report)]
        return [*facts, *(("" if i else "Not checked", line) for i, line in enumerate(lines))]
    facts += [(name, _text(said)) for name, said in _unusual(report)]
    if best is not None and (kept := limits_in_short(best.point, report)):
        facts.append(("Limits", _text(kept)))
    invalid = [v for v in report.verdicts if v.kind is VerdictKind.INVALID]
    if best is not None and (short := in_short(report)):
        facts.append(("Hardware", _text(short)))
    if best is not None and (line := prediction_line(report)):
        facts.append(("Cost model", _text(line)))
    facts += [("Node", _text(said, _CAUTION)) for said in nodes.cautions(report)]
    return [*facts, *(("Invalid", _text(f"{v.point.label}: {one_line(v.why)}", _CAUTION)) for v in invalid)]


def _unusual(report: ReportInput) -> list[tuple[str, str]]:
    """A baseline with settings of its own; a search that did not have it in every Block."""
    theirs = confirmed_against(report)
    found = [("Baseline", theirs.label)] if theirs is not None and theirs != BASELINE else []
    return [*found, *([("Search", how_compared(report))] if any(t.anchors for t in report.trials) else [])]


def _facts_of(verdict: Verdict, report: ReportInput) -> "list[tuple[str, Text]]":
    facts = []
    if verdict.cells:
        facts.append(("Holds for", _text(f"{grouped(verdict.cells)}. Nothing is claimed beyond.")))
    if verdict.acceptance_length is not None:
        facts.append(("Acceptance", _text(f"{verdict.acceptance_length:.2f} tokens per verification step")))
    if verdict.identical_share is not None:
        control = percent(verdict.control_identical_share)
        of, itself = f"{report.reference}'s", report.reference.removeprefix("the ")
        same = f"{percent(verdict.identical_share)} identical to {of} ({itself} to itself: {control})"
        facts.append(("Outputs", _text(same if report.greedy else f"{same}; sampled, so that says nothing")))
    if verdict.accuracy is not None:
        facts.append(("Accuracy", _text(in_words(verdict.accuracy, report.reference))))
    return [*facts, *(("Note", _text(warning, _CAUTION)) for warning in verdict.warnings)]


def _failures(lost: Sequence[Trial]) -> "Table":
    """Each reason with its evidence once, cut to one line, and below it the configurations it met."""
    met: dict[tuple[str, str], list[str]] = {}
    for trial in lost:
        evidence = one_line(trial.failure.evidence) if trial.failure is not None else ""
        met.setdefault((reason_of(trial), evidence), []).append(trial.label)
    rows = []
    for (reason, evidence), labels in met.items():
        rows += [(reason, _text(evidence, cut=True)), ("", _text(", ".join(labels), "dim"))]
    return _grid(rows, _CAUTION)


def continued(command: str) -> str:
    """The same command for a shell, over several lines: each flag stays beside its value."""
    words = _SHELL_WORD.findall(command)
    if " ".join(words) != command:
        return command  # quoted in a way not known here: better long than wrong
    lines = [""]
    for argument in _with_values(words):
        if lines[-1] and len(lines[-1]) + len(argument) > _COMMAND_WIDTH - 3:
            lines.append("   ")
        lines[-1] += f" {argument}" if lines[-1] else argument
    return " \\\n".join(lines)


def _with_values(words: Sequence[str]) -> list[str]:
    """Flags, each with the value after it."""
    found: list[str] = []
    for word in words:
        if found and found[-1].startswith("-") and " " not in found[-1] and not word.startswith("-"):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found
