"""What a speed-up over all Cells hides: classes and Cells that do not have its sign."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from analysis.words import listed, signed_percent
from results.records import Effect, Verdict

MOST_NAMED = 4  # Cells of one class in a banner; the load map has all of them


@dataclass(frozen=True, slots=True)
class ClassSign:
    """The effect on one workload class; settled = its own interval excludes 0."""

    workload_class: str
    effect: Effect
    settled: bool


def class_signs(verdict: Verdict) -> tuple[ClassSign, ...]:
    """The effect on every class, if they do not have one sign; else none."""
    if not _differ(verdict.by_class.values()):
        return ()
    return tuple(ClassSign(c, e, e.signs_are_certain) for c, e in verdict.by_class.items())


def banner(verdict: Verdict) -> str:
    """Which classes gain and which lose, and where Cells of one class differ, a line each; "" = none do."""
    signs = sorted(class_signs(verdict), key=lambda s: -s.effect.log_ratio)
    shown = ", ".join(_said(s.workload_class, s.effect) for s in signs)
    by_class = [f"The sign depends on the workload class: {shown}."] if signs else []
    return "\n".join([*by_class, *_within_classes(verdict.by_cell)])


def _within_classes(by_cell: Mapping[str, Effect]) -> list[str]:
    """One line for each class whose Cells differ in sign: the Cells of the rarer one, the furthest first."""
    classes: dict[str, dict[str, Effect]] = {}
    for label, effect in by_cell.items():
        name, _, load = label.partition(" @ ")
        classes.setdefault(name, {})[load] = effect
    return [_line(name, cells) for name, cells in classes.items() if _differ(cells.values())]


def _line(name: str, cells: Mapping[str, Effect]) -> str:
    gains = {load: e for load, e in cells.items() if e.log_ratio > 0}
    losses = {load: e for load, e in cells.items() if e.log_ratio < 0}
    rarer, others = (gains, "loses") if len(gains) < len(losses) else (losses, "gains")
    furthest = sorted(rarer.items(), key=lambda item: -abs(item[1].log_ratio))
    named = [_said(load, effect) for load, effect in furthest[:MOST_NAMED]]
    more = [f"{len(rarer) - MOST_NAMED} more"] if len(rarer) > MOST_NAMED else []
    return f"Within {name} the sign depends on the Cell: it {others}, but not at {listed([*named, *more])}."


def _said(name: str, effect: Effect) -> str:
    certainty = "settled" if effect.signs_are_certain else "not settled"
    return f"{name} {signed_percent(effect.log_ratio)} ({certainty})"


def _differ(effects: Iterable[Effect]) -> bool:
    estimates = [e.log_ratio for e in effects]
    return any(e > 0 for e in estimates) and any(e < 0 for e in estimates)
