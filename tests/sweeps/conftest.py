"""Fixtures of the tests of sweeps."""

import pytest


@pytest.fixture(autouse=True)
def brief_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in engine is measured for milliseconds: the pause between two requests weighs there.

    On a busy machine it took 9 % of such a window; that loads of full length reach their concurrency
    is a test of analysis/block.py.
    """
    monkeypatch.setattr("analysis.block.MIN_CONCURRENCY_SHARE", 0.5)
