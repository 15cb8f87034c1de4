"""Where the time of a step goes: drafting, verifying, or the host; and from which load on it is not free."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.costmodel.drafting import measured_drafting
from analysis.costmodel.model import CostModel
from analysis.summary import requested_concurrency
from results.records import Cell, Point

FREE = 1.25  # plain steps: verifying a whole draft for less than this is as good as free


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Shares of one step of a Point under one load, in all 1."""

    load: Cell
    draft: float
    verify: float
    host: float
    verify_steps: float  # what verification costs, in steps of plain decoding
    separable: bool  # False: draft and verify always grew together, so only their sum is known

    @property
    def streams(self) -> int | None:
        """Requests in flight; None in an open loop."""
        return requested_concurrency(self.load)


def explain(model: CostModel, point: Point) -> list[Breakdown]:
    """One Breakdown per load, fewest streams first; [] where the model is silent on the method."""
    check = model.checks.get(point.method)
    mine = [o for o in model.observed if o.key == point.key]
    if check is None or not check.speaks or not mine:
        return []
    found = [_breakdown(model, load, point) for load in dict.fromkeys(o.load for o in mine)]
    return sorted(found, key=lambda b: b.streams or 0)


def _breakdown(model: CostModel, load: Cell, point: Point) -> Breakdown:
    mine = [o for o in model.observed if o.key == point.key and o.load == load]
    parts = model.costs[load].parts(point.method, [o.shape for o in mine], measured_drafting(mine))
    draft, verify, host = (float(np.mean(part)) for part in parts)
    whole = draft + verify + host
    separable = model.costs[load].separable
    return Breakdown(load, draft / whole, verify / whole, host / whole, verify, separable)


def sentence(breakdowns: Sequence[Breakdown]) -> str:
    """E.g. "Draft 18 %, verify 74 %, host 8 % of a step. At 16 streams verification stops being free ..."."""
    if not breakdowns:
        return ""
    first = breakdowns[0]
    parts = (
        f"draft {first.draft:.0%}, verify {first.verify:.0%}"
        if first.separable
        else f"draft and verify {first.draft + first.verify:.0%}"
    )
    at = f" at {_streams(first)}" if first.streams else ""
    said = f"{parts[0].upper()}{parts[1:]}, host {first.host:.0%} of a step{at}."
    return f"{said} {_turn(breakdowns)}".strip()


def _turn(breakdowns: Sequence[Breakdown]) -> str:
    """Where verification stops being free."""
    if not all(b.separable for b in breakdowns):
        return ""
    costly = next((b for b in breakdowns if b.verify_steps > FREE), None)
    if costly is None:
        return "Verification is all but free: it costs no more than a plain step." if breakdowns else ""
    if costly is breakdowns[0]:
        return f"Verifying the drafts costs as much as {costly.verify_steps:.1f} plain steps."
    before = breakdowns[breakdowns.index(costly) - 1]
    return (
        f"At {_streams(costly)} verification stops being free: {costly.verify_steps:.1f} plain steps,"
        f" {before.verify_steps:.1f} at {_streams(before)}."
    )


def _streams(breakdown: Breakdown) -> str:
    if breakdown.streams is None:
        return breakdown.load.pace
    return "1 stream" if breakdown.streams == 1 else f"{breakdown.streams} streams"
