"""How much a Point that was not launched would draft and get accepted, from what the measured ones were.

Not the independence formula a^k: acceptance falls from position to position, and by how much was
counted. The first K positions of a longer draft are a draft of K; beyond the longest one measured the
last conditional rate goes on. Points that are near in their other knobs count for more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.costmodel.observations import Observation
from analysis.costmodel.places import Array
from results.records import DraftShape

NEAR = 0.3  # of a knob's range
FEW_DRAFTS = 30.0  # as many count half of what very many do


@dataclass(frozen=True, slots=True)
class Drafting:
    """Per step of the target model, one entry per Point."""

    drafts: Array  # [0, 1]
    draft_tokens: Array
    accepted: Array


def measured_drafting(observed: Sequence[Observation]) -> Drafting:
    return Drafting(
        np.array([o.counts.drafts / o.steps for o in observed]),
        np.array([o.counts.draft_tokens / o.steps for o in observed]),
        np.array([o.counts.accepted_tokens / o.steps for o in observed]),
    )


def expected_drafting(
    observed: Sequence[Observation], shapes: Sequence[DraftShape], apart: Array
) -> Drafting:
    """Of Points with these shapes, from Observations of their method in one Cell.

    `apart`: (shapes, observed) squared distances, see places.
    """
    weights = _weights(observed, apart)
    drafts = np.array([o.counts.drafts for o in observed], dtype=float)
    steps = np.array([o.steps for o in observed])
    tokens = np.array([o.counts.draft_tokens for o in observed], dtype=float)
    fill = tokens / np.maximum(drafts * [o.shape.draft_tokens for o in observed], 1.0)
    accepted = _accepted_by_depth(observed, [s.depth for s in shapes])
    per_step = weights @ (drafts / steps)
    per_draft = (weights @ fill) * np.array([s.draft_tokens for s in shapes], dtype=float)
    taken = np.minimum(np.sum(weights * accepted, axis=1), per_draft)
    return Drafting(per_step, per_step * per_draft, per_step * taken)


def _weights(observed: Sequence[Observation], apart: Array) -> Array:
    drafts = np.array([o.counts.drafts for o in observed], dtype=float)
    evidence = (drafts + 1.0) / (drafts + FEW_DRAFTS)
    nearest = np.min(apart, axis=1, keepdims=True)
    weights = evidence * np.exp(-(apart - nearest) / (2.0 * NEAR**2))
    normed: Array = weights / np.sum(weights, axis=1, keepdims=True)
    return normed


def _accepted_by_depth(observed: Sequence[Observation], depths: Sequence[int]) -> Array:
    """(depths, observed): tokens accepted per draft, had the draft of each been so deep."""
    curves = [_cumulated(o, observed, max(depths)) for o in observed]
    return np.array([[curve[depth] for curve in curves] for depth in depths])


def _cumulated(o: Observation, observed: Sequence[Observation], deepest: int) -> Array:
    """Tokens accepted per draft by depth, from 0 to the deepest."""
    if o.counts.drafts <= 0:
        return np.zeros(deepest + 1)
    survival = _survival(o, observed)
    last = float(survival[-1] / survival[-2]) if len(survival) > 1 and survival[-2] > 0 else 0.5
    beyond = survival[-1] * min(last, 1.0) ** np.arange(1, max(deepest - len(survival), 0) + 1)
    return np.concatenate([[0.0], np.cumsum(np.concatenate([survival, beyond]))])


def _survival(o: Observation, observed: Sequence[Observation]) -> Array:
    """Share of drafts accepted at least up to each position, measured."""
    positions = o.counts.accepted_per_position
    if sum(positions) > 0:
        found: Array = np.array(positions[: o.shape.depth], dtype=float) / o.counts.drafts
        return found
    return _from_totals(o, observed)


def _from_totals(o: Observation, observed: Sequence[Observation]) -> Array:
    """Where positions are not counted: what each further position adds, between drafts of several depths."""
    totals: dict[int, list[float]] = {0: [0.0]}
    for other in observed:
        if other.counts.drafts > 0 and other.shape.depth <= o.shape.depth:
            totals.setdefault(other.shape.depth, []).append(_per_draft(other))
    knots = sorted(totals)
    means = np.maximum.accumulate([float(np.mean(totals[k])) for k in knots])
    curve = np.interp(np.arange(o.shape.depth + 1), knots, means)
    scale = _per_draft(o) / curve[-1] if curve[-1] > 0 else 0.0
    return np.diff(curve) * scale


def _per_draft(o: Observation) -> float:
    return o.counts.accepted_tokens / o.counts.drafts
