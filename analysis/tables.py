"""The tables of a report, as text with order and interval: the page and the Markdown both draw these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis import findings, noise, searched, words
from analysis.report_input import ReportInput
from analysis.settings import changed
from analysis.shrinkage import Shrinkage, expected
from results.records import ArmRun, Effect, KnobValue, Quantiles, Trial, Verdict

_QUANTILES = ("p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class Entry:
    """One cell of a table. `order` sorts it; `low <= middle <= high` are factors to draw as a bar."""

    text: str
    order: float | None = None
    interval: tuple[float, float, float] | None = None
    share: float | None = None  # of a whole, [0, 1], to draw as a bar
    code: bool = False  # a name of the machine's, set in a fixed-width face


@dataclass(frozen=True, slots=True)
class Table:
    id: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    numeric: frozenset[str] = frozenset()  # columns aligned as numbers
    note: str = ""


def finalists(report: ReportInput) -> Table:
    if report.comparison is not None:
        return _verdict_on_b(report)
    shrunken = searched.shrinkage_of(report)
    rows = [_finalist_row(report, v, shrunken) for v in _fastest_first(report.verdicts)]
    return Table(
        "finalists",
        "Confirmed against searched",
        ("Configuration", "Answer", "Confirmed", "Search estimate", "Expected", "Blocks", "Why"),
        tuple(rows),
        frozenset({"Blocks"}),
        " ".join(filter(None, (searched.finalists_note(report), _bar_note(report)))),
    )


def _verdict_on_b(report: ReportInput) -> Table:
    rows = [
        (
            Entry(v.kind.value),
            effect_entry(v.effect),
            number(v.effect.blocks if v.effect else None),
            Entry(" ".join((v.why, *v.warnings))),
        )
        for v in report.verdicts
    ]
    columns = ("Verdict", "Speed-up", "Blocks", "Why")
    return Table("verdict", "B against A", columns, tuple(rows), frozenset({"Blocks"}), _bar_note(report))


def _bar_note(report: ReportInput) -> str:
    return f"In the bars, the thin mark is {report.reference}; grey means that the sign is not certain."


def _fastest_first(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return sorted(verdicts, key=lambda v: v.effect.log_ratio if v.effect else float("-inf"), reverse=True)


def _finalist_row(report: ReportInput, verdict: Verdict, shrunken: Shrinkage | None) -> tuple[Entry, ...]:
    return (
        Entry(verdict.point.label, code=True),
        Entry(verdict.kind.value),
        effect_entry(verdict.effect),
        Entry(words.times(findings.search_estimate(report, verdict.point))),
        Entry(words.times(searched.expected_of(report, verdict.point, shrunken))),
        number(verdict.effect.blocks if verdict.effect else None),
        Entry(" ".join((verdict.why, *verdict.warnings))),
    )


def classes(report: ReportInput) -> Table:
    judged = _fastest_first(report.verdicts)
    names = dict.fromkeys(name for v in judged for name in v.by_class)
    rows = [(Entry(name), *(effect_entry(v.by_class.get(name)) for v in judged)) for name in names]
    columns = ("Class", *(v.point.label for v in judged))
    title = "Speed-up per class" if report.comparison else "Confirmed speed-up per class"
    return Table("classes", title, columns, tuple(rows), note=_bar_note(report))


def latency(report: ReportInput) -> Table:
    point, name = findings.subject(report), findings.subject_name(report)
    alone = report.comparison is not None and len(report.comparison.sides) == 1
    found = findings.latencies(point, report.blocks) if point is not None and not alone else []
    rows = [
        (Entry(f.cell.label), Entry(f.metric), *_quantile_pairs(f.baseline, f.candidate))
        for f in found
        if f.baseline is not None or f.candidate is not None
    ]
    columns = ("Cell", "Metric", *_QUANTILES)
    reference = "A" if report.comparison else "Baseline"
    note = f"{reference} → {name} ({point.label}), medians over Blocks." if point is not None else ""
    note = f"{note} {findings.place_note(point, report.blocks)}".strip()
    return Table("latency", "Latency", columns, tuple(rows), frozenset(_QUANTILES), note)


def _quantile_pairs(baseline: Quantiles | None, candidate: Quantiles | None) -> list[Entry]:
    pairs = [(_quantile(baseline, name), _quantile(candidate, name)) for name in _QUANTILES]
    return [Entry(f"{words.short_time(b)} → {words.short_time(c)}", c) for b, c in pairs]


def _quantile(quantiles: Quantiles | None, name: str) -> float | None:
    return float(getattr(quantiles, name)) if quantiles is not None else None


def outputs(report: ReportInput) -> Table:
    rows = [_output_row(v.point.label, v.identical_share, v.control_identical_share) for v in report.verdicts]
    if not rows and (point := findings.subject(report)) is not None:
        ours = findings.pooled_outputs(b.outputs.get(point.key) for b in findings.valid(report.blocks))
        control = findings.pooled_outputs(b.control for b in findings.valid(report.blocks))
        shares = [c.identical_share if c else None for c in (ours, control)]
        rows = [_output_row(point.label, *shares)] if any(s is not None for s in shares) else []
    itself = report.reference.removeprefix("the ")
    columns = ("Configuration", f"Identical to {report.reference}", f"Control: {itself} to itself")
    note = (
        "" if report.greedy else "Outputs are sampled (temperature above 0): that they differ says nothing."
    )
    return Table("outputs", "Identical outputs", columns, tuple(rows), note=note)


def _output_row(label: str, share: float | None, control: float | None) -> tuple[Entry, ...]:
    return (Entry(label, code=True), _share(share), _share(control))


def trials(report: ReportInput) -> Table:
    ranked = sorted(report.trials, key=lambda t: (-_rank(t), t.number))
    known = noise.block_noise(report.blocks, report.objective, report.weights)
    shrunken = searched.shrinkage_of(report)
    return Table(
        "trials",
        "All trials",
        (
            "Trial",
            "Configuration",
            "Speed-up",
            "Expected",
            "Acceptance length",
            "State",
            "Proposed by",
            "Blocks",
        ),
        tuple(_trial_row(report, t, noise.trial_effect(t, known), expected(t, shrunken)) for t in ranked),
        frozenset({"Trial", "Expected", "Acceptance length", "Blocks"}),
        f"Search estimates of one Block each, fastest first, {noise.search_intervals(known)}. "
        f"{searched.how_compared(report)} {_bar_note(report)}",
    )


def _rank(trial: Trial) -> float:
    return float("-inf") if trial.log_speedup is None or trial.failure else trial.log_speedup


def _trial_row(
    report: ReportInput, trial: Trial, effect: Effect | None, confirmed: float | None
) -> tuple[Entry, ...]:
    """`confirmed`: the log speed-up to expect of its confirmation."""
    length = findings.pooled_acceptance(trial.launched, report.blocks).length
    no_number = trial.failure is not None or words.factor(trial.log_speedup) is None
    speedup = effect_entry(effect) if effect is not None else _factor(trial.log_speedup)
    return (
        number(trial.number),
        Entry(trial.label, code=True),
        Entry("no number") if no_number else speedup,
        Entry("" if confirmed is None else words.times(confirmed), words.factor(confirmed)),
        Entry("" if length is None else f"{length:.2f}", length),
        Entry(findings.reason_of(trial) if no_number else words.STATES[trial.state]),
        Entry(trial.source),
        number(len(trial.blocks)),
    )


def acceptance(report: ReportInput) -> Table:
    """What became of the drafts of every measured Point, with where the counts come from."""
    rows = []
    for label, point in findings.shown_points(report).items():
        found = findings.pooled_acceptance(point, report.blocks)
        rows.append(
            (
                Entry(label, code=True),
                Entry("" if found.length is None else f"{found.length:.2f}", found.length),
                Entry(" ".join(f"{share:.2f}" for share in found.per_position)),
                Entry("" if found.rate is None else words.percent(found.rate), found.rate),
                number(found.counters.drafts if found.counters else None),
                Entry("; ".join(filter(None, (found.state.value, found.source, found.note)))),
            )
        )
    columns = ("Configuration", "Length", "Per position", "Accepted / proposed", "Drafts", "Source")
    rows.sort(key=lambda row: -(row[1].order or 0.0))
    note = "Lengths compare between configurations; rates do not: a tree proposes more than it can take."
    return Table(
        "acceptance-counts",
        "Acceptance, counted",
        columns,
        tuple(rows),
        frozenset({"Length", "Drafts"}),
        note,
    )


def settings(report: ReportInput) -> Table:
    """The settings in effect that differ between the baseline and the subject, and what was rewritten."""
    point, name = findings.subject(report), findings.subject_name(report)
    ours = findings.effective(point, report.blocks) if point is not None else None
    block = next((b for b in reversed(report.blocks) if ours in b.arms), None)
    theirs = findings.effective(block.compared_with, report.blocks) if block is not None else None
    columns = ("Setting", "A" if report.comparison else "Baseline", name.capitalize(), "Asked for")
    if ours is None or theirs is None:
        return Table("settings", "Settings in effect", columns, ())
    differing = changed(theirs.effective, ours.effective, ignoring=_untold(report, theirs, ours))
    asked = {r.name: str(r.asked) for r in ours.rewrites}
    rows = [
        (Entry(key, code=True), _setting(before), _setting(after), Entry(asked.get(key, "")))
        for key, (before, after) in differing.items()
    ]
    same = len(ours.effective.keys() | theirs.effective.keys()) - len(differing)
    note = f"Read back from the running servers; {words.count(same, 'other setting')} equal in both."
    return Table("settings", "Settings in effect", columns, tuple(rows), note=note)


def _untold(report: ReportInput, theirs: ArmRun, ours: ArmRun) -> frozenset[str]:
    """Settings that one side alone tells, if one was started here and the other was not."""
    if report.comparison is None or len({side.attached for side in report.comparison.sides}) == 1:
        return frozenset()
    return frozenset(theirs.effective.keys() ^ ours.effective.keys())


def _setting(value: KnobValue | None) -> Entry:
    return Entry("not set" if value is None else str(value), code=True)


def phases(report: ReportInput) -> Table:
    whole = sum(report.phases_s.values())
    rows = [
        (Entry(name), Entry(words.long_time(s), s), _share(s / whole if whole > 0 else None))
        for name, s in sorted(report.phases_s.items(), key=lambda item: -item[1])
    ]
    columns = ("Phase", "Time", "Share of the run")
    note = "All places where Blocks were measured, together." * (whole > report.elapsed_s * 1.05)
    return Table("phases", "Where the time went", columns, tuple(rows), frozenset({"Time"}), note)


def calibration(report: ReportInput) -> Table:
    said = {words.CALIBRATION.get(name, name): v for name, v in report.calibration.items()}
    return _pairs("calibration", "The load client, measured first", said)


def environment(report: ReportInput) -> Table:
    return _pairs("environment", "Environment", report.environment)


def _pairs(id: str, title: str, values: Mapping[str, object]) -> Table:
    rows = tuple((Entry(name), Entry(text, code=True)) for name, text in flat(values))
    return Table(id, title, ("What", "Value"), rows)


def flat(value: object, path: str = "") -> list[tuple[str, str]]:
    """A nested value as (dotted path, text) pairs; lists of plain values stay on one line."""
    if isinstance(value, Mapping):
        return [pair for k, v in value.items() for pair in flat(v, f"{path}.{k}" if path else str(k))]
    if isinstance(value, list | tuple) and any(isinstance(v, Mapping | list | tuple) for v in value):
        return [pair for i, v in enumerate(value) for pair in flat(v, f"{path}.{i}")]
    if isinstance(value, list | tuple):
        return [(path, ", ".join(_plain(v) for v in value))]
    return [(path, words.moment(value) if path.endswith("_at") else _plain(value))]


def _plain(value: object) -> str:
    if value is None:
        return words.UNKNOWN
    if not isinstance(value, float):
        return words.clean(str(value))
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def number(value: int | None) -> Entry:
    return Entry(words.UNKNOWN) if value is None else Entry(str(value), float(value))


def _share(share: float | None) -> Entry:
    return Entry(words.percent(share), share, share=share)


def _factor(log_ratio: float | None) -> Entry:
    ratio = words.factor(log_ratio)
    return Entry(words.times(log_ratio), ratio, None if ratio is None else (ratio, ratio, ratio))


def effect_entry(effect: Effect | None) -> Entry:
    if effect is None:
        return Entry(words.UNKNOWN)
    bounds = tuple(words.factor(v) for v in (effect.low, effect.log_ratio, effect.high))
    low, middle, high = bounds
    drawable = (low, middle, high) if low is not None and middle is not None and high is not None else None
    return Entry(words.times_with_interval(effect), middle, drawable)
