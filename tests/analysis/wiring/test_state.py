"""What the state of a machine means: what is proposed, and above all what never is."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from analysis.wiring.gpu_state import size
from analysis.wiring.state import follows, seen
from results.machine_state import (
    DriverState,
    EngineProcess,
    GpuHolder,
    GpuState,
    Listener,
    MachineState,
    OwnServer,
    Role,
    SharedSegment,
)

NOW = 1_796_030_000.0  # 2026-11-30 09:13 UTC
NOTHING = ["nothing on this machine is in the way"]
GB = 2**30

SERVER = EngineProcess(
    100, Role.SERVER, "python -m sglang.launch_server", "SGLang", NOW - 100, 1, 100, True, port=30000
)
WORKER = EngineProcess(
    102, Role.WORKER, "sglang::scheduler", "SGLang", NOW - 90, 100, 100, True, owner=100, memory_bytes=10**9
)
ORPHAN = EngineProcess(
    70,
    Role.WORKER,
    "sglang::detokenizer",
    "SGLang",
    NOW - 7300,
    1,
    60,
    True,
    is_leader_dead=True,
    memory_bytes=656_000_000,
)
TRACKER = EngineProcess(71, Role.TRACKER, "resource_tracker", "", NOW - 7300, 1, 60, True)
SEGMENT = SharedSegment("/dev/shm/psm_1", 168_000_000, True, NOW - 3600)


def said(*processes: EngineProcess, listeners: Sequence[Listener] = ()) -> list[str]:
    return list(follows(MachineState(NOW, processes, listeners)))


def test_a_healthy_server_is_left_alone() -> None:
    listeners = [Listener(30000, 100, "python"), Listener(9000, 5, "nginx")]
    assert said(SERVER, WORKER, listeners=listeners) == NOTHING
    assert said() == NOTHING


def test_an_orphan_is_proposed_by_its_exact_command() -> None:
    (line,) = said(ORPHAN, TRACKER)
    assert line == (
        "kill 70    # sglang::detokenizer, since 2026-11-30 07:11 UTC, 656 MB: its server is gone; "
        "its resource tracker 71 ends with it, after cleaning up"
    )


def test_many_ports_are_counted() -> None:
    worker = replace(WORKER, ports=(5, 1, 2, 3, 4, 5))
    line = next(iter(seen(MachineState(NOW, [worker]))))
    assert "listens on 1, 2, 3 and 2 more" in line


def test_an_orphan_beside_a_live_server_says_that_it_is_older_and_what_it_still_holds() -> None:
    (line,) = said(SERVER, WORKER, TRACKER, replace(ORPHAN, ports=(5555,)))
    assert line.startswith("kill 70 ")
    assert "it still listens on 5555" in line
    assert "older than the server 100 by 2 h 00 min" in line
    assert "kill 100" not in line


def test_of_a_tree_only_the_top_is_proposed() -> None:
    core = replace(ORPHAN, title="VLLM::EngineCore", engine="vLLM")
    worker = replace(core, pid=72, parent=70, title="VLLM::Worker")
    (line,) = said(core, worker)
    assert line.startswith("kill 70 ")
    assert "of the same start: 72" in line


@pytest.mark.parametrize(
    ("orphan", "words"),
    [
        (replace(ORPHAN, is_own=False), "is of another user: ask them"),
        (replace(ORPHAN, is_here=False), "is in a container"),
        (replace(ORPHAN, is_leader_dead=False), "its session 60 lives: find out whose it is"),
    ],
)
def test_what_is_not_surely_ours_and_left_over_is_never_proposed(orphan: EngineProcess, words: str) -> None:
    (line,) = said(orphan)
    assert words in line
    assert "kill" not in line


def test_a_kept_worker_with_a_dead_leader_is_no_orphan() -> None:
    assert said(replace(WORKER, is_leader_dead=True, owner=99)) == NOTHING


def test_a_run_of_this_tool_is_ended_by_this_tool() -> None:
    """What its servers started is not proposed a second time."""
    state = MachineState(NOW, [ORPHAN], left_behind=[OwnServer(60, "runs/a")])
    assert list(follows(state)) == [
        "tuner reap runs/a --end    # ends the server 60 that a dead run left behind"
    ]


def test_a_port_that_another_one_listens_on() -> None:
    (line,) = said(SERVER, WORKER, listeners=[Listener(30000, 44, "python3")])
    assert line.startswith("port 30000 of the server 100 is listened on by python3 (pid 44)")
    (unseen,) = said(SERVER, listeners=[Listener(30000, None)])
    assert "a process that this user may not see" in unseen
    assert said(SERVER, WORKER, listeners=[Listener(30000, 102)]) == NOTHING, "a worker of its own"
    elsewhere = replace(SERVER, is_here=False)
    assert said(elsewhere, listeners=[Listener(30000, 44)]) == NOTHING, "a container has ports of its own"


def segments(*found: SharedSegment, sees_all: bool = True) -> list[str]:
    return list(follows(MachineState(NOW, segments=found, sees_all=sees_all)))


def test_shared_memory_that_nobody_has_open() -> None:
    assert segments(SEGMENT) == [
        "rm /dev/shm/psm_1    # 168 MB, changed 2026-11-30 08:13 UTC, open in no process"
    ]
    inside = segments(SEGMENT, sees_all=False)
    assert "of this container" in inside[0]
    assert "look there who has them open" in inside[1]


@pytest.mark.parametrize(
    "segment",
    [
        replace(SEGMENT, users=(5,)),
        replace(SEGMENT, is_own=False),
        replace(SEGMENT, is_all_seen=False),
        replace(SEGMENT, changed_at=NOW - 5),
        replace(SEGMENT, memory_bytes=4096),
        replace(SEGMENT, path="/dev/shm/sem.mp-1", memory_bytes=2**24),
    ],
)
def test_shared_memory_that_is_never_proposed(segment: SharedSegment) -> None:
    assert segments(segment) == NOTHING


def gpus(*found: GpuState, processes: Sequence[EngineProcess] = (), here: bool | None = True) -> list[str]:
    driver = DriverState("610.43", "13.1", gpus=found, counts_as_here=here)
    return list(follows(MachineState(NOW, processes, driver=driver)))


def a_gpu(*holders: GpuHolder, used: int | None = None, **more: object) -> GpuState:
    total = sum(h.memory_bytes or 0 for h in holders) if used is None else used
    return replace(GpuState(0, "GPU-a", "H200", total, 140 * GB, holders), **more)  # type: ignore[arg-type]


HELD = GpuHolder(102, 60 * GB, True, "sglang::scheduler")


def test_one_server_on_a_gpu() -> None:
    assert gpus(a_gpu(HELD), processes=[SERVER, WORKER]) == NOTHING


def test_two_servers_on_one_gpu() -> None:
    other = replace(SERVER, pid=200, port=8000, engine="vLLM")
    core = replace(WORKER, pid=202, owner=200, title="VLLM::EngineCore")
    gpu = a_gpu(HELD, GpuHolder(202, 20 * GB, True))
    (line,) = gpus(gpu, processes=[SERVER, WORKER, other, core])
    assert line.startswith("GPU 0 is shared by the servers 100 and 200")


def test_memory_of_a_process_that_is_gone() -> None:
    gone = GpuHolder(5_000_000, 60 * GB, False)
    (line,) = gpus(a_gpu(gone))
    assert "64.4 GB on GPU 0 are held by pid 5000000, which does not exist any more" in line
    (inside,) = gpus(a_gpu(gone), here=False)
    assert "of another PID namespace" in inside


def test_memory_that_no_listed_process_has() -> None:
    (line,) = gpus(a_gpu(used=70 * GB))
    assert line.startswith("75.2 GB on GPU 0 are held by no process that the driver lists")
    assert gpus(a_gpu(used=GB // 2)) == NOTHING, "the driver's own"
    assert gpus(a_gpu(HELD, used=60 * GB + GB // 2), processes=[SERVER, WORKER]) == NOTHING
    untold = GpuHolder(102, None, True)
    assert gpus(a_gpu(untold, used=70 * GB), processes=[SERVER, WORKER]) == NOTHING, "it may have all of it"
    assert gpus(a_gpu(used=70 * GB, mig=True)) == NOTHING


def test_faults_of_a_gpu() -> None:
    found = gpus(a_gpu(ecc_errors=2, throttled=("hw_thermal_slowdown",), refused=("memory used: GpuIsLost",)))
    assert [line.split(" ", 2)[2].split(" ")[0] for line in found] == ["has", "is", "is"]
    assert "2 uncorrected memory errors" in found[0]
    assert "hw_thermal_slowdown" in found[1]
    assert "is lost" in found[2]
    assert gpus(a_gpu(throttled=("sw_power_cap",))) == NOTHING


@pytest.mark.parametrize(
    ("absent", "words"),
    [
        ("LibraryNotFound", "nothing on this machine"),
        ("LibRmVersionMismatch", "restart the machine"),
        ("Unknown", "the driver does not answer (Unknown)"),
    ],
)
def test_without_a_driver_nothing_fails(absent: str, words: str) -> None:
    state = MachineState(NOW, driver=DriverState(absent=absent))
    (line,) = follows(state)
    assert words in line
    assert f"no NVIDIA driver answers ({absent}): nothing is known of GPUs" in list(seen(state))


def test_all_that_was_seen_is_listed() -> None:
    driver = DriverState("610.43", "13.1", gpus=(a_gpu(HELD),))
    server = replace(SERVER, ports=(30000,), memory_bytes=2 * 10**9)
    processes = [server, WORKER, replace(ORPHAN, is_own=False)]
    unused = replace(SEGMENT, path="/dev/shm/torch_7_1")
    used = replace(SEGMENT, users=(100,))
    lines = list(seen(MachineState(NOW, processes, (), [used, unused], driver, tool_servers=[100])))
    assert lines == [
        "server python -m sglang.launch_server (pid 100, since 2026-11-30 09:11 UTC, 2.0 GB, "
        "listens on 30000, kept by a running tuner)",
        "worker sglang::scheduler (pid 102, since 2026-11-30 09:11 UTC, 1.0 GB, kept by 100)",
        "worker sglang::detokenizer (pid 70, since 2026-11-30 07:11 UTC, 656 MB, of another user, "
        "kept by nobody)",
        "shared memory: 2 files (1 psm, 1 torch), 336 MB; 1 of them open nowhere",
        "NVIDIA driver 610.43, CUDA 13.1, 1 GPU",
        "GPU 0 H200: 64.4 GB of 150.3 GB used (sglang::scheduler 102: 64.4 GB)",
    ]


def test_sizes() -> None:
    assert [size(n) for n in (None, 12, 4096, 656_000_000, 1_240_000_000)] == [
        "an unknown amount",
        "12 B",
        "4 kB",
        "656 MB",
        "1.2 GB",
    ]
