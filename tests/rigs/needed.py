"""What a test asks for when it needs a rig."""

import os
from pathlib import Path

import pytest

from tests.rigs.build import rig_python


def needed_rig(name: str) -> Path:
    """The rig's interpreter. Without the rig the test is skipped, but fails in CI, which builds them all."""
    python = rig_python(name)
    if python is None:
        missing = f"the rig {name} is not built as its recipe says: make rigs"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return python
