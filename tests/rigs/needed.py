"""What a test asks for when it needs a rig."""

from pathlib import Path

from tests.missing import missing
from tests.rigs.build import rig_python
from tests.rigs.docker import image


def needed_rig(name: str) -> Path:
    """The rig's interpreter. Without the rig the test is skipped, but fails in CI, which builds them all."""
    python = rig_python(name)
    if python is None:
        missing(f"the rig {name} is not built as its recipe says: make rigs")
    return python


def needed_image() -> str:
    """The image of the container tests. Without a daemon that has it the test is skipped, but fails in CI."""
    if not image.is_built():
        missing("no Docker daemon here has the image of the tests: tests/rigs/docker/start.sh, make rigs")
    return image.NAME
