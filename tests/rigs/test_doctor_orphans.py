"""What a killed SGLang leaves behind, found and proposed. It is ended here by pid, whatever happens."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from launchers.engines.sglang.engine import Sglang
from launchers.leftovers import is_alive
from launchers.place import with_variables
from launchers.port import free_port
from results.machine_state import EngineProcess, Role
from results.records import BASELINE
from sweeps.doctor.state import machine_state, section
from tests.rigs.needed import needed_rig
from tests.rigs.test_sglang import ARGS, ENV, PAIR
from tests.waiting import wait_for

pytestmark = [pytest.mark.rig, pytest.mark.timeout(600)]

SPAWNED = "multiprocessing.spawn"  # how a child looks that has not named itself yet


def of_session(session: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def spawned(session: int) -> int:
    with suppress(psutil.Error):
        return sum(SPAWNED in " ".join(p.cmdline()) for p in of_session(session))
    return 0


def seen(session: int) -> Sequence[EngineProcess]:
    return [p for p in machine_state().processes if p.session == session]


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    engine = Sglang(str(needed_rig("sglang")))
    served = engine.resolve(str(PAIR / "target"), None, ARGS, ENV)
    argv = engine.command(BASELINE, served, free_port())
    variables = with_variables(engine.environment(BASELINE, served))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, env=variables, start_new_session=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            for left in of_session(process.pid):
                with suppress(psutil.Error):
                    left.kill()


def test_a_launcher_killed_while_its_children_import(launcher: subprocess.Popen[bytes]) -> None:
    wait_for(lambda: spawned(launcher.pid) >= 2, cap_s=240)
    (server,) = [p for p in seen(launcher.pid) if p.role is Role.SERVER]
    assert (server.pid, server.engine, server.is_own, server.owner) == (launcher.pid, "SGLang", True, None)
    launcher.kill()
    launcher.wait()
    wait_for(lambda: any(p.title == "sglang::detokenizer" for p in seen(launcher.pid)), cap_s=240)
    (orphan,) = [p for p in seen(launcher.pid) if p.title == "sglang::detokenizer"]
    assert orphan.is_orphan
    assert orphan.exe and orphan.cwd and orphan.memory_bytes
    assert [p.role for p in seen(launcher.pid) if p.role is Role.TRACKER] == [Role.TRACKER]
    proposed = [line for line in section().follows if line.startswith(f"kill {orphan.pid} ")]
    assert len(proposed) == 1
    assert "sglang::detokenizer, since 20" in proposed[0]
    os.kill(orphan.pid, signal.SIGTERM)
    wait_for(lambda: not is_alive(orphan.pid, orphan.started_at), cap_s=60)
    wait_for(lambda: not seen(launcher.pid), cap_s=60)  # the tracker ends with it
