"""The kernels that stand in for SGLang's own, checked in the rig's venv: only that one has torch."""

import subprocess
from pathlib import Path

import pytest

from tests.rigs.needed import needed_rig

pytestmark = pytest.mark.rig


def test_stand_in_kernels() -> None:
    checks = Path(__file__).parent / "sglang/check_kernels.py"
    run = subprocess.run([needed_rig("sglang"), checks], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == checks.read_text().count("\ndef check_")
