"""What is known of the highest loads of a run: the question, and the Blocks that answer it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import msgspec

from analysis.capacity import Probe, highest_load, next_load, probe_of
from analysis.limits import LIMITS, bytes_of
from analysis.report_input import HighestLoad
from results.errors import UsageError
from results.records import EQUAL_WEIGHTS, Point, Weights
from results.store import RunFolder
from sweeps.mistakes import nearest
from sweeps.pace import Closed, Pace, Poisson
from sweeps.sweep import Sweep
from sweeps.windows import ROUNDS, Grid

POISSON_S = 10.0  # how long requests go out at one rate
LOADS_FILE = "loads.json"

Kind = Literal["closed", "poisson"]


@dataclass(frozen=True)
class Question:
    """Which loads are tried, and what they must keep."""

    kind: Kind  # closed: requests in flight; poisson: requests per second
    low: float
    high: float
    limits: Mapping[str, float]
    weights: Weights = EQUAL_WEIGHTS  # a Cell of weight 0 does not count here either

    def __post_init__(self) -> None:
        if not self.limits:
            raise UsageError(
                "the highest load within which limits? Name them under `limits` in the sweep file, or here:"
                " --limit ttft_p95_s=0.5"
            )
        for name, limit in self.limits.items():
            if name not in LIMITS:
                raise UsageError(f"--limit: unknown limit {name!r}{nearest(name, LIMITS)}")
            if not 0 < limit < math.inf:
                raise UsageError(f"--limit {name}: {limit:g} is no upper limit")
        whole = float(self.low).is_integer() and float(self.high).is_integer()
        if not 0 < self.low <= self.high < math.inf or (self.kind == "closed" and not whole):
            kind = "whole numbers" if self.kind == "closed" else "rates"
            raise UsageError(f"--low {self.low:g} --high {self.high:g}: {kind} above 0 are needed, low first")

    def next_load(self, probes: Sequence[Probe]) -> float | None:
        """Which to try next; None when the highest is found."""
        return next_load(probes, self.low, self.high, whole=self.kind == "closed")

    def pace(self, load: float, seed: int) -> Pace:
        return Closed(int(load)) if self.kind == "closed" else Poisson(load, seed)

    def grid(self, grid: Grid, load: float) -> Grid:
        """With as many prompts as the load takes."""
        if self.kind == "closed":
            return grid
        return replace(grid, prompts_per_class=max(grid.prompts_per_class, math.ceil(POISSON_S * load)))

    def within(self, grid: Grid) -> "Question":
        """As far up as the prompts go. Raises UsageError if not even the lowest load has enough."""
        fewest = min(len(prompts) for prompts in grid.prompts.values()) / len(grid.contexts)
        most = fewest // ROUNDS if self.kind == "closed" else fewest / POISSON_S
        if most < self.low:
            raise UsageError(
                f"--low {self.low:g}: with {fewest:.0f} prompts of a class the load goes up to {most:.3g}:"
                " name `files` with more prompts in the sweep file"
            )
        return replace(self, high=min(self.high, most))


def question(kind: str, low: float, high: float, given: Sequence[str], sweep: Sweep) -> Question:
    """From the command line; `given` are limits as NAME=VALUE, else those of the sweep count."""
    if kind not in get_args(Kind):
        raise UsageError(f"--pace {kind}: choose closed (requests in flight) or poisson (per second)")
    limits, weights = dict(map(_limit, given)) or sweep.limits, sweep.weights.to_record()
    return Question("closed" if kind == "closed" else "poisson", low, high, limits, weights)


def _limit(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, bytes_of(value) if name.endswith("_bytes") else float(value)
    except ValueError:
        raise UsageError(f"--limit {text}: expected NAME=VALUE, e.g. ttft_p95_s=0.5") from None


def found_loads(folder: RunFolder) -> list[HighestLoad]:
    """What is known by now of the loads that configurations of a run bear."""
    found = []
    for kind in get_args(Kind):
        own = RunFolder(folder.path / f"capacity-{kind}")
        told = own.read_json(LOADS_FILE)
        if told:
            weights = msgspec.convert(told["weights"], Weights, str_keys=True)
            asked = Question(kind, told["low"], told["high"], told["limits"], weights)
            points = {block.compared_with.key: block.compared_with for block in own.blocks()}
            found += [_highest(own, point, asked) for point in points.values()]
    return found


def _highest(own: RunFolder, point: Point, asked: Question) -> HighestLoad:
    probes = probes_of(own, point, asked)
    return highest_load(point, asked.kind, probes, settled=asked.next_load(probes) is None)


def probes_of(own: RunFolder, point: Point, asked: Question) -> list[Probe]:
    """The Blocks of one configuration, judged by the limits asked for now."""
    loads = loads_of(own)
    blocks = [b for b in own.blocks() if b.compared_with == point and str(b.number) in loads]
    probes = [probe_of(block, loads[str(block.number)], asked.limits, asked.weights) for block in blocks]
    return [probe for probe in probes if probe is not None]


def loads_of(own: RunFolder) -> Mapping[str, float]:
    """The load of each Block, by its number."""
    return dict(own.read_json(LOADS_FILE).get("blocks", {}))


def note(own: RunFolder, asked: Question, blocks: Mapping[str, float]) -> None:
    told = {"low": asked.low, "high": asked.high, "limits": asked.limits, "weights": asked.weights}
    own.write_json(LOADS_FILE, {**told, "blocks": blocks})
