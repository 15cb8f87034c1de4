"""What a server was given, what its processes have, and what NCCL says of it."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from launchers.nccl.probe import NcclSeen
from results.errors import MeasurementInvalid
from results.records import Point, Rewrite, Variables
from sweeps.arrival import arrived, in_effect, rewrites_of, variables_of

GIVEN = {"NCCL_PROTO": "LL", "HF_TOKEN": "planted-secret", "NCCL_ALGO": None}


@dataclass
class Running:
    """An Endpoint of which only the environment matters."""

    log_path: Path
    own: Mapping[str, str] | None
    workers: tuple[int, ...] = ()
    base_url: str = ""

    def environment(self) -> Mapping[str, str] | None:
        return self.own

    def pids(self) -> tuple[int, ...]:
        return self.workers

    def exit_code(self) -> int | None:
        return None

    def owns_port(self) -> bool:
        return True

    def killed_for_memory(self) -> str | None:
        return None

    def ended_from_outside(self) -> str | None:
        return None

    def part_ended(self) -> str:
        return ""


def test_what_arrived_is_recorded_without_secrets(tmp_path: Path) -> None:
    own = {"NCCL_PROTO": "LL", "HF_TOKEN": "planted-secret", "PATH": "/bin", "NCCL_DEBUG": "WARN"}
    found = arrived(variables_of(GIVEN, None), GIVEN, Running(tmp_path / "log", own))
    assert found.seen == {"NCCL_DEBUG": "WARN", "NCCL_PROTO": "LL"}
    assert found.given == {"NCCL_PROTO": "LL", "HF_TOKEN": "<secret>", "NCCL_ALGO": None}
    assert "planted" not in repr(found)


@pytest.mark.parametrize(
    ("own", "evidence"),
    [
        ({"NCCL_PROTO": "Simple"}, "NCCL_PROTO=LL was given to the server, and is Simple in its process"),
        ({}, "NCCL_PROTO=LL was given to the server, and is not there in its process"),
        ({"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}, "NCCL_ALGO was taken away"),
    ],
)
def test_a_variable_that_did_not_arrive_is_an_ignored_setting(
    tmp_path: Path, own: Mapping[str, str], evidence: str
) -> None:
    with pytest.raises(MeasurementInvalid, match=evidence):
        arrived(variables_of(GIVEN, None), GIVEN, Running(tmp_path / "log", own))


def test_a_secret_that_was_not_taken_away_is_not_told(tmp_path: Path) -> None:
    running = Running(tmp_path / "log", {"HF_TOKEN": "planted"})
    with pytest.raises(MeasurementInvalid, match="HF_TOKEN was taken away") as caught:
        arrived(variables_of({"HF_TOKEN": None}, None), {"HF_TOKEN": None}, running)
    assert "planted" not in str(caught.value)


def test_an_environment_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    found = arrived(variables_of(GIVEN, None), GIVEN, Running(tmp_path / "log", None))
    assert found.seen is None


@pytest.fixture
def worker() -> Iterator[int]:
    env = {"PATH": os.environ["PATH"], "NCCL_PROTO": "LL", "NCCL_NVLS_ENABLE": "0"}
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "print(1, flush=True); input()"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.communicate(b"\n")


def test_what_the_engine_gives_its_workers_is_filed_as_in_effect(tmp_path: Path, worker: int) -> None:
    """SGLang 0.5.23 gives its workers a NCCL_NVLS_ENABLE of its own with --enable-symm-mem."""
    given = {"NCCL_PROTO": "LL", "NCCL_NVLS_ENABLE": "1"}
    running = Running(tmp_path / "log", given, (worker,))
    found = arrived(variables_of(given, None), given, running)
    assert found.by_engine == {"NCCL_NVLS_ENABLE": "0"}
    point = Point("tree", {"steps": 1, "NCCL_NVLS_ENABLE": "1", "NCCL_PROTO": "LL"})
    rewrites = rewrites_of(point, found)
    assert rewrites == (Rewrite("NCCL_NVLS_ENABLE", "1", "0"),)
    assert in_effect(point, rewrites).knobs["NCCL_NVLS_ENABLE"] == "0"


def test_what_nccl_replaced_is_filed_as_in_effect(tmp_path: Path) -> None:
    given = {"NCCL_NTHREADS": "64", "NCCL_PROTO": "LL"}
    seen = NcclSeen("2.28.9", ("NCCL_PROTO",), (), {"NCCL_NTHREADS": "256"})
    found = arrived(variables_of(given, seen), given, Running(tmp_path / "log", given))
    point = Point("tree", dict(given))
    assert rewrites_of(point, found) == (Rewrite("NCCL_NTHREADS", "64", "256"),)
    assert in_effect(point, rewrites_of(point, found)).knobs["NCCL_NTHREADS"] == "256"


def test_the_version_of_nccl_comes_from_the_servers_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("INFO x\nvLLM is using nccl==2.31.2\n")
    assert arrived(Variables({}), {}, Running(log, {})).nccl_version == "2.31.2"
