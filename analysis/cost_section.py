"""What it costs: the winner's step taken apart, and how far the cost model can be trusted."""

from typing import TYPE_CHECKING

from analysis import findings, words
from analysis.noise import block_noise
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table
from analysis.ties import as_good

if TYPE_CHECKING:
    from analysis.costmodel.model import Check, CostModel

TITLE = "What it costs"
MOST_TIES = 5  # that are named


def both(report: ReportInput) -> tuple[Table, Table]:
    """The parts of a step, and the check of the model they come from."""
    model = _model(report)
    return _costs(report, model), _predictions(model)


def _costs(report: ReportInput, model: "CostModel") -> Table:
    """The subject's step by load; without rows where the model is silent."""
    from analysis.costmodel.explain import explain, sentence

    point = findings.subject(report)
    found = explain(model, point) if point is not None else []
    rows = tuple(
        (
            Entry(b.load.pace),
            _part(b.draft) if b.separable else Entry("with verify"),
            _part(b.verify if b.separable else b.draft + b.verify),
            _part(b.host),
            Entry(f"{b.verify_steps:.2f}" if b.separable else words.UNKNOWN, b.verify_steps),
        )
        for b in found
    )
    columns = ("Load", "Draft", "Verify", "Host", "Verify, plain steps")
    name = f"{point.label}: " if point is not None and rows else ""
    title = "One step of the winner, taken apart" if report.winner else "One step, taken apart"
    numeric = frozenset({"Verify, plain steps"})
    return Table("costs-parts", title, columns, rows, numeric, name + sentence(found))


def _predictions(model: "CostModel") -> Table:
    """The held-out error of the cost model for each method, and whether it speaks."""
    from analysis.costmodel.model import MAX_ERROR

    rows = tuple(_check_row(c) for c in model.checks.values())
    columns = ("Method", "Points", "Held-out error", "All alike", "Cost model")
    note = (
        "Every Point measured is predicted from others, by the acceptance and the step times of those."
        f" Median error; the model speaks below {MAX_ERROR:.0%}, and only where it is better than taking"
        " all Points of a method as alike."
    )
    return Table("predictions", "Can the cost model be trusted?", columns, rows, frozenset({"Points"}), note)


def prediction_line(report: ReportInput) -> str:
    """One line for a terminal; "" where nothing was measured that a model could be made of."""
    checks = list(_model(report).checks.values())
    speaking = [f"{c.method} {c.error:.1%} over {c.points} Points" for c in checks if c.speaks]
    silent = [c.method for c in checks if not c.speaks]
    said = f"held-out error {', '.join(speaking)}" if speaking else ""
    quiet = f"silent on {', '.join(silent)}" if silent else ""
    return "; ".join(filter(None, [said, quiet]))


def ties_line(report: ReportInput) -> str:
    """The Points that the search cannot tell from the best; "" if it stands alone."""
    best = findings.best_trial(report.trials)
    if best is None or report.comparison is not None:
        return ""
    tied = as_good(best, report.trials, block_noise(report.blocks, report.objective, report.weights))
    if not tied:
        return ""
    named = ", ".join(t.point.label for t in tied[:MOST_TIES])
    more = f" and {len(tied) - MOST_TIES} more" if len(tied) > MOST_TIES else ""
    return f"In the search, within the noise of {best.point.label}: {named}{more}."


def _model(report: ReportInput) -> "CostModel":
    from analysis.costmodel.model import CostModel
    from analysis.costmodel.observations import observe

    return CostModel(observe(report.blocks, report.objective), report.weights)


def _check_row(check: "Check") -> tuple[Entry, ...]:
    return (
        Entry(check.method, code=True),
        Entry(str(check.points), check.points),
        _error(check.error),
        _error(check.plain_error),
        Entry("speaks" if check.speaks else f"silent: {check.why_silent}"),
    )


def _error(error: float | None) -> Entry:
    return Entry(words.UNKNOWN) if error is None else Entry(f"{error:.1%}", error)


def _part(share: float) -> Entry:
    return Entry(words.percent(share), share, share=share)
