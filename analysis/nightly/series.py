"""The figures of one night: series that the gate follows, out of the Blocks of its two arms."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean, median

from analysis.acceptance import over_windows
from analysis.block import log_speedup, mean_log_speedup
from analysis.findings import pooled_outputs, valid, windows
from results.nights import BASELINE, LENGTH, POSITION, SPEED_UP, series_of
from results.records import ArmRun, Block, Cell, Measurement, Point, Weights

MOST_POSITIONS = 8  # of the drafts; the later ones are seldom reached, and each is one more series to judge


def series(
    blocks: Sequence[Block], baseline: Point, winner: Point, objective: str, weights: Weights
) -> dict[str, float]:
    """Every figure that the usable Blocks give, by the name of its series; see results.nights.

    Over all Cells, and for each Cell if there are several. What was not measured is left out.
    """
    usable = [b for b in valid(blocks) if b.baseline is not None and _whole(b.arm(winner))]
    theirs, ours = windows(baseline, usable), windows(winner, usable)
    cells = list(dict.fromkeys(m.cell for m in ours))
    found = {
        SPEED_UP: _speed_up(usable, winner, objective, weights),
        BASELINE: _rate(theirs, cells),
        "winner_tokens_per_s": _rate(ours, cells),
        "identical_share": _identical(usable, winner),
        **dict(_acceptance(ours)),
        **dict(_servers(usable, baseline, winner)),
    }
    for cell in cells if len(cells) > 1 else ():
        found |= dict(_of_cell(cell, usable, winner, objective, theirs, ours))
    return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}


def _whole(run: ArmRun | None) -> bool:
    return run is not None and run.failure is None


def _of_cell(
    cell: Cell,
    blocks: Sequence[Block],
    winner: Point,
    objective: str,
    theirs: Sequence[Measurement],
    ours: Sequence[Measurement],
) -> Iterator[tuple[str, float | None]]:
    def ratio(baseline: ArmRun, candidate: ArmRun) -> float | None:
        return log_speedup(baseline, candidate, objective).get(cell.label)

    yield series_of(SPEED_UP, cell.label), _mean_factor(blocks, winner, ratio)
    yield series_of(BASELINE, cell.label), _rate(theirs, [cell])
    length = over_windows([m for m in ours if m.cell == cell]).length
    yield series_of(LENGTH, cell.label), length


def _speed_up(blocks: Sequence[Block], winner: Point, objective: str, weights: Weights) -> float | None:
    def ratio(baseline: ArmRun, candidate: ArmRun) -> float | None:
        return mean_log_speedup(baseline, candidate, objective, weights)

    return _mean_factor(blocks, winner, ratio)


def _mean_factor(
    blocks: Sequence[Block], winner: Point, ratio: Callable[[ArmRun, ArmRun], float | None]
) -> float | None:
    pairs = [(b.baseline, b.arm(winner)) for b in blocks]
    known = [r for a, b in pairs if a is not None and b is not None and (r := ratio(a, b)) is not None]
    return math.exp(fmean(known)) if known else None


def _rate(measured: Sequence[Measurement], cells: Sequence[Cell]) -> float | None:
    """Tokens per second: the geometric mean over Cells of the mean over Blocks."""
    by_cell = [[m.tokens_per_s for m in measured if m.cell == cell and m.tokens_per_s] for cell in cells]
    if not by_cell or not all(by_cell):
        return None
    return math.exp(fmean(math.log(fmean(rates)) for rates in by_cell))


def _acceptance(ours: Sequence[Measurement]) -> Iterator[tuple[str, float | None]]:
    found = over_windows(ours)
    yield LENGTH, found.length
    for position, share in enumerate(found.per_position[:MOST_POSITIONS], start=1):
        yield f"{POSITION}{position}", share


def _identical(blocks: Sequence[Block], winner: Point) -> float | None:
    check = pooled_outputs(b.outputs.get(winner.key) for b in blocks)
    return check.identical_share if check else None


def _servers(blocks: Sequence[Block], baseline: Point, winner: Point) -> Iterator[tuple[str, float | None]]:
    for name, point in (("baseline", baseline), ("winner", winner)):
        runs = [run for b in blocks if (run := b.arm(point)) is not None]
        peaks = [p for run in runs if (p := _memory_bytes(run)) is not None]
        yield f"{name}_start_s", median(run.start_s for run in runs) if runs else None
        yield f"{name}_memory_bytes", max(peaks) if peaks else None


def _memory_bytes(run: ArmRun) -> float | None:
    """Peak of one launch: of its GPUs where there are any, else of the host."""
    gpus = [sum(g.memory_bytes or 0 for g in m.telemetry.gpus) for m in run.measurements]
    host = [m.telemetry.server_memory_bytes or 0 for m in run.measurements]
    return max(gpus, default=0) or max(host, default=0) or None


def settings(blocks: Sequence[Block], arms: Mapping[str, Point]) -> dict[str, str]:
    """Settings read back, as "ARM NAME".

    Without those that differ between launches of one arm (a port, room for tokens), and without the
    engine's build, which is a version: an upgrade is judged, not passed over as another configuration.
    """
    found: dict[str, str] = {}
    for name, point in arms.items():
        read = [run.effective for b in valid(blocks) if (run := b.arm(point)) is not None and run.effective]
        for key, value in read[0].items() if read else ():
            if key != "build" and all(other.get(key) == value for other in read):
                found[f"{name} {key}"] = str(value)
    return found
