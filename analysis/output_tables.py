"""What the texts say: where answers part from the baseline's, how many are right, and one pair to read."""

from collections.abc import Sequence

from analysis import findings, words
from analysis.output import BIN_EDGES, QUANTILES, divergence_chars, divergence_shares
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table
from results.records import Accuracy, OutputCheck

SAMPLED = "Outputs are sampled here (temperature above 0): that they differ says nothing about correctness."
_BINS = (
    "in the first tenth",
    "between a tenth and a quarter",
    "between a quarter and a half",
    "between a half and three quarters",
    "in the last quarter",
)


def divergence(report: ReportInput) -> Table:
    """Where answers first differ, of every configuration beside the control."""
    checks = _checks(report)
    names = [*checks]
    rows = [
        (Entry("identical"), *(_share(c.identical_share) for c in checks.values())),
        *(
            (Entry(f"differ first {name}"), *(_share(_bin(c, i)) for c in checks.values()))
            for i, name in enumerate(_BINS)
        ),
        *(
            (
                Entry(f"first difference, {q} of those that differ"),
                *(_chars(c, q) for c in checks.values()),
            )
            for q in QUANTILES
        ),
    ]
    parted = any(c.first_divergence_chars for c in checks.values())
    note = (
        "Shares of all answers compared, by the place of the first difference in the longer of the two."
        " Rounding parts answers anywhere; a fault parts them early."
    )
    return Table(
        "divergence",
        "Where outputs differ first",
        ("Answers", *names),
        tuple(rows) if parted else (),
        frozenset(names),
        note if report.greedy else f"{SAMPLED} {note}",
    )


def _checks(report: ReportInput) -> dict[str, OutputCheck]:
    """By configuration, the control last."""
    judged = [v for v in report.verdicts if v.outputs is not None and v.outputs.compared]
    found = {v.point.label: v.outputs for v in judged if v.outputs is not None}
    controls = [v.control for v in judged]
    if not judged and (point := findings.subject(report)) is not None:
        blocks = findings.valid(report.blocks)
        ours = findings.pooled_outputs(b.outputs.get(point.key) for b in blocks)
        found = {point.label: ours} if ours is not None else {}
        controls = [findings.pooled_outputs(b.control for b in blocks)]
    control = max((c for c in controls if c is not None), key=lambda c: c.compared, default=None)
    itself = report.reference.removeprefix("the ")
    named = {f"Control: {itself} to itself": control} if control is not None and control.compared else {}
    return {**found, **named} if found else {}


def _bin(check: OutputCheck, index: int) -> float | None:
    shares = divergence_shares(check)
    return None if shares is None else shares[index]


def _share(share: float | None) -> Entry:
    return Entry(words.percent(share), share)


def _chars(check: OutputCheck, quantile: str) -> Entry:
    at = divergence_chars(check).get(quantile)
    return Entry("none" if at is None else words.count(at, "character"), at)


def accuracy(report: ReportInput) -> Table:
    """Right answers of every finalist, where prompts have references."""
    rows = [_accuracy_row(v.point.label, v.accuracy) for v in report.verdicts if v.accuracy is not None]
    columns = (
        "Configuration",
        "Right",
        report.reference.removeprefix("the ").capitalize(),
        "Lost",
        "Gained",
        "p",
    )
    note = (
        "Prompts with a reference, each counted once. Lost: right in the baseline alone. p: the chance of so"
        " many lost if both answered equally well; up to 0.01 the configuration is INVALID_OUTPUT."
    )
    return Table("accuracy", "Right answers", columns, tuple(rows), frozenset(columns[1:]), note)


def _accuracy_row(label: str, found: Accuracy) -> tuple[Entry, ...]:
    shares = [(n, n / found.prompts) for n in (found.right, found.baseline_right)]
    return (
        Entry(label, code=True),
        *(Entry(f"{n} of {found.prompts}", share) for n, share in shares),
        *(Entry(str(n), n) for n in (found.lost, found.gained)),
        Entry(f"{found.p_value:.2g}", found.p_value),
    )


def first_difference(report: ReportInput) -> Table:
    """One pair of answers that differ, around the place where they part."""
    pair = report.difference
    if pair is None:
        return Table("difference", "Read one yourself", ("Whose", "Text"), ())
    rows = (
        (Entry(name), Entry(words.clean(said), code=True))
        for name, said in ((report.reference, pair.baseline), (pair.label, pair.candidate))
    )
    same = words.count(pair.at_chars, "character")
    note = f"The answers to prompt {pair.prompt}, which are the same for {same}."
    return Table(
        "difference", "Read one yourself", ("Whose", "Around the first difference"), tuple(rows), note=note
    )


def figures(check: OutputCheck | None) -> dict[str, object] | None:
    """A comparison of outputs for the JSON document."""
    if check is None or not check.compared:
        return None
    shares = divergence_shares(check)
    bins: Sequence[dict[str, float]] | None = (
        None if shares is None else [{"below": e, "share": s} for e, s in zip(BIN_EDGES, shares, strict=True)]
    )
    return {
        "compared": check.compared,
        "identical": check.identical,
        "first_difference_chars": divergence_chars(check) or None,
        "first_difference_by_share_of_answer": bins,
    }
