"""The answer of a run in plain words: what stands on top of every report."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from analysis import findings, words
from analysis.report_input import ReportInput
from analysis.verdict import breaks_limit
from results.reasons import Reason
from results.records import Verdict, VerdictKind

KEEP = "Run the server without speculation: nothing tried here was shown to be faster."
NONE_KEEPS = "No configuration keeps the limits"


class Tone(StrEnum):
    FASTER = "faster"
    STAY = "stay"  # as good an answer: run without speculation
    LIMITS = "limits"  # faster or not: it keeps the limits, which the baseline does not
    OPEN = "open"  # no answer, or none yet


@dataclass(frozen=True, slots=True)
class Answer:
    """`big` is read from afar, `unit` completes it, `details` are sentences."""

    tone: Tone
    big: str
    unit: str
    details: tuple[str, ...]
    holds_for: tuple[str, ...] = ()
    verdict: Verdict | None = None  # the one to draw


def answer(report: ReportInput) -> Answer:
    if report.comparison is not None:
        return _compared(report)
    best = findings.best_verdict(report)
    if report.winner is not None and report.winner.kind is VerdictKind.BETTER:
        return _faster(report.winner, report.objective)
    if not report.finished:
        return Answer(Tone.OPEN, "Not finished", "", _so_far(report), verdict=best)
    if report.winner is not None and report.baseline_breaks:
        return _keeps_limits(report, report.winner)
    if not report.verdicts:
        return _unconfirmed(report)
    kinds = {v.kind for v in report.verdicts}
    if VerdictKind.UNDECIDED in kinds:
        return _closest(
            Tone.OPEN, "Not decided", "The budget of Blocks ran out before the answer was clear.", best
        )
    if all(breaks_limit(v) for v in report.verdicts):
        return Answer(Tone.STAY, NONE_KEEPS, "", (_instead(report), report.verdicts[0].why))
    if kinds == {VerdictKind.INVALID}:
        return Answer(Tone.OPEN, "No valid answer", "", ("No finalist could be measured validly.",))
    return _closest(Tone.STAY, "No configuration beats the baseline", KEEP, best)


def command_title(report: ReportInput) -> str:
    """What to do with the command of this run."""
    if report.comparison is not None:
        if report.winner is None and report.baseline_breaks:
            return "Run B, which keeps the limits"
        return f"Run {'B' if report.winner is not None else 'A'}, the faster one"
    return {
        Tone.FASTER: "Run the winner",
        Tone.STAY: "Run the server without speculation",
        Tone.LIMITS: "Run the one that keeps the limits",
        Tone.OPEN: "Run the best so far, which is not shown to be faster",
    }[answer(report).tone]


def _compared(report: ReportInput) -> Answer:
    """The answer of a comparison, or the figures of one side alone."""
    verdict = report.verdicts[0] if report.verdicts else None
    if verdict is None:
        alone = report.comparison is not None and len(report.comparison.sides) == 1
        return Answer(Tone.OPEN, "No verdict" if alone and report.finished else "Not finished", "", ())
    if verdict.kind is VerdictKind.UNDECIDED:
        return Answer(
            Tone.OPEN, "Not decided" if report.finished else "Not finished", "", (), verdict=verdict
        )
    if verdict.kind is VerdictKind.INVALID:
        return Answer(Tone.OPEN, "No valid answer", "", ())
    tone = Tone.FASTER if verdict.kind is VerdictKind.BETTER else Tone.STAY
    middle = words.times_with_interval(verdict.effect).partition(" (")[0]
    unit = words.than_baseline(report.objective, "A")
    return Answer(tone, middle, unit, (), verdict.cells, verdict)


def _faster(winner: Verdict, objective: str) -> Answer:
    if winner.effect is None:
        return Answer(Tone.FASTER, "Faster", "than without speculation", (), winner.cells, winner)
    middle, _, interval = words.times_with_interval(winner.effect).rstrip(")").partition(" (")
    details = (
        f"The interval is {interval}, from {words.count(winner.effect.blocks, 'Block')} with fresh servers "
        "on prompts that the search never saw.",
    )
    return Answer(Tone.FASTER, middle, words.than_baseline(objective), details, winner.cells, winner)


def _keeps_limits(report: ReportInput, keeper: Verdict) -> Answer:
    """The answer where the baseline is no choice, and nothing that is one was shown to be faster."""
    told = {
        VerdictKind.WORSE: f"{words.signs(report.objective)[1]}, which is the price of the limits",
        VerdictKind.SAME: words.equally(report.objective),
    }.get(keeper.kind, "which of the two is ahead is not decided")
    details = (
        f"Configuration: {keeper.point.label}.",
        f"It was confirmed at {words.times_with_interval(keeper.effect)} of the baseline: {told}.",
    )
    big = "It keeps the limits, the baseline does not"
    return Answer(Tone.LIMITS, big, "", details, keeper.cells, keeper)


def _instead(report: ReportInput) -> str:
    """What to do where every configuration breaks a limit."""
    if not report.baseline_breaks:
        return KEEP
    return (
        f"The server without speculation breaks a limit as well: {report.baseline_breaks}."
        " Loosen the limit, or ask for less load."
    )


def _unconfirmed(report: ReportInput) -> Answer:
    """The answer of a run that ended before any finalist was judged."""
    best = findings.best_trial(report.trials)
    if best is None and any(t.failure.reason is Reason.LIMIT_EXCEEDED for t in report.trials if t.failure):
        return Answer(Tone.STAY, NONE_KEEPS, "", (_instead(report), *_commonest_failure(report)))
    if best is None:
        details = (*_so_far(report), *_commonest_failure(report))
        return Answer(Tone.OPEN, "Nothing could be measured", "", details)
    return Answer(Tone.OPEN, "Nothing was confirmed", "", _so_far(report))


def _commonest_failure(report: ReportInput) -> tuple[str, ...]:
    """Why most trials have no number, with the words of one of them, and what to do about it."""
    failures = [t.failure for t in findings.failed(report.trials) if t.failure is not None]
    if not failures:
        return ()
    reason, times = Counter(f.reason for f in failures).most_common(1)[0]
    example = next(f.evidence for f in failures if f.reason is reason)
    seen = f"{words.REASONS[reason]} ({reason.value}, {times} of {words.count(len(failures), 'failure')})"
    return (f"{seen}: {words.one_line(example)}", words.REMEDIES[reason])


def _closest(tone: Tone, big: str, sentence: str, best: Verdict | None) -> Answer:
    if best is None:
        return Answer(tone, big, "", (sentence, "No finalist was confirmed."))
    closest = f"The closest, {best.point.label}, was confirmed at {words.times_with_interval(best.effect)}."
    return Answer(tone, big, "", (sentence, closest, *_where_it_gains(best)), best.cells, best)


def _where_it_gains(verdict: Verdict) -> list[str]:
    """Where the sign changes, if it does with certainty."""
    gains = {name: e for name, e in verdict.by_class.items() if e.low > 0}
    if not gains:
        return []
    listed = ", ".join(f"{name} {words.times_with_interval(e)}" for name, e in gains.items())
    return [f"It does gain in some classes: {listed}."]


def _so_far(report: ReportInput) -> tuple[str, ...]:
    tried, lost = findings.measured(report.trials), findings.failed(report.trials)
    counted = (
        f"{words.count(len(tried) + len(lost), 'trial')}, {len(tried)} with a number, {len(lost)} failed."
    )
    best = findings.best_trial(tried)
    if best is None:
        return (counted,)
    estimate = f"Best search estimate: {words.times(best.log_speedup)} ({best.point.label}), not confirmed."
    return (counted, estimate)
