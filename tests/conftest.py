"""Settings and fixtures of all tests."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from launchers.nvml import Driver
from tests.nvml import Scripted, scripted

# How long an example takes says more of the machine than of the code.
settings.register_profile("tuner", deadline=None)
settings.load_profile("tuner")


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[Scripted]:
    """Call with the lines of `tests.nvml.gpu`: from then on the driver shows these GPUs."""
    with ExitStack() as opened:

        def shows(*gpus: str, options: tuple[str, ...] = ()) -> Driver:
            return opened.enter_context(scripted(tmp_path, *gpus, options=options))

        yield shows
