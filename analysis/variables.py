"""The environment that servers were given, as a table: what arrived, and what NCCL says of it."""

from collections.abc import Sequence

from analysis import findings
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table
from results.records import Variables

TITLE = "Environment of the servers"
_NOTE = (
    "Arrived: the server's process has this value. Used: NCCL itself says that the environment set it"
    " (asked once for each set of values, before the server was started)."
)


def variables(report: ReportInput) -> Table:
    """A row for every variable that was given to a server of the baseline or of the subject."""
    point = findings.subject(report)
    block = next((b for b in reversed(report.blocks) if point is not None and b.arm(point) is not None), None)
    if point is None or block is None:
        return Table("variables", TITLE, (), ())
    known = [arm.variables if arm is not None else None for arm in (block.baseline, block.arm(point))]
    names = sorted({name for found in known if found is not None for name in _names(found)})
    rows = [(Entry(name, code=True), *(Entry(_words(name, found)) for found in known)) for name in names]
    columns = ("Variable", "Baseline", findings.subject_name(report).capitalize())
    return Table("variables", TITLE, columns, tuple(rows), note=_note(known))


def _note(known: Sequence[Variables | None]) -> str:
    """What the words mean; the version of NCCL, and what could not be found out."""
    found = [v for v in known if v is not None]
    versions = sorted({v.nccl_version for v in found if v.nccl_version})
    notes = dict.fromkeys(v.note for v in found if v.note)
    return " ".join([_NOTE, *(f"NCCL {version}." for version in versions), *(f"{n}." for n in notes)])


def _names(found: Variables) -> set[str]:
    return {*found.given, *(found.seen or ()), *found.by_engine}


def _words(name: str, found: Variables | None) -> str:
    """`LL: arrived, used`."""
    if found is None:
        return ""
    given = found.given.get(name, "") if name in found.given else None
    value = "unset" if name in found.given and given is None else given or (found.seen or {}).get(name, "")
    states = [
        "given by the engine to its workers: " + found.by_engine[name] if name in found.by_engine else "",
        "arrived" if found.seen is not None and name in found.given and name in found.seen else "",
        "used" if name in found.applied else "",
        "replaced by NCCL: " + found.overridden[name] if name in found.overridden else "",
        "not confirmed by NCCL" if name in found.unconfirmed else "",
    ]
    return ": ".join(filter(None, [value or "", ", ".join(filter(None, states))]))
