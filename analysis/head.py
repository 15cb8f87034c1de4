"""The top of the page: the verdict in one figure and one sentence, where it holds, and what to do."""

from analysis import crossover, findings, tables, words
from analysis.answer import KEEP, Answer, Tone, answer
from analysis.loadmap import load_map
from analysis.markup import Scale, paragraph, text
from analysis.report_input import ReportInput
from results.records import Verdict, VerdictKind

_MORE_BLOCKS = "Change nothing yet. More Blocks may decide it: raise the last of confirm.looks and go on."
_MOST_CELLS = 12  # beyond that they are folded


def head(report: ReportInput) -> str:
    said = answer(report)
    return (
        f'<header class="{said.tone}"><p class="eyebrow">{_eyebrow(report, said)}</p>'
        f"{_title(said)}{_interval(said, report.reference)}"
        f"{paragraph(report.headline, 'headline') if report.headline else ''}"
        f"{_warnings(report, said)}{_brief(report, said)}{_facts(report)}</header>{_missing(report)}"
    )


def _eyebrow(report: ReportInput, said: Answer) -> str:
    kind = "Comparison" if report.comparison is not None else "Speculative decoding"
    told = report.finished or said.tone is Tone.OPEN  # or the title says it
    going_on = "" if told else ' <strong class="state">not finished</strong>'
    return f"{kind}, run {text(report.name)}{going_on}"


def _title(said: Answer) -> str:
    unit = f" <small>{text(said.unit)}</small>" if said.unit else ""
    size = "figure" if said.unit else "sentence"
    return f'<h1 class="{size}"><span>{text(said.big)}</span>{unit}</h1>'


def _interval(said: Answer, reference: str) -> str:
    if said.verdict is None:
        return ""
    drawn = tables.effect_entry(said.verdict.effect).interval
    if drawn is None:
        return ""
    scale = Scale([drawn])
    one = scale.place(1.0)
    side, edge = ("left", one) if one < 50 else ("right", 100 - one)
    return (
        f'<div class="interval">{scale.bar(*drawn)}'
        f'<span class="one {side}" style="{side}:{edge:.1f}%">1.00x, {text(reference)}</span></div>'
    )


def _warnings(report: ReportInput, said: Answer) -> str:
    own = said.verdict.warnings if said.verdict is not None else ()
    lines = [*([report.banner] if report.banner else []), *own]
    return "".join(f'<p class="warning" role="note"><strong>Caution</strong> {text(w)}</p>' for w in lines)


def _brief(report: ReportInput, said: Answer) -> str:
    """What to do, how sure it is, where it holds: a line each."""
    details = "".join(paragraph(detail) for detail in said.details if detail != KEEP)
    known = {
        "Configuration": f"<code>{text(report.winner.point.label)}</code>"
        if report.winner is not None
        else "",
        "What to do": _action(report, said),
        "How sure" if said.verdict is not None else "So far": details,
        "Where it pays": "".join(map(paragraph, crossover.sentences(load_map(report)))),
        "Holds for": _holds_for(said),
    }
    shown = "".join(
        f"<div><dt>{name}</dt><dd>{inside}</dd></div>" for name, inside in known.items() if inside
    )
    return f'<dl class="brief">{shown}</dl>' if shown else ""


def _action(report: ReportInput, said: Answer) -> str:
    link = f'<a href="#command">{"this command" if report.command else ""}</a>' if report.command else ""
    with_command = f" with {link}" if link else ""
    if report.comparison is not None:
        return _comparison_action(report, with_command)
    if said.tone is Tone.FASTER:
        return f"<p>Start the server{with_command}, where the load is that of the Cells below.</p>"
    if said.tone is Tone.STAY:
        return (
            f"<p>Keep speculation off: run the server{with_command}. Nothing here was shown to be faster.</p>"
        )
    if not report.finished:
        resume = "" if report.blocks or report.trials else " Nothing has been recorded so far."
        return f"<p>Wait, or start the same command again: it goes on from the last Block.{resume}</p>"
    return f"<p>{_open_action(report)}</p>"


def _comparison_action(report: ReportInput, with_command: str) -> str:
    kind = report.verdicts[0].kind if report.verdicts else None
    if kind is VerdictKind.SAME:
        return "<p>Take either: they are as fast as each other.</p>"
    if kind is VerdictKind.UNDECIDED and report.finished:
        return f"<p>{_MORE_BLOCKS}</p>"
    if kind is None or kind in (VerdictKind.UNDECIDED, VerdictKind.INVALID):
        return ""
    return f"<p>Run {'B' if kind is VerdictKind.BETTER else 'A'}, the faster one{with_command}.</p>"


def _open_action(report: ReportInput) -> str:
    if any(v.kind is VerdictKind.UNDECIDED for v in report.verdicts):
        return _MORE_BLOCKS
    if findings.measured(report.trials):
        return "Change nothing yet: no finalist has been confirmed on prompts that the search did not see."
    return 'Look at <a href="#failed">what failed</a>, mend the commonest cause and run the sweep again.'


def _holds_for(said: Answer) -> str:
    if not said.holds_for:
        return ""
    cells = "".join(f"<li>{text(c)}</li>" for c in said.holds_for)
    listed = f'<ul class="cells">{cells}</ul>'
    if len(said.holds_for) > _MOST_CELLS:
        count = words.count(len(said.holds_for), "Cell")
        listed = f"<details><summary>{count}, and for no other</summary>{listed}</details>"
    return listed


def _facts(report: ReportInput) -> str:
    lost = len(findings.failed(report.trials))
    thrown = len(report.blocks) - len(findings.valid(report.blocks))
    best = findings.best_verdict(report)
    facts = {
        "Trials": (f"{len(report.trials)}" + (f", {lost} failed" if lost else "")) * (not report.comparison),
        "Blocks": f"{len(report.blocks)}" + (f", {thrown} thrown away" if thrown else ""),
        "Identical outputs": _identical(best) if best else "",
        "Acceptance length": f"{best.acceptance_length:.2f}" if best and best.acceptance_length else "",
        "Time": words.long_time(report.elapsed_s) if report.elapsed_s else "",
    }
    shown = "".join(f"<div><dt>{n}</dt><dd>{v}</dd></div>" for n, v in facts.items() if v)
    return f'<dl class="facts">{shown}</dl>'


def _identical(verdict: Verdict) -> str:
    control = words.percent(verdict.control_identical_share)
    return f"{words.percent(verdict.identical_share)}, control {control}"


def _missing(report: ReportInput) -> str:
    lacks = findings.missing(report)
    if not lacks:
        return ""
    items = "".join(f"<li>{text(sentence)}</li>" for sentence in lacks)
    yet = not report.finished and report.comparison is None
    title = "What this run does not say yet" if yet else "What this run does not say"
    return f'<aside class="missing"><h2>{title}</h2><ul>{items}</ul></aside>'
