"""Before a Lane measures two arms at once, the Baseline runs on both of its sets of hardware.

What that says is decided by `analysis.duet`. Sets that are biased, or too noisy to tell, are not used at
once: the arms of a Block run one after the other on set 0 then. `duet.json` keeps what was seen.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.duet import Sets, check_sets, said_of, said_of_effect, set_effect, set_ratio
from results.records import Block, Phase, Point
from results.sharing import Sharing
from results.store import RunFolder
from sweeps.sweep import Sweep

if TYPE_CHECKING:  # whose Lanes know of this module
    from sweeps.blocks import Lane

DUET_FILE = "duet.json"
AGAIN = "on the other set"  # the name of the Baseline where it is compared with itself


def again(baseline: Point) -> Point:
    """The Baseline as the second arm of a Block that compares the sets."""
    return Point(baseline.method, baseline.knobs, name=" ".join(filter(None, (baseline.name, AGAIN))))


def is_check(points: Sequence[Point], baseline: Point) -> bool:
    """Whether a Block compares the sets."""
    return [p.key for p in points] == [again(baseline).key]


def earlier_ratios(folder: RunFolder) -> list[float]:
    """What an earlier start saw on this machine."""
    return list(_told(folder, "").get("log_ratios", []))


def ratio_of(block: Block, sweep: Sweep) -> float | None:
    """The set ratio that counts for the check."""
    return set_ratio(block, sweep.objective, sweep.weights.to_record())


def are_equal(ratios: Sequence[float], sweep: Sweep) -> bool:
    """Whether both sets may be used at once."""
    return check_sets(ratios, margin_of(sweep))[0] is Sets.EQUAL


def margin_of(sweep: Sweep) -> float:
    return math.log1p(sweep.confirm.same_margin)


def with_sets_checked(
    lane: "Lane",
    sweep: Sweep,
    folder: RunFolder,
    sharing: Sharing,
    note: Callable[[str], None],
    go_on: Callable[[], bool],
) -> "Lane":
    """The Lane of a run, which compares its sets first if the sweep is of duets."""
    return DuetLane(lane, sweep, folder, sharing, note, go_on) if sweep.pairing == "duet" else lane


def conclusions(folder: RunFolder) -> list[str]:
    """What was concluded of the sets of each machine so far, in sentences."""
    return [
        ": ".join(filter(None, (lane["node"], lane["conclusion"])))
        for lane in _lanes(folder)
        if lane["conclusion"]
    ]


def biases(blocks: Sequence[Block], sweep: Sweep) -> list[str]:
    """What the duets of a run, machine by machine, show of sets that are not alike, in sentences."""
    of_machine = defaultdict(list)
    for block in blocks:
        of_machine[block.node, block.gpus].append(block)
    weights = sweep.weights.to_record()
    found = {place: set_effect(own, sweep.objective, weights) for place, own in of_machine.items()}
    return [
        ": ".join(filter(None, (node, said_of_effect(effect))))
        for (node, _), effect in found.items()
        if effect is not None and effect.signs_are_certain
    ]


class DuetLane:
    """A Lane that compares its two sets before its first Block. The Lane itself draws the same conclusion."""

    def __init__(
        self,
        lane: "Lane",
        sweep: Sweep,
        folder: RunFolder,
        sharing: Sharing,
        note: Callable[[str], None],
        go_on: Callable[[], bool],
    ) -> None:
        self._lane, self._sweep, self._folder = lane, sweep, folder
        self._sharing, self._note, self._go_on = sharing, note, go_on
        # Of an earlier start; what a node of a cluster is given may be another part of it every time.
        self._ratios = earlier_ratios(folder) if not sweep.is_for_cluster else []
        self._is_over = False

    def measure(
        self, number: int, points: Sequence[Point], phase: Phase, baseline: Point, *, alone: bool
    ) -> Block:
        if not self._is_over:
            self._compare_sets(baseline)
        return self._lane.measure(number, points, phase, baseline, alone=alone)

    def _compare_sets(self, baseline: Point) -> None:
        """Measure the Baseline on both sets until that says something; a spoiled Block is run again."""
        spoiled, last, node = 0, "", ""
        while self._state() is Sets.OPEN and spoiled <= self._sweep.patience.reruns:
            if not self._go_on():
                return  # the next start goes on with it
            block = self._lane.measure(
                self._sharing.next_block(), [again(baseline)], Phase.SEARCH, baseline, alone=False
            )
            ratio, node = ratio_of(block, self._sweep), block.node
            if ratio is None:
                spoiled, last = spoiled + 1, _why(block)
            else:
                spoiled, self._ratios = 0, [*self._ratios, ratio]
                self._tell(node, "")
        self._is_over = True
        self._tell(node, self._sentence(last))
        self._folder.add_note(self._sentence(last))
        self._note(self._sentence(last))

    def _state(self) -> Sets:
        return check_sets(self._ratios, margin_of(self._sweep))[0]

    def _sentence(self, last_fault: str) -> str:
        state, effect = check_sets(self._ratios, margin_of(self._sweep))
        seen = said_of(effect, margin_of(self._sweep))
        if state is Sets.EQUAL:
            return f"duet: two servers are measured at once; {seen}"
        because = {Sets.BIASED: "the sets are biased", Sets.NOISY: "the sets are too noisy"}
        why = because.get(state, f"they could not be compared ({last_fault})")
        return f"duet: not used, the servers of a Block run one after the other: {why}; {seen}"

    def _tell(self, node: str, conclusion: str) -> None:
        state, effect = check_sets(self._ratios, margin_of(self._sweep))
        told = {
            "node": node,
            "state": state,
            "log_ratios": self._ratios,  # log(set 0 / set 1) of each Block
            "effect": effect,
            "margin": margin_of(self._sweep),
            "conclusion": conclusion,
        }

        def with_ours(known: Mapping[str, Any]) -> object:
            return {"lanes": [*(lane for lane in known.get("lanes", []) if lane["node"] != node), told]}

        self._folder.update_json(DUET_FILE, with_ours)


def _lanes(folder: RunFolder) -> list[Mapping[str, Any]]:
    return list(folder.read_json(DUET_FILE).get("lanes", []))


def _told(folder: RunFolder, node: str) -> Mapping[str, Any]:
    return next((lane for lane in _lanes(folder) if lane["node"] == node), {})


def _why(block: Block) -> str:
    """What spoiled a Block of the check."""
    failures = [block.invalid, *(arm.failure for arm in block.arms)]
    return next((f.evidence for f in failures if f is not None), "no figure in every Cell")
