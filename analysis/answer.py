"""The answer of a run in plain words: what stands on top of every report."""

from dataclasses import dataclass
from enum import StrEnum

from analysis import findings, words
from analysis.report_input import ReportInput
from results.records import Verdict, VerdictKind


class Tone(StrEnum):
    FASTER = "faster"
    STAY = "stay"  # as good an answer: run without speculation
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
    best = findings.best_verdict(report)
    if report.winner is not None and report.winner.kind is VerdictKind.BETTER:
        return _faster(report.winner)
    if not report.finished:
        return Answer(Tone.OPEN, "Not finished", "", _so_far(report), verdict=best)
    if not findings.measured(report.trials) and best is None:
        return Answer(Tone.OPEN, "Nothing could be measured", "", _so_far(report))
    kinds = {v.kind for v in report.verdicts}
    if VerdictKind.UNDECIDED in kinds:
        return _closest(
            Tone.OPEN, "Not decided", "The budget of Blocks ran out before the answer was clear.", best
        )
    if kinds == {VerdictKind.INVALID}:
        return Answer(Tone.OPEN, "No valid answer", "", ("No finalist could be measured validly.",))
    stay = "Run the server without speculation: nothing tried here was shown to be faster."
    return _closest(Tone.STAY, "No configuration beats the baseline", stay, best)


def _faster(winner: Verdict) -> Answer:
    details = [f"Configuration: {winner.point.label}."]
    if winner.effect is None:
        return Answer(Tone.FASTER, "Faster", "than without speculation", tuple(details), winner.cells, winner)
    middle, _, interval = words.times_with_interval(winner.effect).rstrip(")").partition(" (")
    details.append(
        f"The interval is {interval}, from {words.count(winner.effect.blocks, 'Block')} with fresh servers "
        "on prompts that the search never saw."
    )
    unit = "the speed of the same server without speculation"
    return Answer(Tone.FASTER, middle, unit, tuple(details), winner.cells, winner)


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
    counted = f"{words.count(len(report.trials), 'trial')}, {len(tried)} with a number, {len(lost)} failed."
    best = findings.best_trial(tried)
    if best is None:
        return (counted,)
    estimate = f"Best search estimate: {words.times(best.log_speedup)} ({best.point.label}), not confirmed."
    return (counted, estimate)
