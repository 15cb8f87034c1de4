"""Two runs side by side: what was asked, where, and what each says. Never which of them is faster.

Speed-ups are paired within each run, so they may be set beside each other with their intervals. Absolute
figures of two runs are not paired: the machine of another hour is another machine.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from analysis import findings, noise, words
from analysis.report_input import ReportInput
from analysis.tables import flat
from results.records import Cell, Effect, Phase, Point

NOT_PAIRED = (
    "Two runs are no paired measurement: each was measured in its own hour, so nothing here says which of "
    "them is faster. Speed-ups are paired within their own run and are set side by side with their "
    "intervals. To learn which of two configurations is faster, write each into a sweep file and run: "
    "tuner compare A.yaml B.yaml"
)
Difference = tuple[str, str, str]  # what, in A, in B
_ALWAYS_DIFFERENT = ("host.taken_at",)


@dataclass(frozen=True, slots=True)
class TwoRuns:
    a: ReportInput
    b: ReportInput

    @property
    def runs(self) -> dict[str, ReportInput]:
        return {"A": self.a, "B": self.b}


@dataclass(frozen=True, slots=True)
class Known:
    """What a run says of one Point. `effect` is None where there is no interval."""

    log_ratio: float
    effect: Effect | None
    confirmed: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """One Point that both runs measured."""

    point: Point
    a: Known
    b: Known

    @property
    def change(self) -> float:
        """Log ratio of the speed-up in B to that in A."""
        return self.b.log_ratio - self.a.log_ratio

    @property
    def beyond_noise(self) -> bool | None:
        """Whether the change is larger than both intervals together explain; None = one has no interval."""
        if self.a.effect is None or self.b.effect is None:
            return None
        widths = [(effect.high - effect.low) / 2 for effect in (self.a.effect, self.b.effect)]
        return abs(self.change) > math.hypot(*widths)


def moved(two: TwoRuns) -> list[Moved]:
    """Confirmed ones first, then the largest change; empty if the runs have different objectives.

    Like with like: confirmations where both runs have one, else the search estimates of both. A search
    estimate beside a confirmation would show the winner's curse as a change.
    """
    if two.a.objective != two.b.objective:
        return []
    found = _in_both(_searched(two.a), _searched(two.b)) | _in_both(_confirmed(two.a), _confirmed(two.b))
    return sorted(found.values(), key=lambda m: (not m.a.confirmed, -abs(m.change)))


def _in_both(
    ours: Mapping[str, tuple[Point, Known]], theirs: Mapping[str, tuple[Point, Known]]
) -> dict[str, Moved]:
    return {key: Moved(point, known, theirs[key][1]) for key, (point, known) in ours.items() if key in theirs}


def _searched(report: ReportInput) -> dict[str, tuple[Point, Known]]:
    known = noise.block_noise(report.blocks, report.objective, report.weights)
    return {
        t.point.key: (t.point, Known(t.log_speedup, noise.trial_effect(t, known), False))
        for t in findings.measured(report.trials)
        if t.log_speedup is not None
    }


def _confirmed(report: ReportInput) -> dict[str, tuple[Point, Known]]:
    return {
        v.point.key: (v.point, Known(v.effect.log_ratio, v.effect, True))
        for v in report.verdicts
        if v.effect is not None
    }


def sentence(two: TwoRuns) -> str:
    """What the comparison comes to."""
    if two.a.objective != two.b.objective:
        return (
            f"The runs ask for different things ({two.a.objective}, {two.b.objective}): no speed-up compares."
        )
    both = moved(two)
    if not both:
        return "No configuration was measured in both runs."
    beyond = [m for m in both if m.beyond_noise]
    counted = words.count(len(both), "configuration")
    if not beyond:
        return f"Of {counted} that both runs measured, the speed-up of none moved beyond its noise."
    first = beyond[0]
    return (
        f"Of {counted} that both runs measured, {len(beyond)} moved beyond the noise, most of all "
        f"{first.point.label}: from {words.times(first.a.log_ratio)} to {words.times(first.b.log_ratio)}."
    )


def cautions(two: TwoRuns) -> list[str]:
    """What makes the runs hard to compare."""
    checks = {
        "The prompts are not the same.": "prompts.",
        "The model or the drafter is not the same.": "served.",
        "The machine or its software is not the same.": "host.",
        "The load client is not the same.": "load",
    }
    differing = {name for name, _, _ in environment_differences(two)}
    said = [text for text, path in checks.items() if any(name.startswith(path) for name in differing)]
    going_on = [f"Run {name} is not finished." for name, report in two.runs.items() if not report.finished]
    return [*going_on, *said]


@dataclass(frozen=True, slots=True)
class Baselines:
    """Tokens per second of the baseline of each run in one Cell: one figure a Block."""

    cell: Cell
    a: tuple[float, ...]
    b: tuple[float, ...]


def baselines(two: TwoRuns) -> list[Baselines]:
    """Of the confirmation if both runs have one, else of the search of both: the prompts are not the same."""
    for phase in (Phase.CONFIRM, Phase.SEARCH):
        ours, theirs = _baseline_speeds(two.a, phase), _baseline_speeds(two.b, phase)
        if both := [
            Baselines(cell, tuple(ours[cell]), tuple(theirs[cell])) for cell in ours if cell in theirs
        ]:
            return both
    return []


def _baseline_speeds(report: ReportInput, phase: Phase) -> dict[Cell, list[float]]:
    found: dict[Cell, list[float]] = {}
    for block in findings.valid(report.blocks):
        arm = block.baseline if block.phase is phase else None
        for m in arm.measurements if arm is not None and arm.failure is None else ():
            if m.tokens_per_s:
                found.setdefault(m.cell, []).append(m.tokens_per_s)
    return found


def environment_differences(two: TwoRuns) -> list[Difference]:
    """Of what both fingerprints know; the hour is none."""
    return [d for d in _differences(*map(_fingerprint, two.runs.values())) if d[0] not in _ALWAYS_DIFFERENT]


def _fingerprint(report: ReportInput) -> dict[str, str]:
    """What is known of it."""
    return {name: value for name, value in flat(report.environment) if value not in ("", words.UNKNOWN)}


def _differences(a: Mapping[str, str], b: Mapping[str, str]) -> list[Difference]:
    names = dict.fromkeys([*a, *b])
    return [(n, a.get(n, "not set"), b.get(n, "not set")) for n in names if a.get(n) != b.get(n)]


def sweep_differences(two: TwoRuns) -> list[Difference]:
    return _differences(*map(_settings, two.runs.values()))


def _settings(report: ReportInput) -> dict[str, str]:
    """The sweep file flattened; of a comparison both files, each under its letter."""
    import yaml

    if report.comparison is None:
        return dict(flat(yaml.safe_load(report.sweep_yaml) or {}))
    _, *parts = re.split(r"^# ([AB]): .*$", report.sweep_yaml, flags=re.MULTILINE)
    files = zip(parts[::2], parts[1::2], strict=True)
    return {f"{side}.{k}": v for side, file in files for k, v in flat(yaml.safe_load(file) or {})}
