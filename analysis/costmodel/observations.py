"""What a search measured, as the cost model needs it: per Point and Cell, relative to the baseline."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from analysis.anchor import every_anchor, nearest
from analysis.block import log_speedup
from results.records import ArmRun, Block, Cell, DraftShape, Measurement, Phase, Point, SpecCounters

# Figures that are a time per token. A prompt's own time is part of all but the second.
TIMES_PER_TOKEN = ("tokens_per_s", "tpot_p50_s", "mean_request_tokens_per_s", "end_to_end_p50_s")
_WITHOUT_PROMPT = "tpot_p50_s"
_LARGEST_PROMPT_SHARE = 0.9


@dataclass(frozen=True)
class Observation:
    """One Point in one Cell. Counts are sums over its windows; ratios are paired within a Block."""

    point: Point
    shape: DraftShape
    cell: Cell
    log_speedup: float
    prompt_share: float  # of the baseline's time per token: what no draft makes shorter
    steps: float  # of the target model
    counts: SpecCounters

    @cached_property
    def key(self) -> str:
        return self.point.key

    @cached_property
    def load(self) -> Cell:
        """Everything of the Cell that decides what a step costs: not the class of its prompts."""
        return replace(self.cell, workload_class="")

    @property
    def length(self) -> float:
        """Tokens emitted per step."""
        return 1.0 + self.counts.accepted_tokens / self.steps

    @cached_property
    def step_cost(self) -> float:
        """Time of one step, in steps of the baseline."""
        time_per_token = math.exp(-self.log_speedup)
        return self.length * (time_per_token - self.prompt_share) / (1.0 - self.prompt_share)


def observe(blocks: Sequence[Block], objective: str) -> list[Observation]:
    """One Observation per Point and Cell of the search; [] for an objective that is no time per token.

    The confirmation has other prompts, and so another acceptance. Windows without counters, and what
    was stopped early, say nothing here.
    """
    if objective not in TIMES_PER_TOKEN:
        return []
    found: dict[tuple[str, Cell], list[Observation]] = {}
    anchors = every_anchor(blocks)
    for block in blocks:
        baseline = block.baseline or nearest(anchors, block)
        if block.phase is Phase.SEARCH and block.invalid is None and baseline is not None:
            for arm in block.candidates:
                for seen in _of_arm(baseline, arm, objective):
                    found.setdefault((seen.key, seen.cell), []).append(seen)
    return [_merged(repeats) for repeats in found.values()]


def _of_arm(baseline: ArmRun, arm: ArmRun, objective: str) -> list[Observation]:
    if arm.failure is not None or arm.stopped_early or arm.shape is None:
        return []
    ratios = log_speedup(baseline, arm, objective)
    point = arm.in_effect or arm.point
    found = []
    for window in arm.measurements:
        theirs, counts = baseline.cell(window.cell), window.acceptance.counters
        ratio = ratios.get(window.cell.label)
        if theirs is None or counts is None or ratio is None:
            continue
        steps = float(max(sum(window.tokens_by_prompt.values()) - counts.accepted_tokens, counts.drafts, 1))
        share = 0.0 if objective == _WITHOUT_PROMPT else _prompt_share(theirs)
        found.append(Observation(point, arm.shape, window.cell, ratio, share, steps, counts))
    return [o for o in found if o.step_cost > 0]


def _prompt_share(baseline: Measurement) -> float:
    first, whole = baseline.ttft_s, baseline.end_to_end_s
    if first is None or whole is None or whole.p50 <= 0:
        return 0.0
    return min(first.p50 / whole.p50, _LARGEST_PROMPT_SHARE)


def _merged(repeats: Sequence[Observation]) -> Observation:
    counts = [o.counts for o in repeats]
    return replace(
        repeats[0],
        log_speedup=sum(o.log_speedup for o in repeats) / len(repeats),
        steps=sum(o.steps for o in repeats),
        counts=sum(counts[1:], counts[0]),
    )
