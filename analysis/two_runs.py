"""Two runs side by side: what was asked, where, and what each says. Never which of them is faster.

Speed-ups are paired within each run, so they may be set beside each other with their intervals. Absolute
figures of two runs are not paired: the machine of another hour is another machine.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from analysis import findings, noise, words
from analysis.answer import answer
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table, effect_entry, flat
from results.records import Cell, Effect, Phase, Point

NOT_PAIRED = (
    "Two runs are no paired measurement: each was measured in its own hour, so nothing here says which of "
    "them is faster. Speed-ups are paired within their own run and are set side by side with their "
    "intervals. To learn which of two configurations is faster, write each into a sweep file and run: "
    "tuner compare A.yaml B.yaml"
)
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
    known = noise.block_noise(report.blocks, report.objective)
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
    differing = {name for name, _, _ in _environment_differences(two)}
    said = [text for text, path in checks.items() if any(name.startswith(path) for name in differing)]
    going_on = [f"Run {name} is not finished." for name, report in two.runs.items() if not report.finished]
    return [*going_on, *said]


def verdicts(two: TwoRuns) -> Table:
    sides = [_summary(report) for report in two.runs.values()]
    rows = [(Entry(name), Entry(sides[0][name]), Entry(sides[1][name])) for name in sides[0]]
    return Table("verdicts", "What each run says", ("What", "A", "B"), tuple(rows))


def _summary(report: ReportInput) -> dict[str, str]:
    said, best = answer(report), findings.best_verdict(report)
    lost = len(findings.failed(report.trials))
    thrown = len(report.blocks) - len(findings.valid(report.blocks))
    return {
        "Run": report.folder or report.name,
        "Answer": " ".join(filter(None, (said.big, said.unit))),
        "Configuration": best.point.label if best else "none confirmed",
        "Confirmed": words.times_with_interval(best.effect) if best else "no",
        "In words": report.headline,
        "Caution": report.banner or "",
        "Objective": report.objective,
        "Trials": f"{len(report.trials)}, {lost} failed",
        "Blocks": f"{len(report.blocks)}, {thrown} thrown away",
        "Time": words.long_time(sum(report.phases_s.values())),
        "Finished": "yes" if report.finished else "no",
    }


def speedups(two: TwoRuns) -> Table:
    rows = [
        (
            Entry(m.point.label, code=True),
            _known_entry(m.a),
            _known_entry(m.b),
            Entry(words.signed_percent(m.change), m.change),
            Entry({True: "yes", False: "no", None: "unknown: no interval"}[m.beyond_noise]),
        )
        for m in moved(two)
    ]
    columns = ("Configuration", "In A", "In B", "Change", "Beyond the noise")
    note = (
        "Each against the baseline of its own run; confirmations where both have one, else search "
        "estimates. A change is beyond the noise if it is larger than the half widths of both intervals, "
        "added as squares: a hint to look closer, not a verdict, for of many that did not move a few look as "
        "if they had."
    )
    return Table(
        "speedups", "Speed-ups that both measured", columns, tuple(rows), frozenset({"Change"}), note
    )


def _known_entry(known: Known) -> Entry:
    kind = "confirmed" if known.confirmed else "search"
    if known.effect is None:
        return Entry(f"{words.times(known.log_ratio)}, {kind}", words.factor(known.log_ratio))
    drawn = effect_entry(known.effect)
    return Entry(f"{drawn.text}, {kind}", drawn.order, drawn.interval)


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


def throughput(two: TwoRuns) -> Table:
    rows = [
        (
            Entry(each.cell.label),
            _spread(each.a),
            _spread(each.b),
            Entry(f"{median(each.b) / median(each.a):.2f}x", median(each.b) / median(each.a)),
        )
        for each in baselines(two)
    ]
    columns = ("Cell", "A, tokens/s", "B, tokens/s", "B / A")
    note = (
        "Not a paired measurement: the difference may be the hour, the heat or a neighbour. Medians over "
        "Blocks, with the lowest and the highest."
    )
    title = "Absolute throughput of the baselines"
    return Table("throughput", title, columns, tuple(rows), frozenset(columns[1:]), note)


def _spread(speeds: tuple[float, ...]) -> Entry:
    middle = median(speeds)
    return Entry(f"{middle:.1f} ({min(speeds):.1f} to {max(speeds):.1f})", middle)


def sweeps(two: TwoRuns) -> Table:
    found = _differences(*(_settings(report) for report in two.runs.values()))
    note = "Everything else that was asked for is equal."
    return _difference_table("sweeps", "What differs in the sweep files", found, note)


def environments(two: TwoRuns) -> Table:
    found = _environment_differences(two)
    note = "Every other part of the fingerprint is equal."
    return _difference_table("environments", "What differs in the environment", found, note)


def _environment_differences(two: TwoRuns) -> list[tuple[str, str, str]]:
    return [d for d in _differences(*map(_fingerprint, two.runs.values())) if d[0] not in _ALWAYS_DIFFERENT]


def _fingerprint(report: ReportInput) -> dict[str, str]:
    """What is known of it."""
    return {name: value for name, value in flat(report.environment) if value not in ("", words.UNKNOWN)}


def _difference_table(id: str, title: str, found: Iterable[tuple[str, str, str]], note: str) -> Table:
    rows = [(Entry(name, code=True), Entry(a, code=True), Entry(b, code=True)) for name, a, b in found]
    return Table(id, title, ("What", "A", "B"), tuple(rows), note=note)


def _differences(a: Mapping[str, str], b: Mapping[str, str]) -> list[tuple[str, str, str]]:
    names = dict.fromkeys([*a, *b])
    return [(n, a.get(n, "not set"), b.get(n, "not set")) for n in names if a.get(n) != b.get(n)]


def _settings(report: ReportInput) -> dict[str, str]:
    """The sweep file flattened; of a comparison both files, each under its letter."""
    import yaml

    if report.comparison is None:
        return dict(flat(yaml.safe_load(report.sweep_yaml) or {}))
    _, *parts = re.split(r"^# ([AB]): .*$", report.sweep_yaml, flags=re.MULTILINE)
    files = zip(parts[::2], parts[1::2], strict=True)
    return {f"{side}.{k}": v for side, file in files for k, v in flat(yaml.safe_load(file) or {})}


def document(two: TwoRuns) -> dict[str, Any]:
    """The same for other programs. Speed-ups are factors; null where there is no number."""
    return {
        "schema": 1,
        "paired": False,
        "sentence": sentence(two),
        "cautions": cautions(two),
        "runs": {name: _summary(report) for name, report in two.runs.items()},
        "sweep_differences": _as_rows(sweeps(two)),
        "environment_differences": _as_rows(environments(two)),
        "speedups": [
            {
                "configuration": m.point.label,
                "method": m.point.method,
                "knobs": dict(m.point.knobs),
                "a": _known_document(m.a),
                "b": _known_document(m.b),
                "change": words.factor(m.change),
                "beyond_noise": m.beyond_noise,
            }
            for m in moved(two)
        ],
        "baseline_tokens_per_s": [
            {"cell": each.cell.label, "a": list(each.a), "b": list(each.b)} for each in baselines(two)
        ],
    }


def _known_document(known: Known) -> dict[str, object]:
    low, high = (known.effect.low, known.effect.high) if known.effect is not None else (None, None)
    return {
        "speedup": words.factor(known.log_ratio),
        "low": words.factor(low),
        "high": words.factor(high),
        "confirmed": known.confirmed,
    }


def _as_rows(table: Table) -> list[dict[str, str]]:
    return [{"what": name.text, "a": a.text, "b": b.text} for name, a, b in table.rows]
