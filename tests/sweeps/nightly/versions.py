"""Versions of a pinned stand-in: each an engine of its own, with a script of its own."""

from collections.abc import Callable
from dataclasses import replace

from launchers.fake import FakeEngine
from launchers.fake_server import Fault
from results.records import BASELINE, Point
from sweeps.nightly.pin import Pin
from sweeps.nightly.version import Version
from sweeps.sweep import parse_sweep

WINNER = Point("fake-ngram", {"n": 4, "m": 8})
TEXT = """
name: guarded
engine: fake
space: {fake-ngram: {n: 4, m: 8}}
workload: {max_tokens: 80, prompts_per_class: 2, classes: [code_edit]}
confirm: {looks: [3, 4], same_margin: 0.4}
patience: {client_share: 1, min_window_s: 0, reruns: 0, stall_timeout_s: 2, foreign_cores: 100}
"""
SPEED = 300.0  # of the baseline; the winner has twice of it


def pin(text: str = TEXT) -> Pin:
    return Pin("guarded", BASELINE, WINNER, parse_sweep(text))


def engine(
    baseline: float = 1.0,
    winner: float = 1.0,
    fault: Callable[[Point], Fault | None] = lambda point: None,
) -> FakeEngine:
    """Both as factors to the usual speed."""
    return FakeEngine(
        lambda point, workload_class: SPEED * (baseline if point.is_baseline else 2 * winner), fault
    )


def on(version: Version, engine: FakeEngine) -> Version:
    space = replace(version.plan.space, engine=engine)
    return replace(version, plan=replace(version.plan, engine=engine, space=space))
