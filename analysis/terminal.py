"""The verdict for a terminal: rich renderables, printed by the command line."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from analysis.findings import failed, search_estimate
from analysis.report_input import ReportInput
from analysis.words import percent, times, times_with_interval
from results.records import Effect, Verdict, VerdictKind

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

COLOURS = {VerdictKind.BETTER: "green", VerdictKind.WORSE: "red", VerdictKind.SAME: "cyan"}


def verdict_lines(report: ReportInput) -> "Iterator[RenderableType]":
    """What is known of a run, top first: headline, warnings, finalists, classes, failures, command."""
    from rich.text import Text

    colour = "green" if report.winner else "yellow"
    yield Text(report.headline, style=f"bold {colour}")
    if report.banner:
        yield Text(report.banner, style="bold yellow")
    best = report.winner or next(iter(report.verdicts), None)
    if report.verdicts:
        yield _finalists(report)
    if best is not None and best.by_class:
        yield _classes(best)
    if best is not None:
        yield from _facts(best)
    yield from _failures(report)
    if report.command:
        yield Text("Start it like this:", style="bold")
        yield Text("  " + report.command)


def _finalists(report: ReportInput) -> "Table":
    table = _table("confirmed on held-out prompts", "verdict", "speed-up", "in the search", "Blocks")
    for verdict in report.verdicts:
        colour = COLOURS.get(verdict.kind, "yellow")
        table.add_row(
            verdict.point.label,
            f"[{colour}]{verdict.kind}[/]",
            times_with_interval(verdict.effect),
            times(search_estimate(report, verdict.point)),
            str(verdict.effect.blocks) if verdict.effect else "0",
        )
    return table


def _classes(verdict: Verdict) -> "Table":
    table = _table(f"{verdict.point.label}, by class", "speed-up", "")
    for workload_class, effect in verdict.by_class.items():
        table.add_row(workload_class, times_with_interval(effect), _sign(effect))
    return table


def _sign(effect: Effect) -> str:
    if not effect.signs_are_certain:
        return "no difference seen"
    return "[green]faster[/]" if effect.low > 0 else "[red]slower[/]"


def _facts(verdict: Verdict) -> "Iterator[RenderableType]":
    from rich.text import Text

    if verdict.cells:
        yield Text(f"Holds for: {', '.join(verdict.cells)}. Nothing is claimed beyond.")
    if verdict.acceptance_length is not None:
        yield Text(f"Acceptance length {verdict.acceptance_length:.2f} tokens per verify step.")
    if verdict.identical_share is not None:
        yield Text(
            f"Outputs identical to the baseline's: {percent(verdict.identical_share)}"
            f" (baseline against baseline: {percent(verdict.control_identical_share)})."
        )
    for warning in verdict.warnings:
        yield Text(f"Note: {warning}", style="yellow")


def _failures(report: ReportInput) -> "Iterator[RenderableType]":
    trials = [t for t in failed(report.trials) if t.failure is not None]
    if not trials:
        return
    table = _table(
        f"{len(trials)} of {len(report.trials)} trials could not be measured", "reason", "evidence"
    )
    for trial in trials:
        if trial.failure is not None:
            table.add_row(trial.point.label, trial.failure.reason, trial.failure.evidence)
    yield table


def _table(title: str, *columns: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title, *columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    return table
