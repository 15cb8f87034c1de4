"""Run folders as sweeps leave them, for tests of what is made from them; and the parsers of others."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from results.records import BASELINE, ArmRun, Block, Cell, Phase, Point
from results.store import RunFolder
from sweeps.sweep import Sweep
from sweeps.trial import BASELINE_TRIAL, trial_of
from tests.missing import missing
from tests.records import arm

CELL = Cell("code_edit", "closed(1)")
ENVIRONMENT = {"host": {"engine": "SGLang 0.5.23"}, "served": {"model_sha256": "ab" * 32}}
Speeds = Mapping[Cell, float]
Measured = Sequence[tuple[Point, Speeds]]
ArmOf = Callable[[Point, Speeds], ArmRun]
BASELINE_TOKENS_PER_S = 100.0


def arm_with(argv: Sequence[str]) -> ArmOf:
    """Arms that were all started by this command line."""
    return lambda point, speeds: replace(arm(point, speeds), argv=tuple(argv))


def run_folder(
    path: Path,
    sweep: Mapping[str, Any],
    measured: Measured,
    arm_of: ArmOf,
    confirmed: Measured = (),
) -> RunFolder:
    """The folder of a sweep that measured these speeds; the baseline gives 100 tokens/s in every Cell."""
    folder = RunFolder(path)
    folder.create()
    asked = Sweep.model_validate({"confirm": {"finalists": max(1, len(confirmed))}, **sweep})
    folder.write_text("sweep.yaml", asked.to_yaml())
    folder.write_json("environment.json", ENVIRONMENT)
    folder.add_trial(BASELINE_TRIAL)
    for number, (point, speeds) in enumerate(measured, 1):
        block = _block(number, Phase.SEARCH, [(point, speeds)], arm_of)
        folder.add_block(block)
        folder.add_trial(trial_of(block, number, point, "start", objective="tokens_per_s", limits={}))
    points = [{"method": p.method, "knobs": dict(p.knobs)} for p, _ in confirmed]
    folder.write_json("finalists.json", {"points": points})
    for number in range(asked.confirm.looks[0] if confirmed else 0):
        noisy = [(p, {c: v * (1 + 0.001 * number) for c, v in speeds.items()}) for p, speeds in confirmed]
        folder.add_block(_block(100 + number, Phase.CONFIRM, noisy, arm_of))
    return folder


def _block(number: int, phase: Phase, measured: Measured, arm_of: ArmOf) -> Block:
    cells = dict.fromkeys(cell for _, speeds in measured for cell in speeds)
    arms = [arm_of(BASELINE, dict.fromkeys(cells, BASELINE_TOKENS_PER_S))]
    arms += [arm_of(point, speeds) for point, speeds in measured]
    return Block(number, phase, 1000.0 + number, 1001.0 + number, "hash", tuple(arms))


def program(name: str) -> str:
    """A tool of the extra `dev`. Without it the test is skipped, but fails in CI."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    return found or missing(f"{name} is not installed: pip install -e '.[dev]'")


def ran(*words: str | Path, env: Mapping[str, str] | None = None, text: str = "") -> str:
    """What a program writes; it must succeed."""
    done = subprocess.run(
        [str(word) for word in words],
        input=text,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
