"""Runs over a grid of Cells: from the log speed-up of every Point in every Cell to a whole report."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product

from analysis.report_input import ReportInput
from analysis.verdict import answer, conclude
from results.records import (
    BASELINE,
    EQUAL_WEIGHTS,
    ArmRun,
    Block,
    Cell,
    Phase,
    Point,
    Quantiles,
    Trial,
    TrialState,
    Weights,
)
from sweeps.trial import BASELINE_TRIAL
from tests.analysis.build import arm, block, measurement

COPY = Point("ngram-simple", {"size_n": 4, "size_m": 8})
LONG = Point("ngram-simple", {"size_n": 4, "size_m": 32})
GUESS = Point("draft-simple", {"n_max": 5})

WOBBLE = (0.004, -0.004, 0.006, -0.006)  # a Block's noise: by far less than the effects
WAITED = "requests waited in 40.0% of 20 samples, 41.2 running on average"

Logs = Sequence[tuple[Point, Mapping[Cell, float]]]


def cells(
    classes: Collection[str] = ("code_edit", "chat"),
    paces: Collection[str] = ("closed(1)", "closed(4)"),
    contexts: Collection[int | None] = (None, 1024),
) -> list[Cell]:
    """In the order in which a sweep measures them."""
    return [Cell(c, pace, context) for pace, context, c in product(paces, contexts, classes)]


def confirmed(
    logs: Logs,
    *,
    wide: Collection[Cell] = (),
    limited: Collection[tuple[Point, Cell]] = (),
    weights: Weights = EQUAL_WEIGHTS,
    trials: Logs | None = None,
) -> ReportInput:
    """A finished run of four Blocks; in a `wide` Cell nothing is settled."""
    blocks = [_block(number, w, logs, wide, limited) for number, w in enumerate(WOBBLE, start=100)]
    verdicts = conclude(blocks, [point for point, _ in logs], looks=(4,), weights=weights)
    found = answer(verdicts)
    before = searched(trials or logs, weights=weights)
    return replace(
        before,
        blocks=[*before.blocks, *blocks],
        verdicts=verdicts,
        winner=found.winner,
        headline=found.sentence,
        banner=found.banner,
        finished=True,
    )


def searched(logs: Logs, *, weights: Weights = EQUAL_WEIGHTS) -> ReportInput:
    """A run without a confirmation: one Block for each Point."""
    trials, blocks = [BASELINE_TRIAL], list[Block]()
    for number, (point, by_cell) in enumerate(logs, start=1):
        blocks.append(_block(number, 0.0, [(point, by_cell)], (), (), Phase.SEARCH))
        total = sum(weights.of(cell) for cell in by_cell)
        mean = sum(weights.of(cell) * log for cell, log in by_cell.items()) / total
        named = {cell.label: log for cell, log in by_cell.items()}
        trials.append(Trial(number, point, "start", TrialState.MEASURED, mean, named, (number,)))
    return ReportInput(name="grid", trials=trials, blocks=blocks, weights=weights, command="server --fast")


def _block(
    number: int,
    wobble: float,
    logs: Logs,
    wide: Collection[Cell],
    limited: Collection[tuple[Point, Cell]],
    phase: Phase = Phase.CONFIRM,
) -> Block:
    grid = list(dict.fromkeys(c for _, by_cell in logs for c in by_cell))
    arms = [_arm(BASELINE, dict.fromkeys(grid, 0.0), limited)]
    for point, by_cell in logs:
        noisy = {c: log + wobble * (40 if c in wide else 1) for c, log in by_cell.items()}
        arms.append(_arm(point, noisy, limited))
    return block(number, arms=tuple(arms), phase=phase)


def _arm(point: Point, by_cell: Mapping[Cell, float], limited: Collection[tuple[Point, Cell]]) -> ArmRun:
    return arm(
        point,
        *(
            measurement(
                cell,
                80 * math.exp(log),
                tpot_s=Quantiles(math.exp(-log) / 80, 0.02, 0.03),
                prompt_tokens=(cell.context_tokens or 60) + 7.0,
                capacity_limited=WAITED if (point, cell) in limited else "",
            )
            for cell, log in by_cell.items()
        ),
    )


def sample() -> ReportInput:
    """Every state there is in one map, and a winner that is not the best everywhere."""
    grid = cells(("code_edit", "chat", "translation"), ("closed(1)", "closed(4)", "closed(16)"))
    gains = {"code_edit": 0.42, "chat": 0.10, "translation": 0.004}
    falls = {"closed(1)": 0.0, "closed(4)": 0.11, "closed(16)": 0.26}
    copy = {c: gains[c.workload_class] - falls[c.pace] + (0.07 if c.context_tokens else 0) for c in grid}
    long = {c: log + (0.08 if c.workload_class == "code_edit" else -0.12) for c, log in copy.items()}
    full = Cell("code_edit", "closed(16)", 1024)
    return replace(
        confirmed(
            [(COPY, copy), (LONG, long)],
            wide=[c for c in grid if c.workload_class == "chat" and c.pace == "closed(4)"],
            limited=[(BASELINE, full), (COPY, full), (LONG, full)],
        ),
        name="map",
    )


def sample_of_a_search() -> ReportInput:
    """The same grid before anything is confirmed."""
    grid = cells()
    return replace(
        searched(
            [(COPY, dict.fromkeys(grid, 0.2)), (GUESS, {c: 0.1 * (-1) ** i for i, c in enumerate(grid)})]
        ),
        name="searched-map",
    )
