"""What one step costs, in steps of plain decoding: fitted per load to what was measured.

    step = 1 + host * rounds + draft * passes + verify * draft tokens

All per step of the target model, all coefficients >= 0. Verifying a token costs the same whoever
drafted it, so that one coefficient is shared by all methods; the others are each method's own. A
network drafts in every round, whatever comes of it; a look-up costs something only where it finds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.costmodel.drafting import Drafting, measured_drafting
from analysis.costmodel.observations import Observation
from analysis.costmodel.places import Array
from results.records import DraftShape


@dataclass(frozen=True, slots=True)
class StepCost:
    """Costs under one load, in steps of the baseline."""

    host: Mapping[str, float]  # method -> per round of drafting
    draft: Mapping[str, float]  # method -> per pass of its drafter
    verify: float  # per draft token
    separable: bool  # whether draft and verify could be told apart

    def parts(
        self, method: str, shapes: Sequence[DraftShape], drafting: Drafting
    ) -> tuple[Array, Array, Array]:
        """(draft, verify, host) per step; verify has the plain step in it."""
        draft = self.draft.get(method, 0.0) * passes(shapes, drafting)
        host = self.host.get(method, 0.0) * _rounds(shapes, drafting)
        return draft, 1.0 + self.verify * drafting.draft_tokens, host

    def of(self, method: str, shapes: Sequence[DraftShape], drafting: Drafting) -> Array:
        """Cost of one step."""
        draft, verify, host = self.parts(method, shapes, drafting)
        total: Array = draft + verify + host
        return total


def passes(shapes: Sequence[DraftShape], drafting: Drafting) -> Array:
    """Passes of the drafter per step; a chain that stops early has made one more than it has tokens."""
    most = np.array([s.passes for s in shapes], dtype=float)
    may_stop = np.array([s.topk == 1 and s.passes == s.draft_tokens for s in shapes])
    found: Array = np.where(may_stop, np.minimum(most, drafting.draft_tokens + 1.0), most)
    return found


def _rounds(shapes: Sequence[DraftShape], drafting: Drafting) -> Array:
    """Rounds of drafting per step."""
    found: Array = np.where([s.passes > 0 for s in shapes], 1.0, drafting.drafts)
    return found


def fit_step_cost(observed: Sequence[Observation]) -> StepCost:
    """Least squares with weights, so that a slow step may be off by as large a share as a quick one."""
    from scipy.optimize import nnls

    methods = list(dict.fromkeys(o.point.method for o in observed))
    drafting = measured_drafting(observed)
    own = np.array([[float(o.point.method == m) for m in methods] for o in observed])
    shapes = [o.shape for o in observed]
    made, rounds = passes(shapes, drafting), _rounds(shapes, drafting)
    design = np.hstack([own * rounds[:, None], own * made[:, None], drafting.draft_tokens[:, None]])
    cost = np.array([o.step_cost for o in observed])
    found, _ = nnls(design / cost[:, None], (cost - 1.0) / cost)
    count = len(methods)
    return StepCost(
        dict(zip(methods, map(float, found[:count]), strict=True)),
        dict(zip(methods, map(float, found[count:-1]), strict=True)),
        float(found[-1]),
        _is_separable(made, drafting.draft_tokens),
    )


def _is_separable(made: Array, tokens: Array) -> bool:
    """Whether passes and draft tokens did not always grow together."""
    if not np.any(made):
        return True
    return bool(
        np.linalg.matrix_rank(np.column_stack([made, tokens]), tol=0.05 * np.linalg.norm(tokens)) == 2
    )
