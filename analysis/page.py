"""The report as one HTML page that needs nothing but itself."""

from collections.abc import Sequence
from pathlib import Path

from analysis import crossover, findings, hardware, map_tables, sides, tables, variables, words
from analysis.answer import Answer, answer, command_title
from analysis.heatmap import heat_map
from analysis.loadmap import load_map
from analysis.markup import Scale, block, command, figure, folded, pair, paragraph, section, table, text
from analysis.plots import Figure, figures
from analysis.report_input import ReportInput
from results.records import Verdict

_FOLDER = Path(__file__).parent
# Nothing may be fetched, whatever a record contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_ACCEPTANCE_WARNING = (
    "Acceptance is a diagnosis, not the objective. Within one configuration it goes with speed; across "
    "configurations a longer acceptance is often bought with more drafting than it saves."
)
_LINKS = {
    "command": "Command",
    "sides": "A and B",
    "map": "Load map",
    "evidence": "Evidence",
    "latencies": "Latency",
    "search": "Search",
    "acceptance": "Acceptance",
    "hardware": "Hardware",
    "failed": "Failures",
    "every-trial": "Trials",
    "run": "Run",
    "terms": "Terms",
}


def page(report: ReportInput) -> str:
    body = "".join((_head(report), *_sections(report, figures(report))))
    links = "".join(
        f'<a href="#{id}">{name}</a>' for id, name in _LINKS.items() if f'<section id="{id}"' in body
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{text(report.name)}: {text(answer(report).big)}</title>"
        f"<style>{_asset('report.css')}</style></head><body>"
        f'<nav aria-label="Sections">{links}</nav><main>{body}</main>'
        f"<script>{_asset('report.js')}</script></body></html>\n"
    )


def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _head(report: ReportInput) -> str:
    said = answer(report)
    return (
        f'<header class="{said.tone}"><p class="eyebrow">Speculative decoding, run {text(report.name)}</p>'
        f"{_title(said)}{_interval(said, report.reference)}"
        f"{paragraph(report.headline, 'headline') if report.headline else ''}"
        f"{''.join(map(paragraph, crossover.sentences(load_map(report))))}"
        f"{_warnings(report, said)}{''.join(paragraph(d) for d in said.details)}{_holds_for(said)}"
        f"{_facts(report)}</header>{_missing(report)}"
    )


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


def _holds_for(said: Answer) -> str:
    if not said.holds_for:
        return ""
    cells = "".join(f"<li>{text(c)}</li>" for c in said.holds_for)
    return f'<div class="cells"><span>Holds for</span><ul>{cells}</ul></div>'


def _warnings(report: ReportInput, said: Answer) -> str:
    own = said.verdict.warnings if said.verdict is not None else ()
    lines = [*([report.banner] if report.banner else []), *own]
    return "".join(f'<p class="warning" role="note"><strong>Caution</strong> {text(w)}</p>' for w in lines)


def _facts(report: ReportInput) -> str:
    lost = len(findings.failed(report.trials))
    thrown = len(report.blocks) - len(findings.valid(report.blocks))
    best = findings.best_verdict(report)
    facts = {
        "Trials": (f"{len(report.trials)}" + (f", {lost} failed" if lost else "")) * (not report.comparison),
        "Blocks": f"{len(report.blocks)}" + (f", {thrown} thrown away" if thrown else ""),
        "Identical outputs": _identical(best) if best else "",
        "Acceptance length": f"{best.acceptance_length:.2f}" if best and best.acceptance_length else "",
        "Time": words.long_time(sum(report.phases_s.values())) if report.phases_s else "",
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


def _sections(report: ReportInput, drawn: dict[str, Figure]) -> list[str]:
    return [
        _command(report),
        _sides(report),
        section("map", "Where it holds", heat_map(report), table(map_tables.per_cell(report))),
        section(
            "evidence",
            "Does it hold?",
            pair(drawn.get("class-map"), drawn.get("confirmation")),
            table(tables.finalists(report)),
            table(tables.classes(report)),
            table(tables.outputs(report)),
        ),
        section("latencies", "Latency: what a user feels", table(tables.latency(report), titled=False)),
        section(
            "search",
            "The search",
            pair(drawn.get("convergence"), drawn.get("ranking")),
            _knobs(drawn.get("knobs"), words.definitions()),
        ),
        _acceptance(report, drawn),
        _hardware(report),
        section("settings", "Settings in effect", table(tables.settings(report), titled=False)),
        section("variables", variables.TITLE, table(variables.variables(report), titled=False)),
        _failures(report),
        section("every-trial", "Every trial", table(tables.trials(report), titled=False)),
        _run(report),
        _terms(
            words.definitions(report.objective, report.same_margin, comparison=report.comparison is not None)
        ),
    ]


def _sides(report: ReportInput) -> str:
    if report.comparison is None:
        return ""
    return section(
        "sides",
        "What was compared" if len(report.comparison.sides) > 1 else "What was measured",
        table(sides.named(report), titled=False),
        table(sides.differences(report)),
        table(sides.sides(report)),
    )


def _command(report: ReportInput) -> str:
    if not report.command:
        return ""
    return section("command", command_title(report), command(report.command))


def _knobs(drawn: Figure | None, meanings: dict[str, str]) -> str:
    """The figure with what to keep in mind beside it."""
    if drawn is None:
        return ""
    cautions = "".join(paragraph(meanings[term]) for term in ("Effect of a knob", "Search estimate"))
    return f'<div class="pair">{figure(drawn)}<div class="beside">{cautions}</div></div>'


def _acceptance(report: ReportInput, drawn: dict[str, Figure]) -> str:
    shown = pair(drawn.get("positions"), drawn.get("lengths"))
    warning = paragraph(_ACCEPTANCE_WARNING, "note") if shown else ""
    return section("acceptance", "Acceptance", warning, shown, table(tables.acceptance(report)))


def _hardware(report: ReportInput) -> str:
    if not hardware.measured_points(report):
        return ""
    on_gpus = hardware.has_gpus(report)
    return section(
        "hardware",
        "What the hardware did",
        "" if on_gpus else paragraph(hardware.NO_GPU, "note"),
        *(paragraph(caution) for caution in hardware.cautions(report)),
        table(hardware.energy(report)),
        table(hardware.gpus(report)),
        table(hardware.host(report), titled=on_gpus),
    )


def _failures(report: ReportInput) -> str:
    return section(
        "failed",
        "What failed",
        table(tables.failures(report)),
        table(tables.invalid_blocks(report)),
        empty="Nothing failed and no Block was thrown away." if report.trials or report.comparison else "",
    )


def _run(report: ReportInput) -> str:
    yaml = block(report.sweep_yaml) if report.sweep_yaml else ""
    return section(
        "run",
        "The run",
        _notes(report.notes),
        table(tables.phases(report)),
        table(tables.calibration(report)),
        folded("Environment: hardware, software and hashes", table(tables.environment(report), titled=False)),
        folded("The sweep as it was asked for", yaml),
    )


def _notes(notes: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{text(note)}</li>' for note in notes)}</ul>" if notes else ""


def _terms(meanings: dict[str, str]) -> str:
    terms = "".join(f"<div><dt>{text(t)}</dt><dd>{text(d)}</dd></div>" for t, d in meanings.items())
    return section("terms", "What the words mean", f'<dl class="terms">{terms}</dl>')
