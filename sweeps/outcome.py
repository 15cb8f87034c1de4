"""What a run folder says now: the same for a run that is finished, going on, or was killed."""

from collections.abc import Sequence

from analysis.report_input import ReportInput
from analysis.verdict import Answer, AnswerKind, answer, conclude, next_look, percent, still_open
from results.errors import UsageError
from results.records import Block, Phase, Point, Trial, Verdict
from results.store import RunFolder
from sweeps.confirm import rules_of
from sweeps.study import best_of, finalists
from sweeps.sweep import Sweep, parse_sweep

EXIT_CODES = {
    AnswerKind.WINNER: 0,
    AnswerKind.NONE_BETTER: 0,
    AnswerKind.UNDECIDED: 4,
    AnswerKind.INVALID: 5,
}
RANDOM_TOKENS = (
    "RANDOM TOKENS: the prompts were random words; acceptance and speed-up on real text will differ."
)


def read_run(folder: RunFolder) -> tuple[ReportInput, int]:
    """Everything a report needs, and the exit code of the sweep that ended like this.

    Raises UsageError if this is no run folder.
    """
    if not folder.sweep_file.exists():
        raise UsageError(f"{folder.path} is no run folder: it has no sweep.yaml")
    sweep = parse_sweep(folder.sweep_file.read_text(), where=str(folder.sweep_file))
    trials, blocks = folder.trials(), folder.blocks()
    points = finalists(trials, sweep.confirm.finalists, sweep.confirm.same_margin)
    confirmed = [b for b in blocks if b.phase is Phase.CONFIRM and b.invalid is None]
    verdicts = conclude(confirmed, points, **rules_of(sweep)) if confirmed else []
    found = answer(verdicts) if verdicts else _unconfirmed(trials)
    best = found.winner or found.best
    sessions = folder.read_json("sessions.json").get("sessions", [])
    report = ReportInput(
        name=sweep.name,
        trials=trials,
        blocks=blocks,
        verdicts=verdicts,
        winner=found.winner,
        headline=found.sentence,
        banner="\n".join(filter(None, [RANDOM_TOKENS if sweep.workload.random_tokens else "", found.banner])),
        command=command_of(best.point, blocks) if best else "",
        environment=folder.read_json("environment.json"),
        sweep_yaml=sweep.to_yaml(),
        calibration=sessions[-1]["calibration"] if sessions else {},
        phases_s=_phases_s(blocks, sessions),
        finished=_is_finished(verdicts, confirmed, sweep),
    )
    return report, EXIT_CODES[found.kind]


def _unconfirmed(trials: Sequence[Trial]) -> Answer:
    """The answer before any confirmation Block."""
    best = best_of(trials)
    if best is not None and best.log_speedup is not None:
        sentence = (
            f"Not confirmed yet. Best in the search: {best.point.label},"
            f" {percent(best.log_speedup)} against the baseline (optimistic, as the best of many is)."
        )
        return Answer(AnswerKind.UNDECIDED, None, None, sentence, (), "")
    kind = AnswerKind.INVALID if trials[1:] else AnswerKind.UNDECIDED
    sentence = "Nothing could be measured." if trials[1:] else "Nothing has been measured yet."
    return Answer(kind, None, None, sentence, (), "")


def command_of(point: Point, blocks: Sequence[Block]) -> str:
    """The command line that last started this Point."""
    import shlex

    return next((shlex.join(arm.argv) for b in reversed(blocks) if (arm := b.arm(point))), "")


def _is_finished(verdicts: Sequence[Verdict], confirmed: Sequence[Block], sweep: Sweep) -> bool:
    looked_at_all = next_look(len(confirmed), sweep.confirm.looks) is None
    return bool(verdicts) and (looked_at_all or not still_open(verdicts))


def _phases_s(blocks: Sequence[Block], sessions: Sequence[dict[str, float]]) -> dict[str, float]:
    """Where the wall time went: servers, measurements, and the tool itself."""
    arms = [arm for b in blocks for arm in b.arms]
    spent = {
        "starting servers": sum(a.start_s for a in arms),
        "warm-up": sum(a.warm_up_s for a in arms),
        "measuring": sum(a.measured_s for a in arms),
    }
    wall = sum(s["ended_at"] - s["began_at"] for s in sessions)
    return {**spent, "the tool itself": max(0.0, wall - sum(spent.values()))} if wall else spent
