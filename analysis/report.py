"""One run as a page, as Markdown, as CSV and as JSON. Pure: the caller reads the run and writes the file.

All four say speed-ups as factors (1.23 = 23 % better than the baseline), never as log ratios.
"""

import csv as csv_format
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from analysis import (
    crossover,
    findings,
    hardware,
    limit_tables,
    nodes,
    nodes_section,
    noise,
    output_tables,
    searched,
    sides,
    tables,
    tradeoff,
    words,
)
from analysis.answer import answer
from analysis.loadmap import CellAnswer, State, load_map
from analysis.noise import BlockNoise
from analysis.page import page
from analysis.report_input import ReportInput
from analysis.shrinkage import Shrinkage, expected, of_trials
from analysis.text_page import text_page
from results.records import BASELINE, Block, Effect, Point, Trial, Verdict

__all__ = ["ReportInput", "as_json", "csv", "html", "markdown"]

SCHEMA = 1  # of the JSON document
_NOT_IN_CSV = ("label", "knobs", "by_cell", "interval", "blocks", "anchors")  # or in other columns


def html(report: ReportInput) -> str:
    """One page with its figures, style and script inside; it loads nothing."""
    return page(report)


def markdown(report: ReportInput) -> str:
    """The same answer and tables, for a terminal, an issue or a commit."""
    return text_page(report)


def csv(report: ReportInput) -> str:
    """One row per Trial; a column per knob and per Cell; empty where there is no number.

    Of a comparison one row per side and Cell.
    """
    if report.comparison is not None:
        shown = sides.sides(report)
        return _written(shown.columns, _rows(shown))
    knobs = sorted({name for t in report.trials for name in t.point.knobs})
    cells = list(dict.fromkeys(name for t in report.trials for name in t.by_cell))
    fixed = [
        "trial",
        "method",
        "source",
        "state",
        "speedup",
        "low",
        "high",
        "expected",
        "blocks",
        "acceptance_length",
        "asked_for",
        "lossy",
        "reason",
        "evidence",
    ]
    columns = [*fixed, *(f"knob.{k}" for k in knobs), *(f"speedup {c}" for c in cells)]
    known = noise.block_noise(report.blocks, report.objective, report.weights)
    shrunken = of_trials(report.trials, known)
    return _written(columns, [_csv_row(report, trial, known, shrunken) for trial in report.trials])


def _written(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> str:
    written = io.StringIO()
    writer = csv_format.DictWriter(written, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()


def _csv_row(
    report: ReportInput, trial: Trial, known: BlockNoise | None, shrunken: Shrinkage | None
) -> dict[str, object]:
    said = _trial(report, trial, known, shrunken)
    names = {k: v for k, v in said.items() if k not in _NOT_IN_CSV}
    interval = noise.trial_effect(trial, known)
    return {
        **{k: "" if v is None else v for k, v in names.items()},
        "low": "" if interval is None else words.factor(interval.low),
        "high": "" if interval is None else words.factor(interval.high),
        "blocks": len(trial.blocks),
        **{f"knob.{k}": v for k, v in trial.point.knobs.items()},
        **{f"speedup {c}": words.factor(v) for c, v in trial.by_cell.items()},
    }


def as_json(report: ReportInput) -> str:
    """The answer with its evidence for other programs; null where there is no number."""
    said, known = answer(report), noise.block_noise(report.blocks, report.objective, report.weights)
    shrunken = of_trials(report.trials, known)
    document = {
        "schema": SCHEMA,
        "name": report.name,
        "finished": report.finished,
        "objective": report.objective,
        "greedy": report.greedy,
        "same_margin": report.same_margin,
        "limits": dict(report.limits),
        "goodput": dict(report.goodput),
        "baseline_breaks": report.baseline_breaks or None,
        "answer": {"tone": said.tone.value, "title": " ".join(filter(None, (said.big, said.unit)))},
        "headline": report.headline,
        "banner": report.banner,
        "command": report.command,
        "comparison": _comparison(report),
        "winner": _verdict(report, report.winner, shrunken) if report.winner is not None else None,
        "map": _map(report),
        "verdicts": [_verdict(report, v, shrunken) for v in report.verdicts],
        "trials": [_trial(report, t, known, shrunken) for t in report.trials],
        "trial_intervals": noise.search_intervals(known),
        "trials_compared": searched.how_compared(report),
        "invalid_blocks": [_invalid(b) for b in report.blocks if b.invalid is not None],
        "missing": findings.missing(report),
        "elapsed_s": report.elapsed_s,
        "phases_s": dict(report.phases_s),
        "goodput_by_cell": [asdict(found) for found in limit_tables.goodput_by_cell(report)],
        "front": tradeoff.as_records(report),
        "nodes": nodes_section.as_records(report),
        "nodes_that_differ": nodes.cautions(report),
        "hardware": hardware.figures(report),
        "profiles": [asdict(profile) for profile in report.profiles],
        "calibration": dict(tables.flat(report.calibration)),
        "environment": dict(tables.flat(report.environment)),
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _map(report: ReportInput) -> dict[str, object] | None:
    drawn = load_map(report)
    if drawn is None:
        return None
    return {
        "one_for_all": _point(drawn.compromise),
        "confirmed": drawn.confirmed,
        "gain_of_a_choice_per_cell": words.factor(drawn.gain),
        "crossovers": crossover.sentences(drawn),
        "cells": [_cell(a) for a in drawn.cells],
    }


def _cell(a: CellAnswer) -> dict[str, object]:
    return {
        "class": a.cell.workload_class,
        "pace": a.cell.pace,
        "context_tokens": a.cell.context_tokens,
        "prompt_tokens": a.prompt_tokens,
        "weight": a.weight,
        "state": a.state.value,
        "best": _point(a.best) if a.state not in (State.LIMITED, State.UNKNOWN) else None,
        "shown": _point(a.shown.point) if a.shown else None,
        "speedup": words.factor(a.shown.log_speedup) if a.shown else None,
        "interval": _effect(a.shown.effect) if a.shown else None,
        "one_for_all_speedup": words.factor(a.compromise),
        "loss": words.factor(a.loss),
        "baseline": {"tokens_per_s": a.baseline.tokens_per_s, "tpot_p50_s": a.baseline.tpot_s},
        "figures": {"tokens_per_s": a.figures.tokens_per_s, "tpot_p50_s": a.figures.tpot_s},
        "capacity_limited": a.limited or None,
    }


def _point(point: Point | None) -> dict[str, object]:
    """A configuration; the method "none" is speculation off."""
    shown = point or BASELINE
    return {"method": shown.method, "knobs": dict(shown.knobs)}


def _comparison(report: ReportInput) -> dict[str, object] | None:
    if report.comparison is None:
        return None
    return {
        "sides": [
            {"name": s.name, "given": s.given, "method": s.point.method, "knobs": dict(s.point.knobs)}
            for s in report.comparison.sides
        ],
        "differences": [{"setting": n, "A": a, "B": b} for n, a, b in report.comparison.differences],
        "figures": _rows(sides.sides(report)),
    }


def _rows(table: tables.Table) -> list[dict[str, object]]:
    """Rows by column: numbers where there are some, else text."""
    return [
        {c: e.text if e.order is None else e.order for c, e in zip(table.columns, row, strict=True)}
        for row in table.rows
    ]


def _verdict(report: ReportInput, verdict: Verdict, shrunken: Shrinkage | None) -> dict[str, object]:
    return {
        "kind": verdict.kind.value,
        "method": verdict.point.method,
        "knobs": dict(verdict.point.knobs),
        "confirmed": _effect(verdict.effect),
        "search_estimate": words.factor(findings.search_estimate(report, verdict.point)),
        "expected": words.factor(searched.expected_of(report, verdict.point, shrunken)),
        "by_class": {name: _effect(effect) for name, effect in verdict.by_class.items()},
        "by_cell": {name: _effect(effect) for name, effect in verdict.by_cell.items()},
        "capacity_limited": dict(verdict.limited),
        "cells": list(verdict.cells),
        "identical_share": verdict.identical_share,
        "control_identical_share": verdict.control_identical_share,
        "outputs": output_tables.figures(verdict.outputs),
        "control_outputs": output_tables.figures(verdict.control),
        "accuracy": None if verdict.accuracy is None else asdict(verdict.accuracy),
        "acceptance_length": verdict.acceptance_length,
        "why": verdict.why,
        "warnings": list(verdict.warnings),
    }


def _effect(effect: Effect | None) -> dict[str, object] | None:
    if effect is None:
        return None
    low, middle, high = (words.factor(v) for v in (effect.low, effect.log_ratio, effect.high))
    return {"speedup": middle, "low": low, "high": high, "blocks": effect.blocks}


def _trial(
    report: ReportInput, trial: Trial, known: BlockNoise | None, shrunken: Shrinkage | None
) -> dict[str, object]:
    failure = trial.failure
    return {
        "trial": trial.number,
        "label": trial.label,
        "method": trial.point.method,
        "knobs": dict(trial.point.knobs),
        "source": trial.source,
        "state": trial.state.value,
        "speedup": words.factor(trial.log_speedup),
        "interval": _effect(noise.trial_effect(trial, known)),
        "expected": words.factor(expected(trial, shrunken)),
        "anchors": list(trial.anchors),
        "by_cell": {name: words.factor(value) for name, value in trial.by_cell.items()},
        "blocks": list(trial.blocks),
        "acceptance_length": findings.pooled_acceptance(trial.launched, report.blocks).length,
        "asked_for": trial.asked.label if trial.asked else None,
        "lossy": trial.lossy or None,
        "reason": failure.reason.value if failure else None,
        "evidence": words.clean(failure.evidence) if failure else None,
    }


def _invalid(block: Block) -> dict[str, object]:
    invalid = block.invalid
    return {
        "block": block.number,
        "phase": block.phase.value,
        **({"node": block.node, "gpus": list(block.gpus)} if block.node else {}),
        "reason": invalid.reason.value if invalid else None,
        "evidence": words.clean(invalid.evidence) if invalid else None,
    }
