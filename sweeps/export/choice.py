"""Which configuration of a run is exported: the winner, the baseline if none beats it, or the one named."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from analysis.findings import compared_with, eligible
from analysis.report_input import ReportInput
from analysis.words import signed_percent
from results.errors import UsageError
from results.records import BASELINE, Effect, Point, Trial, TrialState, Verdict, VerdictKind
from results.store import RunFolder
from sweeps.mistakes import nearest
from sweeps.outcome import SIDES_FILE, read_run, sweep_of_side
from sweeps.sweep import Sweep
from sweeps.which_run import own_sweep


class Why(StrEnum):
    """Why a configuration is exported."""

    WINNER = "winner"
    BASELINE = "baseline"  # nothing beats it
    NAMED = "named"  # by the user


@dataclass(frozen=True)
class Choice:
    """One configuration of a run, and what is known of it."""

    report: ReportInput
    sweep: Sweep
    point: Point  # as its Blocks know it
    why: Why
    verdict: Verdict | None = None  # of its confirmation
    effect: Effect | None = None  # its confirmed speed-up over what it was compared with
    trial: Trial | None = None  # of the search
    note: str = ""  # for people: why it is not a winner

    @property
    def is_confirmed(self) -> bool:
        """Whether it is the answer of the run, not a guess from it."""
        return self.why is not Why.NAMED or (
            self.verdict is not None and self.verdict.kind is VerdictKind.BETTER
        )


def choose(folder: RunFolder, point: str | None = None, trial: int | None = None) -> Choice:
    """What to export. Raises UsageError: nothing decided yet, no such configuration, not started by tuner."""
    if point is not None and trial is not None:
        raise UsageError("--point and --trial both name a configuration: give one of them")
    report, code = read_run(folder)
    if report.comparison is not None:
        return _side(report, folder.read_json(SIDES_FILE), point, trial)
    sweep = own_sweep(folder)
    if point is not None or trial is not None:
        return _named(report, sweep, point, trial)
    if report.winner is not None:
        won = report.winner
        found = _trial_of(report.trials, won.point)
        return Choice(report, sweep, won.point, Why.WINNER, won, won.effect, found)
    if code == 0:
        without = compared_with(report.blocks)
        return Choice(report, sweep, without, Why.BASELINE, note=f"{report.headline} This is the baseline.")
    raise UsageError(
        f"no winner to export: {report.headline} Go on with `tuner sweep`, or name a measured configuration:"
        f" {_names(report.trials)}"
    )


def _trial_of(trials: Iterable[Trial], point: Point) -> Trial | None:
    return next((t for t in trials if point.key in (t.point.key, t.launched.key)), None)


def _names(trials: Sequence[Trial]) -> str:
    measured = [t for t in eligible(trials) if t.point != BASELINE]
    best = sorted(measured, key=lambda t: -(t.log_speedup or 0.0))[:3]
    shown = ", ".join(f'--trial {t.number} ("{t.point.label}")' for t in best)
    return shown or "none was measured yet"


def _named(report: ReportInput, sweep: Sweep, point: str | None, number: int | None) -> Choice:
    trial = _find(report.trials, point, number)
    if trial.point == BASELINE:
        return Choice(
            report, sweep, compared_with(report.blocks), Why.NAMED, note="The baseline, as it was named."
        )
    if trial.state is not TrialState.MEASURED:
        why = f"{trial.failure.reason}: {trial.failure.evidence}" if trial.failure else trial.state.value
        raise UsageError(f"trial {trial.number} ({trial.label}) has no figure: {why}")
    verdict = next((v for v in report.verdicts if v.point.key == trial.point.key), None)
    launched = trial.point if verdict else trial.launched
    effect = verdict.effect if verdict else None
    return Choice(report, sweep, launched, Why.NAMED, verdict, effect, trial, _standing(trial, verdict))


def _find(trials: Sequence[Trial], point: str | None, number: int | None) -> Trial:
    asked = f"--trial {number}" if number is not None else f"--point {point}"
    for trial in trials:
        names = {p: n for t in (trial.point, trial.launched) for p, n in ((t.label, t.key), (t.key, t.key))}
        if trial.number == number or (number is None and point in names):
            return trial
    hint = nearest(point, [t.point.label for t in trials]) if point else f" ({len(trials)} trials)"
    raise UsageError(f"{asked}: no such configuration in this run{hint}")


def _standing(trial: Trial, verdict: Verdict | None) -> str:
    lossy = f" LOSSY: {trial.lossy}." if trial.lossy else ""
    if verdict is not None:
        told = "" if verdict.kind is VerdictKind.BETTER else f" It is {verdict.kind}: {verdict.why}"
        return f"{told}{lossy}".strip()
    figure = signed_percent(trial.log_speedup) if trial.log_speedup is not None else "no figure"
    return f"NOT CONFIRMED: {figure} against the baseline in the search alone.{lossy}"


# Of a comparison


def _side(report: ReportInput, told: Any, point: str | None, trial: int | None) -> Choice:
    assert report.comparison is not None
    sides = report.comparison.sides
    if trial is not None:
        raise UsageError("--trial: a comparison has no trials; name a side: --point A or --point B")
    verdict = report.verdicts[0] if report.verdicts else None
    faster = (
        {VerdictKind.BETTER: sides[-1], VerdictKind.WORSE: sides[0]}.get(verdict.kind) if verdict else None
    )
    side = faster
    if point is not None:
        side = next((s for s in sides if point in (s.name, s.point.label, s.point.key)), None)
        if side is None:
            raise UsageError(f"--point {point}: no such side{nearest(point, [s.name for s in sides])}")
    if side is None:
        raise UsageError(f"no faster side to export: {report.headline} Name one: --point A or --point B")
    if side.attached:
        raise UsageError(
            f"{side.name} ({side.given}) is a server that somebody else runs: how it is started is not known"
        )
    sweep = sweep_of_side(told, side.name)
    if side is faster:
        return Choice(report, sweep, side.point, Why.WINNER, verdict, _over_the_other(verdict, side.name))
    note = f"Side {side.name}, as it was named. {report.headline}"
    return Choice(report, sweep, side.point, Why.NAMED, note=note)


def _over_the_other(verdict: Verdict | None, name: str) -> Effect | None:
    """The effect of a comparison is that of B over A."""
    effect = verdict.effect if verdict else None
    if effect is None or name != "A":
        return effect
    return Effect(-effect.log_ratio, -effect.high, -effect.low, effect.blocks)
