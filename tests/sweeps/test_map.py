"""A whole sweep over classes, loads and lengths on the stand-in engine, and the map it leaves."""

import json
from dataclasses import replace
from pathlib import Path

from analysis.crossover import sentences
from analysis.loadmap import State, load_map
from analysis.report import as_json, html, markdown
from launchers.fake import FakeEngine
from results.records import Cell, Point
from results.store import RunFolder
from sweeps.forecast import forecast, grid
from sweeps.outcome import read_run
from sweeps.prepare import Plan, prepare
from sweeps.run import run_sweep
from sweeps.sweep import Sweep
from sweeps.windows import BEFORE
from tests.sweeps.test_run import Recorder

POINT = Point("fake-ngram", {"n": 4, "m": 8})
LENGTH = 512


def length_of(prompt: str) -> str:
    return "long" if prompt.startswith(BEFORE) else "short"


def speed(point: Point, length: str) -> float:
    """Speculation trebles the speed after a short prompt and thirds it after a long one."""
    if point.is_baseline:
        return 240.0
    return 720.0 if length == "short" else 80.0


def plan(**workload: object) -> Plan:
    content = {
        "engine": "fake",
        "space": {"fake-ngram": {"n": [4], "m": [8]}},
        "workload": {
            "classes": ["code_edit", "chat"],
            "max_tokens": 36,
            "prompts_per_class": 1,
            "context": [0, LENGTH],
            **workload,
        },
        "load": [{"closed": 1}, {"closed": 2}],
        "confirm": {"looks": [3], "finalists": 1},
        "patience": {"client_share": 1, "min_window_s": 0, "hopeless_ratio": 0, "foreign_cores": 9},
    }
    made = prepare(Sweep.model_validate(content))
    return replace(made, engine=FakeEngine(speed, class_of=length_of))


def test_two_classes_two_loads_and_two_lengths_make_a_map(tmp_path: Path) -> None:
    recorder, folder = Recorder(), RunFolder(tmp_path / "run")
    run_sweep(plan(), folder, recorder, recorder.stopped)
    report, _ = read_run(folder)
    found = load_map(report)
    assert found is not None
    assert {a.cell: (a.state, a.best) for a in found.cells} == {
        Cell(c, pace, length): (State.FASTER, POINT) if length is None else (State.SLOWER, None)
        for c in ("code_edit", "chat")
        for pace in ("closed(1)", "closed(2)")
        for length in (None, LENGTH)
    }
    assert sentences(found) == [
        "Speculation stops paying between prompts as they are and 512 tokens for code_edit and chat."
    ]
    assert all(a.prompt_tokens is not None and a.baseline.tokens_per_s is not None for a in found.cells)
    told = json.loads(as_json(report))["map"]
    assert len(told["cells"]) == 8
    assert told["crossovers"] == sentences(found)
    for page in (html(report), markdown(report)):
        assert sentences(found)[0] in page.replace("\\_", "_")


def test_the_plan_says_how_many_cells_there_are() -> None:
    made = plan()
    assert grid(made) == "8 Cells: 2 classes x 2 paces x 2 contexts, 20 requests per launch."
    assert forecast(made).grid == grid(made)
    assert grid(plan(context=[0])) == "4 Cells: 2 classes x 2 paces, 10 requests per launch."
    alone = Sweep.model_validate({"engine": "fake", "workload": {"classes": ["chat"]}})
    assert grid(prepare(alone)) == "1 Cell, 4 requests per launch."
