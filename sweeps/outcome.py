"""What a run folder says now: the same for a run that is finished, going on, or was killed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from analysis.findings import compared_with
from analysis.limits import broken_by_baseline
from analysis.report_input import Comparison, ReportInput, Side
from analysis.sides import sentence
from analysis.verdict import (
    Answer,
    AnswerKind,
    answer,
    breaks_limit,
    conclude,
    itself_breaks,
    no_one_keeps,
)
from analysis.words import signed_percent
from results.errors import UsageError
from results.profile import Profile
from results.records import Block, Phase, Point, Trial, Verdict, VerdictKind
from results.secrets import HIDDEN
from results.store import RunFolder
from sweeps.cluster.nodes import nodes_of
from sweeps.cluster.seats import held_s, seats_of
from sweeps.confirm import confirmation, finalists_of, open_points, rules_of
from sweeps.duet import biases
from sweeps.export.server import recorded
from sweeps.loads import found_loads
from sweeps.session import ENDED_FILE, sessions_of, spent_s
from sweeps.study import best_of
from sweeps.sweep import Sweep, parse_sweep
from sweeps.which_run import own_sweep

EXIT_CODES = {
    AnswerKind.WINNER: 0,
    AnswerKind.KEEPS_LIMITS: 0,
    AnswerKind.NONE_BETTER: 0,
    AnswerKind.UNDECIDED: 4,
    AnswerKind.INVALID: 5,
}
VERDICT_CODES = {
    VerdictKind.BETTER: 0,
    VerdictKind.WORSE: 0,
    VerdictKind.SAME: 0,
    VerdictKind.UNDECIDED: 4,
    VerdictKind.INVALID: 5,
}
SIDES_FILE = "compare.json"  # only in the folder of a comparison
CHECK_FILE = "check.json"  # only where `tuner check` measured several versions; it says what came of it
RANDOM_TOKENS = (
    "RANDOM TOKENS: the prompts were random words; acceptance and speed-up on real text will differ."
)


def read_run(folder: RunFolder) -> tuple[ReportInput, int]:
    """Everything a report needs, and the exit code of the sweep that ended like this.

    Raises UsageError if this is no run folder.
    """
    sweep = own_sweep(folder)
    trials, blocks, profiles = folder.trials(), folder.blocks(), folder.profiles()
    if compared := folder.read_json(SIDES_FILE):
        return _read_comparison(folder, sweep, blocks, compared)
    if checked := folder.read_json(CHECK_FILE):
        base = _without_answer(folder, sweep, blocks)
        said = replace(base, name=checked["name"], headline=checked["sentence"], finished=checked["finished"])
        return said, checked["exit_code"]
    points = finalists_of(folder, trials, sweep)
    confirmed = [b for b in blocks if b.phase is Phase.CONFIRM and b.invalid is None]
    confirmed = confirmation(confirmed, confirmed[-1].compared_with) if confirmed else []
    verdicts = conclude(confirmed, points, **rules_of(sweep)) if confirmed else []
    base = _without_answer(folder, sweep, blocks, profiles)
    breaks = base.baseline_breaks
    found = answer(verdicts, breaks) if verdicts else _unconfirmed(trials, breaks)
    ended = folder.read_json(ENDED_FILE).get("trials") == len(trials)
    report = replace(
        base,
        trials=trials,
        verdicts=verdicts,
        winner=found.winner,
        headline=found.sentence,
        banner="\n".join(filter(None, [RANDOM_TOKENS if sweep.workload.random_tokens else "", found.banner])),
        command=_command(found, sweep, blocks),
        sweep_yaml=sweep.to_yaml(),
        notes=[*folder.read_json("notes.json").get("notes", []), *biases(blocks, sweep)],
        highest_loads=found_loads(folder),
        finished=ended or (bool(verdicts) and not open_points(verdicts, rules_of(sweep))),
    )
    return report, EXIT_CODES[found.kind]


def _without_answer(
    folder: RunFolder, sweep: Sweep, blocks: Sequence[Block], profiles: Sequence[Profile] = ()
) -> ReportInput:
    """What every run says, whatever was asked of it."""
    sessions, weights = sessions_of(folder), sweep.weights.to_record()
    seen_at = max([s["began_at"] for s in sessions] + [b.ended_at for b in blocks], default=0.0)
    seats, elapsed_s = seats_of(folder), spent_s(sessions, seen_at)
    return ReportInput(
        name=sweep.name,
        blocks=blocks,
        environment=folder.read_json("environment.json"),
        calibration=sessions[-1]["calibration"] if sessions else {},
        elapsed_s=elapsed_s,
        phases_s=_phases_s(blocks, profiles, held_s(seats, seen_at) if seats else elapsed_s),
        profiles=profiles,
        objective=sweep.objective,
        limits=sweep.limits,
        goodput=sweep.goodput,
        baseline_breaks=broken_by_baseline(blocks, sweep.limits, weights),
        weights=weights,
        greedy=sweep.workload.is_greedy,
        same_margin=sweep.confirm.same_margin,
    )


def sweep_of_run(folder: RunFolder) -> Sweep:
    """The sweep that a run folder holds. Raises UsageError if its servers cannot be started from it."""
    sweep = own_sweep(folder)
    if folder.read_json(SIDES_FILE):
        raise UsageError(f"{folder.path} holds a comparison: name the sweep file of one of its sides")
    hidden = [name for name, value in sweep.env.items() if value == HIDDEN]
    if hidden:
        raise UsageError(
            f"{folder.shown} does not keep the value of {', '.join(hidden)}: name the sweep file"
            f" itself, and --run {folder.shown}"
        )
    return sweep


def _read_comparison(
    folder: RunFolder, sweep: Sweep, blocks: Sequence[Block], told: Mapping[str, Any]
) -> tuple[ReportInput, int]:
    sides = msgspec.convert(told["sides"], tuple[Side, ...])
    usable = [b for b in blocks if b.invalid is None]
    rules, measured = rules_of(sweep), usable and len(sides) == 2
    verdicts = conclude(usable, [sides[-1].point], **rules, same_model=told["same_model"]) if measured else []
    kind = verdicts[0].kind if verdicts else VerdictKind.UNDECIDED
    decided = bool(verdicts) and not open_points(verdicts, rules)
    alone = len(sides) == 1 and len(usable) >= sweep.confirm.looks[0]
    base = _without_answer(folder, sweep, blocks)
    breaks = base.baseline_breaks
    slower = sides[0] if not breaks else sides[-1]  # what to run then: A, unless it is no choice
    faster = {VerdictKind.BETTER: sides[-1], VerdictKind.WORSE: slower}.get(kind)
    lossy = {arm.point.name: arm.lossy for b in usable for arm in b.arms if arm.lossy}
    report = replace(
        base,
        name=told["name"],
        verdicts=verdicts,
        winner=verdicts[0] if kind is VerdictKind.BETTER else None,
        headline=_sentence_of(sides, usable, verdicts, sweep),
        banner="\n".join(
            filter(
                None,
                [
                    RANDOM_TOKENS if sweep.workload.random_tokens else "",
                    *(f"LOSSY: {name}: {why}." for name, why in lossy.items()),
                    itself_breaks(breaks, "A"),
                    answer(verdicts).banner,
                ],
            )
        ),
        command=_command_of(faster.point, sweep_of_side(told, faster.name), blocks) if faster else "",
        sweep_yaml="\n".join(f"# {side['name']}: {side['given']}\n{side['sweep']}" for side in told["sides"]),
        finished=decided or alone or "trials" in folder.read_json(ENDED_FILE),
        comparison=Comparison(sides, tuple(tuple(d) for d in told["differences"]), tuple(told["notes"])),
    )
    is_limit = bool(verdicts) and breaks_limit(verdicts[0])
    return report, 0 if is_limit else VERDICT_CODES[kind]


def sweep_of_side(told: Mapping[str, Any], name: str) -> Sweep:
    yaml = next(side["sweep"] for side in told["sides"] if side["name"] == name)
    return parse_sweep(yaml, where=f"{SIDES_FILE}, {name}")


def _sentence_of(
    sides: Sequence[Side], usable: Sequence[Block], verdicts: Sequence[Verdict], sweep: Sweep
) -> str:
    if verdicts and (verdicts[0].effect is not None or verdicts[0].kind is VerdictKind.INVALID):
        return sentence(verdicts[0], sweep.objective)
    look = sweep.confirm.looks[0]
    done = f"{len(usable)} of the {look} Blocks before the first look"
    if len(sides) == 1:
        return f"Nothing to compare with: no verdict ({min(len(usable), look)} of {look} Blocks)."
    return f"Nothing can be said yet: {done}."


def _unconfirmed(trials: Sequence[Trial], baseline_breaks: str) -> Answer:
    """The answer before any confirmation Block."""
    tried = [t for t in trials if not t.point.is_baseline]
    measured = [t for t in tried if t.log_speedup is not None]
    best = best_of(tried)
    if best is not None and best.log_speedup is not None:
        sentence = (
            f"Not confirmed yet. Best in the search: {best.point.label},"
            f" {signed_percent(best.log_speedup)} against the baseline (optimistic, as the best of many is)."
        )
        return Answer(AnswerKind.UNDECIDED, None, None, sentence, (), itself_breaks(baseline_breaks))
    if any(t.limits for t in measured):
        return Answer(AnswerKind.NONE_BETTER, None, None, no_one_keeps(baseline_breaks), (), "")
    if measured or not tried:
        sentence = "Not confirmed yet." if measured else "Nothing has been measured yet."
        return Answer(AnswerKind.UNDECIDED, None, None, sentence, (), "")
    return Answer(AnswerKind.INVALID, None, None, "Nothing could be measured.", (), "")


def _command(found: Answer, sweep: Sweep, blocks: Sequence[Block]) -> str:
    """What to run: the winner, or the baseline if nothing beats it; as it was last started."""
    if found.kind in (AnswerKind.UNDECIDED, AnswerKind.INVALID):
        return ""
    return _command_of(found.winner.point if found.winner else compared_with(blocks), sweep, blocks)


def _command_of(point: Point, sweep: Sweep, blocks: Sequence[Block]) -> str:
    """A server as it was last started; "" if somebody else runs it."""
    server = recorded(point, sweep, blocks)
    if server is None:
        return ""
    nodes = nodes_of(sweep)
    others = f"  # rank 0 of {nodes}; `tuner export` writes them all" if nodes > 1 else ""
    return f"{server.one_line}{others}"


def _phases_s(blocks: Sequence[Block], profiles: Sequence[Profile], lanes_s: float) -> dict[str, float]:
    """Where the time of the Lanes went: servers, measurements, and the tool itself.

    Servers that were up together are added up, so their starting may be more than the Lanes' time; the
    tool's share is never below 0.
    """
    arms = [arm for b in blocks for arm in b.arms]
    spent = {
        "starting servers": sum(a.start_s for a in arms),
        "warm-up": sum(a.warm_up_s for a in arms),
        "measuring": sum(a.measured_s for a in arms),
    }
    if profiles:
        spent["profiling"] = sum(p.ended_at - p.started_at for p in profiles)
    return {**spent, "the tool itself": max(0.0, lanes_s - sum(spent.values()))}
