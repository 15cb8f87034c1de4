"""The highest load that a server bears within the limits: which load to try next, and what came out."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from analysis.limits import limit_ratios, not_kept
from analysis.report_input import HighestLoad, ReportInput
from analysis.tables import Entry, Table
from results.reasons import MACHINE_FAULTS, Reason
from results.records import EQUAL_WEIGHTS, Block, Failure, Point, Weights

BLOCKS_AT_THE_TOP = 2  # the highest load is kept in so many Blocks: one may be luck
CLOSE_ENOUGH = 1.1  # between a rate that is kept and one that is not


@dataclass(frozen=True, slots=True)
class Probe:
    """One Block at one load."""

    load: float  # requests in flight, or requests per second
    broken: str  # the limit that it broke, or how the server failed; "" = all limits kept
    tokens_per_s: float | None = None  # mean over the Cells


def probe_of(
    block: Block, load: float, limits: Mapping[str, float], weights: Weights = EQUAL_WEIGHTS
) -> Probe | None:
    """What a Block of one server says; None if the machine spoiled it."""
    run, failure = block.baseline, block.invalid
    if failure is not None:
        return None if failure.reason in MACHINE_FAULTS else Probe(load, _shown(failure))
    if run is None:
        return None
    full = next((m for m in run.measurements if m.capacity_limited), None)
    if full is not None:  # the server let requests wait: what is left of it says nothing of this load
        return Probe(load, f"{Reason.CAPACITY_LIMITED}: {full.cell.label}: {full.capacity_limited}")
    speeds = [m.tokens_per_s for m in run.measurements if m.tokens_per_s is not None]
    return Probe(
        load, not_kept(limit_ratios(run, limits, weights), limits), fmean(speeds) if speeds else None
    )


def _shown(failure: Failure) -> str:
    return f"{failure.reason}: {failure.evidence}"


def next_load(probes: Sequence[Probe], low: float, high: float, *, whole: bool) -> float | None:
    """The load to try next, None when the highest is found: up by doubling, then by bisection.

    A load counts as borne while no Block there broke a limit, and the highest once BLOCKS_AT_THE_TOP say
    so. `whole` numbers are requests in flight; rates are halved until within CLOSE_ENOUGH.
    """
    if not probes:
        return low
    kept, broken = _borders(probes)
    if kept is None:  # not even the lowest that was tried
        return low if broken is not None and low < broken else None
    further = _between(kept, broken, whole) if broken is not None else (min(2 * kept, high))
    if further is not None and further > kept:
        return further
    blocks = sum(probe.load == kept for probe in probes)
    return kept if blocks < BLOCKS_AT_THE_TOP else None


def _between(kept: float, broken: float, whole: bool) -> float | None:
    if whole:
        return (kept + broken) // 2 if broken - kept > 1 else None
    return math.sqrt(kept * broken) if broken / kept > CLOSE_ENOUGH else None


def _borders(probes: Iterable[Probe]) -> tuple[float | None, float | None]:
    """(highest load below every broken one, lowest broken one)."""
    probes = [*probes]
    broken = min((p.load for p in probes if p.broken), default=None)
    kept = max((p.load for p in probes if broken is None or p.load < broken), default=None)
    return kept, broken


def highest_load(point: Point, kind: str, probes: Sequence[Probe], *, settled: bool) -> HighestLoad:
    """What the probes of one configuration say."""
    kept, broken = _borders(probes)
    speeds = [p.tokens_per_s for p in probes if p.load == kept and p.tokens_per_s is not None]
    why = next((p.broken for p in probes if p.load == broken and p.broken), "")
    speed = fmean(speeds) if speeds else None
    return HighestLoad(point, kind, kept, broken, why, speed, len(probes), settled)


def sentence(found: HighestLoad) -> str:
    """One configuration's answer for people."""
    name = "The baseline" if found.point.is_baseline else found.point.label
    if found.kept is None and found.broken is None:
        return f"{name}: nothing measured yet."
    if found.kept is None:
        return f"{name}: not even {_load(found, found.broken)} is within the limits ({found.why})."
    end = "more was not tried" if found.broken is None else f"at {_load(found, found.broken)} {found.why}"
    return f"{name}: {_load(found, found.kept)}{'' if found.settled else ' so far'} within the limits; {end}."


def _load(found: HighestLoad, load: float | None) -> str:
    if load is None:
        return ""
    return f"{load:.3g} {'in flight' if found.kind == 'closed' else 'requests/s'}"


def highest_loads(report: ReportInput) -> Table:
    """What each configuration bears within the limits."""
    rows = [
        (
            Entry(f"{found.point.label}{'' if found.settled else ' (not finished)'}"),
            Entry(_load(found, found.kept) or "none tried", found.kept),
            Entry(f"{found.tokens_per_s:.1f}" if found.tokens_per_s else "", found.tokens_per_s),
            Entry(_load(found, found.broken) or "none tried", found.broken),
            Entry(found.why),
            Entry(str(found.blocks), found.blocks),
        )
        for found in report.highest_loads
    ]
    return Table(
        "highest-load",
        "Highest load within the limits",
        (
            "Configuration",
            "Highest load",
            "Tokens/s there",
            "Too much",
            "What breaks there",
            "Blocks",
        ),
        tuple(rows),
        frozenset({"Highest load", "Tokens/s there", "Too much", "Blocks"}),
        f"The highest load was within the limits in {BLOCKS_AT_THE_TOP} Blocks, each on a fresh server. Loads"
        " of two configurations are not paired measurements.",
    )
