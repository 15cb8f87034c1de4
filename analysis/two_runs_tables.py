"""Two runs side by side, as tables and for other programs."""

from collections.abc import Iterable
from statistics import median
from typing import Any

from analysis import findings, two_runs, words
from analysis.answer import answer
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table, effect_entry
from analysis.two_runs import Difference, Known, TwoRuns


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
        "Time": words.long_time(report.elapsed_s),
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
        for m in two_runs.moved(two)
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


def throughput(two: TwoRuns) -> Table:
    rows = [
        (
            Entry(each.cell.label),
            _spread(each.a),
            _spread(each.b),
            Entry(f"{median(each.b) / median(each.a):.2f}x", median(each.b) / median(each.a)),
        )
        for each in two_runs.baselines(two)
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
    found = two_runs.sweep_differences(two)
    note = "Everything else that was asked for is equal."
    return _difference_table("sweeps", "What differs in the sweep files", found, note)


def environments(two: TwoRuns) -> Table:
    found = two_runs.environment_differences(two)
    note = "Every other part of the fingerprint is equal."
    return _difference_table("environments", "What differs in the environment", found, note)


def _difference_table(id: str, title: str, found: Iterable[Difference], note: str) -> Table:
    rows = [(Entry(name, code=True), Entry(a, code=True), Entry(b, code=True)) for name, a, b in found]
    return Table(id, title, ("What", "A", "B"), tuple(rows), note=note)


def document(two: TwoRuns) -> dict[str, Any]:
    """The same for other programs. Speed-ups are factors; null where there is no number."""
    return {
        "schema": 1,
        "paired": False,
        "sentence": two_runs.sentence(two),
        "cautions": two_runs.cautions(two),
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
            for m in two_runs.moved(two)
        ],
        "baseline_tokens_per_s": [
            {"cell": each.cell.label, "a": list(each.a), "b": list(each.b)}
            for each in two_runs.baselines(two)
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
