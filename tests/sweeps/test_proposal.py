"""Proposals: from the cost model where it speaks, from the surface elsewhere, and never a trap."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from results.records import Acceptance, AcceptanceState, Block, Phase, Point, Trial
from sweeps.proposal import MODEL, SURFACE
from sweeps.space import Space, build_space
from sweeps.study import SAMPLER, START, Search, best_of, finalists
from sweeps.sweep import KnobSpec
from tests.analysis.costmodel.servers import chain
from tests.knobs_engine import SERVED, knobs_engine
from tests.records import CELL, arm, baseline_arm, block, trial

CHAINS: dict[str, dict[str, KnobSpec] | None] = {"tree": {"steps": [1, 2, 3, 4, 5, 6, 7, 8], "topk": 1}}


def chains() -> Space:
    return build_space(knobs_engine(), SERVED, CHAINS)


def measured(number: int, point: Point) -> Block:
    """A Block of a server with known costs, see `chain`."""
    seen = chain(int(point.knobs["steps"]))
    run = arm(point, {CELL: 100.0 * math.exp(seen.log_speedup)})
    tokens = round(seen.steps) + seen.counts.accepted_tokens
    counted = Acceptance(AcceptanceState.MEASURED, counters=seen.counts)
    window = replace(run.measurements[0], acceptance=counted, tokens_by_prompt={"p1": tokens})
    run = replace(run, measurements=(window,), shape=knobs_engine().draft_shape(point))
    theirs = replace(baseline_arm().measurements[0], ttft_s=None)  # no time for the prompt
    return block(number, Phase.SEARCH, [replace(baseline_arm(), measurements=(theirs,)), run])


def told(number: int, point: Point, source: str) -> tuple[Trial, Block]:
    speedup = chain(int(point.knobs["steps"])).log_speedup
    return trial(number, point, speedup, source=source), measured(number, point)


def search_on(tmp_path: Path, name: str = "study", **more: object) -> Search:
    return Search(chains(), trials=8, seed=1, journal=tmp_path / f"{name}.log", **more)  # type: ignore[arg-type]


def test_the_model_proposes_once_it_speaks_and_is_told(tmp_path: Path) -> None:
    blocks: list[Block] = []
    searching, sources = search_on(tmp_path, blocks=blocks), []
    while (asked := searching.ask()) is not None:
        sources.append(asked[1])
        a_trial, a_block = told(len(sources), *asked)
        blocks.append(a_block)
        searching.tell(a_trial)
    assert sources[0] == START
    assert MODEL in sources
    assert SURFACE in sources[:4], "before five Points of a method are measured"
    assert searching.remaining == 0
    best = searching.best
    assert best is not None
    assert best.point.knobs["steps"] == max(range(1, 9), key=lambda s: chain(s).log_speedup)


def test_every_fifth_point_is_the_samplers(tmp_path: Path) -> None:
    searching = Search(
        build_space(knobs_engine(), SERVED, {}), trials=12, seed=1, journal=tmp_path / "study.log"
    )
    sources = []
    while (asked := searching.ask()) is not None:
        sources.append(asked[1])
        searching.tell(trial(len(sources), asked[0], 0.01 * len(sources), source=asked[1]))
    assert sources[4] == SAMPLER
    assert sources[9] == SAMPLER


def test_a_resumed_search_asks_what_the_first_would_have_asked(tmp_path: Path) -> None:
    """Blocks and Trials are all there is to go on from: proposals come from them alone."""
    trials: list[Trial] = []
    blocks: list[Block] = []
    first = search_on(tmp_path, "first", blocks=blocks)
    for number in range(1, 7):
        asked = first.ask()
        assert asked is not None
        a_trial, a_block = told(number, *asked)
        blocks.append(a_block)
        first.tell(a_trial)
        trials.append(a_trial)
    again = search_on(tmp_path, "again", past=trials, blocks=blocks)
    assert again.ask() == first.ask()


def test_a_wrong_model_traps_nobody(tmp_path: Path) -> None:
    """Not unimodal: the best depth lies behind a valley, and is found within the budget."""
    values = {1: 0.2, 2: 0.25, 3: 0.2, 4: 0.1, 5: 0.0, 6: -0.1, 7: 0.0, 8: 0.5}
    blocks: list[Block] = []
    searching, number = search_on(tmp_path, blocks=blocks), 0
    while (asked := searching.ask()) is not None:
        number += 1
        point, source = asked
        steps = int(point.knobs["steps"])
        blocks.append(measured(number, point))
        searching.tell(trial(number, point, values[steps], source=source))
    assert number == 8
    assert searching.best is not None
    assert searching.best.point.knobs["steps"] == 8


def _run(space: Space, tmp_path: Path, budget: int, speed: Callable[[Point], float]) -> Sequence[Trial]:
    trials: list[Trial] = []
    searching = Search(space, trials=budget, seed=3, journal=tmp_path / "s.log")
    while (asked := searching.ask()) is not None:
        point, source = asked
        trials.append(trial(len(trials) + 1, point, speed(point), source=source))
        searching.tell(trials[-1])
    return trials


def test_where_everything_loses_the_least_loser_alone_is_confirmed(tmp_path: Path) -> None:
    trials = _run(chains(), tmp_path, 8, lambda p: -0.1 - 0.05 * int(p.knobs["steps"]))
    best = best_of(trials)
    assert best is not None
    assert finalists(trials, 3, 0.02) == [best.point]


def test_the_parent_of_nccls_variables_is_found_before_they_are(tmp_path: Path) -> None:
    """While the engine's own all-reduce serves, variables change nothing; without it they gain a little."""
    shared: dict[str, KnobSpec] = {
        "--nccl-alone": [False, True],
        "NCCL_PROTO": ["unset", "LL", "Simple"],
        "NCCL_MIN_NCHANNELS": ["unset", 8, 16],
    }
    own: dict[str, dict[str, KnobSpec] | None] = {"lookup": {"n": [2, 4], "kind": "plain"}}
    space = build_space(knobs_engine(), SERVED, own, shared)

    protocols = {"LL": 0.05, "Simple": -0.05}

    def speed(point: Point) -> float:
        if not point.knobs.get("--nccl-alone"):
            return -1.0 + 0.01 * int(point.knobs["n"])
        return 0.2 + protocols.get(str(point.knobs.get("NCCL_PROTO")), 0.0)

    trials = _run(space, tmp_path, 10, speed)
    on = [bool(t.point.knobs.get("--nccl-alone")) for t in trials]
    assert on.index(True) < 4
    assert sum(on[4:]) >= len(on[4:]) - 2, "then it stays with it"
    best = best_of(trials)
    assert best is not None
    assert best.point.knobs["NCCL_PROTO"] == "LL"
