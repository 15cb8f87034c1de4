"""What a test asks for when it needs a rig."""

import os
from pathlib import Path
from typing import NoReturn

import pytest

from tests.rigs.build import rig_python
from tests.rigs.docker import image


def needed_rig(name: str) -> Path:
    """The rig's interpreter. Without the rig the test is skipped, but fails in CI, which builds them all."""
    python = rig_python(name)
    if python is None:
        _missing(f"the rig {name} is not built as its recipe says: make rigs")
    return python


def needed_image() -> str:
    """The image of the container tests. Without a daemon that has it the test is skipped, but fails in CI."""
    if not image.is_built():
        _missing("no Docker daemon here has the image of the tests: tests/rigs/docker/start.sh, make rigs")
    return image.NAME


def _missing(what: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)
