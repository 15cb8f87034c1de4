"""What a run folder says now: the same for a run that is finished, going on, or was killed."""

import shlex
from collections.abc import Mapping, Sequence

from analysis.report_input import ReportInput
from analysis.verdict import Answer, AnswerKind, answer, conclude, percent
from launchers.engines import is_container
from results.errors import UsageError
from results.records import BASELINE, Block, Phase, Trial
from results.secrets import is_secret
from results.store import RunFolder
from sweeps.confirm import finalists_of, open_points, rules_of
from sweeps.study import best_of
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
    points = finalists_of(folder, trials, sweep)
    confirmed = [b for b in blocks if b.phase is Phase.CONFIRM and b.invalid is None]
    verdicts = conclude(confirmed, points, **rules_of(sweep)) if confirmed else []
    found = answer(verdicts) if verdicts else _unconfirmed(trials)
    sessions = folder.read_json("sessions.json").get("sessions", [])
    ended = folder.read_json("ended.json").get("trials") == len(trials)
    report = ReportInput(
        name=sweep.name,
        trials=trials,
        blocks=blocks,
        verdicts=verdicts,
        winner=found.winner,
        headline=found.sentence,
        banner="\n".join(filter(None, [RANDOM_TOKENS if sweep.workload.random_tokens else "", found.banner])),
        command=_command(found, sweep, blocks),
        environment=folder.read_json("environment.json"),
        sweep_yaml=sweep.to_yaml(),
        notes=folder.read_json("notes.json").get("notes", []),
        calibration=sessions[-1]["calibration"] if sessions else {},
        phases_s=_phases_s(blocks, sessions),
        objective=sweep.objective,
        same_margin=sweep.confirm.same_margin,
        finished=ended or (bool(verdicts) and not open_points(verdicts, rules_of(sweep))),
    )
    return report, EXIT_CODES[found.kind]


def _unconfirmed(trials: Sequence[Trial]) -> Answer:
    """The answer before any confirmation Block."""
    measured = [t for t in trials[1:] if t.log_speedup is not None]
    best = best_of(trials)
    if best is not None and best.log_speedup is not None:
        sentence = (
            f"Not confirmed yet. Best in the search: {best.point.label},"
            f" {percent(best.log_speedup)} against the baseline (optimistic, as the best of many is)."
        )
        return Answer(AnswerKind.UNDECIDED, None, None, sentence, (), "")
    if any(t.limits for t in measured):
        sentence = "No configuration keeps the limits, so none beats the baseline within them."
        return Answer(AnswerKind.NONE_BETTER, None, None, sentence, (), "")
    if measured or not trials[1:]:
        sentence = "Not confirmed yet." if measured else "Nothing has been measured yet."
        return Answer(AnswerKind.UNDECIDED, None, None, sentence, (), "")
    return Answer(AnswerKind.INVALID, None, None, "Nothing could be measured.", (), "")


def _command(found: Answer, sweep: Sweep, blocks: Sequence[Block]) -> str:
    """What to run: the winner, or the baseline if nothing beats it; as it was last started."""
    if found.kind not in (AnswerKind.WINNER, AnswerKind.NONE_BETTER):
        return ""
    compared_with = next((b.compared_with for b in reversed(blocks)), BASELINE)
    point = found.winner.point if found.winner else compared_with
    argv = next((arm.argv for b in reversed(blocks) if (arm := b.arm(point))), ())
    if is_container(argv):
        return shlex.join(argv)  # with its variables
    given = {name: value for name, value in {**sweep.env, **point.variables}.items() if value is not None}
    variables = [
        f'{name}="${name}"' if is_secret(name) else f"{name}={shlex.quote(value)}"
        for name, value in given.items()
    ]
    return " ".join([*variables, shlex.join(argv)]) if argv else ""


def _phases_s(blocks: Sequence[Block], sessions: Sequence[Mapping[str, float | None]]) -> dict[str, float]:
    """Where the wall time went: servers, measurements, and the tool itself.

    A start that was killed has no end: it counts until its last Block. Servers that were up together
    are added up, so their starting may be more than the wall time; the tool's share is never below 0.
    """
    arms = [arm for b in blocks for arm in b.arms]
    spent = {
        "starting servers": sum(a.start_s for a in arms),
        "warm-up": sum(a.warm_up_s for a in arms),
        "measuring": sum(a.measured_s for a in arms),
    }
    begins = [float(s["began_at"] or 0) for s in sessions]
    wall = 0.0
    for session, began, next_began in zip(sessions, begins, [*begins[1:], float("inf")], strict=True):
        last_block = max((b.ended_at for b in blocks if began <= b.started_at < next_began), default=began)
        wall += float(session["ended_at"] or last_block) - began
    return {**spent, "the tool itself": max(0.0, wall - sum(spent.values()))}
