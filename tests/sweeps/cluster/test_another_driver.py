"""The driver of a run on a cluster may be another machine every time; what is measured may not change."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from results.errors import UsageError
from results.records import BASELINE, Phase
from results.store import RunFolder
from sweeps.opened import claim
from sweeps.sweep import Sweep
from tests.records import CELL, arm, block
from tests.sweeps.test_run import plan


class Driver:
    """A Plan as another machine has it."""

    def __init__(self, host: str, engine: str, **changes: object) -> None:
        self._plan, self._told = plan(**changes), {"host": host, "engine": engine}

    @property
    def sweep(self) -> Sweep:
        return self._plan.sweep

    def environment(self) -> Mapping[str, object]:
        known: dict[str, Any] = dict(self._plan.environment())
        return {**known, "host": {**known["host"], **self._told}}


def begun(tmp_path: Path, driver: Driver) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    claim(folder, driver)
    folder.add_block(block(0, Phase.SEARCH, [arm(BASELINE, {CELL: 100.0})]))
    return folder


@pytest.mark.parametrize("launcher", ["ray", "slurm"])
def test_another_driver_goes_on_with_a_run_on_a_cluster(tmp_path: Path, launcher: str) -> None:
    folder = begun(tmp_path, Driver("first", "fake 1", launcher=launcher))
    claim(folder, Driver("second", "fake 1", launcher=launcher))
    with pytest.raises(UsageError, match="what changed: engine"):
        claim(folder, Driver("second", "fake 2", launcher=launcher))


def test_a_run_of_one_machine_stays_on_it(tmp_path: Path) -> None:
    folder = begun(tmp_path, Driver("first", "fake 1"))
    with pytest.raises(UsageError, match="what changed: host"):
        claim(folder, Driver("second", "fake 1"))
