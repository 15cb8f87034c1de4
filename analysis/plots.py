"""The figures of a report, each with the sentence that says what one sees in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analysis import findings, noise, svg, words
from analysis.marks import (
    BASELINE_KEY,
    Failures,
    Key,
    Methods,
    Row,
    draw_rows,
    effect_row,
    interval_mark,
    level,
    row_scale,
    row_text,
    rows_height,
    series_key,
    series_marker,
    sign_keys,
    trial_mark,
    whole_numbers,
)
from analysis.report_input import ReportInput
from results.records import Point, Trial, TrialState

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TALL, _FLAT = 300, 250  # user units
_NARROW_LEFT = 12  # no scale at the left
_MOST_LINES = 3
_MOST_KNOBS = 6


@dataclass(frozen=True, slots=True)
class Figure:
    """One inline `<svg>` element with its title, its one-sentence caption and its legend."""

    id: str
    title: str
    caption: str
    svg: str
    keys: tuple[Key, ...] = ()


def figures(report: ReportInput) -> dict[str, Figure]:
    """All figures that this run has enough records for, by id."""
    draw = (convergence, ranking, knobs, classes, confirmation, positions, lengths)
    drawn = [figure(report) for figure in draw]
    return {figure.id: figure for figure in drawn if figure is not None}


def convergence(report: ReportInput) -> Figure | None:
    steps = findings.best_so_far(report.trials)
    if not steps:
        return None
    failures, methods = Failures(report.trials), Methods(report.trials)

    def paint(axes: "Axes") -> None:
        level(axes)
        for trial in findings.measured(report.trials):
            trial_mark(axes, trial.number, trial, methods)
        numbers, best = [n for n, _ in steps], [words.factor(b) or 0.0 for _, b in steps]
        axes.plot(numbers, best, color=svg.INK, lw=1.6, drawstyle="steps-post")
        failures.draw(axes, [t.number for t in failures.trials], failures.trials)
        whole_numbers(axes, "trial, in the order they ran")

    best = steps[-1][1]
    first = next(number for number, value in steps if value == best)
    caption = f"The best search estimate reached {words.times(best)} in trial {first}{_failed(failures)}."
    keys = (Key("best so far", "━", "--ink"), BASELINE_KEY, *methods.keys, *failures.keys)
    return _figure("convergence", "Best so far", caption, paint, _TALL, keys)


def _failed(failures: Failures) -> str:
    lost = len(failures.trials)
    return (
        f"; {words.count(lost, 'trial')} failed and {'has' if lost == 1 else 'have'} no number"
        if lost
        else ""
    )


def ranking(report: ReportInput) -> Figure | None:
    tried = sorted(findings.measured(report.trials), key=lambda t: t.log_speedup or 0.0, reverse=True)
    if not tried:
        return None
    failures, methods = Failures(report.trials), Methods(report.trials)
    known = noise.block_noise(report.blocks, report.objective, report.weights)
    effects = [noise.trial_effect(t, known) for t in tried]

    def paint(axes: "Axes") -> None:
        level(axes)
        for rank, (trial, effect) in enumerate(zip(tried, effects, strict=True), start=1):
            if effect is not None:
                interval_mark(axes, rank, effect, trial, methods)
            trial_mark(axes, rank, trial, methods)
        places = range(len(tried) + 1, len(tried) + 1 + len(failures.trials))
        failures.draw(axes, places, failures.by_reason)
        whole_numbers(axes, "rank")

    keys = (BASELINE_KEY, *methods.keys, *failures.keys)
    caption = _ranking_caption(tried, noise.search_intervals(known))
    return _figure("ranking", "Every trial, fastest first", caption, paint, _TALL, keys)


def _ranking_caption(tried: Sequence[Trial], intervals: str) -> str:
    faster = sum((t.log_speedup or 0.0) > 0 for t in tried)
    total = words.count(len(tried), "measured trial")
    early = any(t.state is TrialState.HOPELESS for t in tried)
    hollow = "; hollow marks were stopped early and have no interval" if early else ""
    return f"{faster} of {total} beat 1.00x in the search, {intervals}{hollow}."


def classes(report: ReportInput) -> Figure | None:
    rows, origin = _class_rows(report)
    if not rows:
        return None
    rows.sort(key=lambda r: r.middle, reverse=True)
    best, worst = rows[0], rows[-1]
    span = f"from {best.middle:.2f}x ({best.label}) to {worst.middle:.2f}x ({worst.label})"
    caption = f"{origin}: {span if len(rows) > 1 else f'{best.middle:.2f}x ({best.label})'}."

    def paint(axes: "Axes") -> None:
        draw_rows(axes, rows)

    known = any(row.low is not None for row in rows)
    reference = _reference_key(report)
    marks = sign_keys(report.objective) if known else (Key("search estimate", "●", "--muted"),)
    keys = (*marks, reference)
    return _figure("class-map", "Speed-up per class", caption, paint, rows_height(rows), keys, _NARROW_LEFT)


def _class_rows(report: ReportInput) -> tuple[list[Row], str]:
    """Confirmed classes where there are any, else the Cells of the best search estimate."""
    verdict, trial = findings.best_verdict(report), findings.best_trial(report.trials)
    if verdict is not None:
        rows = [effect_row(name, effect) for name, effect in verdict.by_class.items()]
        return rows, f"{verdict.point.label}, confirmed"
    if trial is None:
        return [], ""
    ratios = {name: words.factor(log) for name, log in trial.by_cell.items()}
    rows = [Row(name, f"{ratio:.2f}x", ratio) for name, ratio in ratios.items() if ratio is not None]
    return rows, f"{trial.point.label}, a search estimate that is not confirmed"


def confirmation(report: ReportInput) -> Figure | None:
    rows = [
        effect_row(v.point.label, v.effect, words.factor(findings.search_estimate(report, v.point)))
        for v in report.verdicts
        if v.effect is not None
    ]
    if not rows:
        return None
    rows.sort(key=lambda r: r.middle, reverse=True)

    def paint(axes: "Axes") -> None:
        draw_rows(axes, rows)

    signs = sign_keys(report.objective)
    keys: tuple[Key, ...] = (*signs, Key("search estimate", "○", "--muted"), BASELINE_KEY)
    caption = _confirmation_caption(rows[0])
    title = "Confirmed against searched"
    if report.comparison is not None:
        keys = (*signs, _reference_key(report))
        caption, title = f"B is at {rows[0].middle:.2f}x of A.", "B against A"
    return _figure("confirmation", title, caption, paint, rows_height(rows), keys, _NARROW_LEFT)


def _reference_key(report: ReportInput) -> Key:
    return replace(BASELINE_KEY, label=report.reference.removeprefix("the "))


def _confirmation_caption(best: Row) -> str:
    if best.hollow is None:
        return f"The best finalist was confirmed at {best.middle:.2f}x."
    return (
        f"For the best finalist the search saw {best.hollow:.2f}x; measured again with fresh servers "
        f"and unseen prompts it is {best.middle:.2f}x."
    )


def positions(report: ReportInput) -> Figure | None:
    pooled = [(p, findings.pooled_acceptance(p, report.blocks).per_position) for p in _shown_points(report)]
    lines = [(point, shares) for point, shares in pooled if shares]
    if not lines:
        return None

    def paint(axes: "Axes") -> None:
        for i, (_, shares) in enumerate(lines):
            xs, ys = range(1, len(shares) + 1), [100 * s for s in shares]
            axes.plot(xs, ys, series_marker(i), ls="-", color=svg.SERIES[i], ms=5, lw=1.6)
        axes.set_ylim(0, 103)
        axes.grid(axis="y")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
        whole_numbers(axes, "position in the draft")

    point, shares = lines[0]
    end = f" and {words.percent(shares[-1])} all {len(shares)}" if len(shares) > 1 else ""
    caption = f"{words.percent(shares[0])} of the drafts of {point.label} keep their first token{end}."
    keys = tuple(series_key(i, p.label) for i, (p, _) in enumerate(lines))
    return _figure("positions", "Acceptance per position", caption, paint, _FLAT, keys)


def _shown_points(report: ReportInput) -> list[Point]:
    """What the report is about first, then the other finalists."""
    first = findings.subject(report)
    sides = report.comparison.sides if report.comparison is not None else ()
    candidates = [*([first] if first else []), *(v.point for v in report.verdicts), *(s.point for s in sides)]
    return list({p.key: p for p in candidates}.values())[:_MOST_LINES]


def lengths(report: ReportInput) -> Figure | None:
    pooled = [
        (findings.pooled_acceptance(t.launched, report.blocks).length, t)
        for t in findings.measured(report.trials)
    ]
    tried = [(length, trial) for length, trial in pooled if length is not None]
    if len(tried) < 2:
        return None
    methods = Methods(report.trials)

    def paint(axes: "Axes") -> None:
        level(axes)
        for length, trial in tried:
            trial_mark(axes, length, trial, methods)
        axes.set_xlabel("acceptance length, tokens per verification step")

    title, keys = "Acceptance length against speed-up", (BASELINE_KEY, *methods.keys)
    return _figure("lengths", title, _lengths_caption(tried), paint, _FLAT, keys)


def _lengths_caption(tried: Sequence[tuple[float, Trial]]) -> str:
    longest = max(tried, key=lambda pair: pair[0])
    fastest = max(tried, key=lambda pair: pair[1].log_speedup or 0.0)
    if longest[1] is fastest[1]:
        speedup = words.times(fastest[1].log_speedup)
        return f"Here the longest acceptance ({longest[0]:.2f}) is also the fastest trial ({speedup})."
    return (
        f"The longest acceptance ({longest[0]:.2f}) reaches {words.times(longest[1].log_speedup)}, while the "
        f"fastest trial ({words.times(fastest[1].log_speedup)}) has a length of {fastest[0]:.2f}."
    )


def knobs(report: ReportInput) -> Figure | None:
    effects = findings.knob_effects(report.trials)[:_MOST_KNOBS]
    if not effects:
        return None

    def paint(axes: "Axes") -> None:
        for y, effect in enumerate(effects):
            worst, best = words.factor(effect.worst) or 0.0, words.factor(effect.best) or 0.0
            axes.plot((worst, best), (y, y), color=svg.SERIES[0], lw=3, alpha=0.45)
            axes.plot(worst, y, "o", ms=7, mfc=svg.PAPER, mec=svg.SERIES[0], mew=1.4)
            axes.plot(best, y, "o", ms=7, color=svg.SERIES[0])
            row_text(
                axes, y, f"{effect.method} {effect.knob}", f"{effect.worst_value} to {effect.best_value}"
            )
        row_scale(axes, len(effects))

    top = effects[0]
    caption = (
        f"{top.knob} of {top.method} moves most, from {words.times(top.worst)} on average at "
        f"{top.worst_value} to {words.times(top.best)} at {top.best_value}, while other knobs varied too."
    )
    keys = (
        Key("mean at the best value", "●", "--series-0"),
        Key("at the worst value", "○", "--series-0"),
        BASELINE_KEY,
    )
    return _figure("knobs", "Which knobs matter", caption, paint, rows_height(effects), keys, _NARROW_LEFT)


def _figure(
    id: str,
    title: str,
    caption: str,
    paint: Callable[["Axes"], None],
    height: int,
    keys: tuple[Key, ...],
    left: int = svg.LEFT,
) -> Figure:
    caption = words.clean(caption)
    return Figure(id, title, caption, svg.draw(f"figure-{id}", title, caption, paint, height, left), keys)
