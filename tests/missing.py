"""What a test does without something that it needs and this machine may not have."""

import os
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """The test is skipped, but fails in CI, where everything is set up. `what` says what to do."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)
