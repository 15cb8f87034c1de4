"""Programs run on this machine: to their end, or to the end of their time."""

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from launchers.place import MACHINE, Ran


def test_a_time_out_ends_the_whole_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = (
        "import os, time\n"
        f"child = os.fork()\n"
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "os.write(1, b'up\\n')\n"
        "time.sleep(600)\n"
    )
    assert MACHINE.run([sys.executable, "-c", script], {}, 2) == Ran(None, "up\nup\n")
    for pid in map(int, pids.read_text().split()):
        assert _is_gone(pid)


def test_variables_are_set_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_PROTO", "LL")
    script = "import os; print(os.environ.get('NCCL_PROTO'), os.environ.get('NCCL_ALGO'))"
    done = MACHINE.run([sys.executable, "-c", script], {"NCCL_PROTO": None, "NCCL_ALGO": "Ring"}, 60)
    assert done == Ran(0, "None Ring\n")
    assert os.environ["NCCL_PROTO"] == "LL"


def _is_gone(pid: int) -> bool:
    """Also a child that nobody has waited for yet."""
    for _ in range(100):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False
