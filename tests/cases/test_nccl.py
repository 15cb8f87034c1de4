"""Published failures with NCCL, as data: what was said and what must come of it."""

from typing import Protocol

import pytest

from launchers.engines.sglang.log import cause_from_log as sglang_cause
from launchers.engines.vllm.log import cause_from_log as vllm_cause
from launchers.nccl.log import applied, cause, version_in
from launchers.nccl.rules import leaves_nothing, version_of
from launchers.nccl.shm import too_small
from results.errors import UsageError
from results.reasons import Reason
from sweeps.container import Container
from sweeps.prepare import check_room


class Cause(Protocol):
    def __call__(self, log: str, exit_code: int | None, *, ready: bool) -> tuple[Reason, str]: ...


ENGINES = pytest.mark.parametrize("engine", [sglang_cause, vllm_cause])

# 41: NCCL_ALGO and NCCL_PROTO leave no algorithm (vllm-project/vllm#58179)

ALGO = {"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "Simple"}
NO_ALGORITHM = """\
No algorithm/protocol nor symKernelId available for function Broadcast with datatype ncclInt8.
NCCL_ALGO was set to allreduce:tree. NCCL_PROTO was set to Simple.
torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp, invalid usage
"""


def test_41_the_variables_are_named() -> None:
    for env in (ALGO, {}):
        found = cause(NO_ALGORITHM, env)
        assert found is not None
        reason, line, offending = found
        assert reason is Reason.NCCL_REJECTED
        assert offending == ("NCCL_ALGO", "NCCL_PROTO")
        assert line.startswith("No algorithm/protocol nor symKernelId available for function Broadcast")


@ENGINES
@pytest.mark.parametrize("ready", [True, False])
def test_41_the_engines_say_so_whenever_it_comes(engine: Cause, ready: bool) -> None:
    reason, line = engine(NO_ALGORITHM, 1, ready=ready)
    assert reason is Reason.NCCL_REJECTED
    assert "No algorithm/protocol" in line


def test_41_the_combination_is_not_proposed_for_the_release_that_refuses_it() -> None:
    version = version_of(version_in("vLLM is using nccl==2.31.2"))
    assert version == (2, 31, 2)
    assert "NCCL_ALGO=allreduce:tree" in (leaves_nothing(ALGO, version) or "")
    assert leaves_nothing(ALGO, (2, 30, 7)) is None
    # vLLM's own way out
    assert leaves_nothing({**ALGO, "NCCL_ALGO": "ring,tree;allreduce:tree"}, version) is None


# The same kind since 2.24: a plain list has no way out (NVIDIA/nccl#317, and NCCL_ALGO in its user guide)


@ENGINES
def test_41_older_wording(engine: Cause) -> None:
    log = (
        "(Worker_TP1 pid=13) h:13:13 [1] enqueue.cc:2041 NCCL WARN Error : no algorithm/protocol available "
        "for function AllGather with datatype ncclInt8. NCCL_ALGO was set to Tree.\n"
        "[rank1]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp, invalid usage\n"
    )
    assert engine(log, 1, ready=False)[0] is Reason.NCCL_REJECTED
    found = cause(log, {"NCCL_ALGO": "Tree"})
    assert found is not None
    assert found[2] == ("NCCL_ALGO",)


# 42: /dev/shm of a container is too small (NVIDIA/nccl#290, #342)

NO_SPACE = """\
NCCL WARN Call to posix_fallocate failed : No space left on device
NCCL WARN Error while creating shared memory segment /dev/shm/nccl-XXXXXX (size 9637888)
"""
# pytorch/ci-infra#490, ggml-org/llama.cpp#23523, llm-d/llm-d#352, vllm-project/vllm (MiniMax-01#42)
NEWER = """\
[2026-04-22 21:34:20] mt-l-x86iavx512:202016:202235 [0] misc/shmutils.cc:88 NCCL WARN Error: failed to \
extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space left on device (28)
"""
IN_A_CONTAINER = """\
aa30811e22aa:1:114 [2] misc/shmutils.cc:128 NCCL WARN Error while creating shared memory segment \
/dev/shm/nccl-97p6hH (size 9637888), error: No space left on device (28)
"""
FOR_THE_PROXY = """\
[2025-10-13 09:06:25] decode-0:3663:4044 [0] misc/shmutils.cc:129 NCCL WARN Error while creating \
shared memory segment /dev/shm/nccl-Ewjreo (size 33030528), error: No space left on device (28)
"""
ERROR = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, unhandled system error (run with "
    "NCCL_DEBUG=INFO for details), NCCL version 2.21.5\n"
)


@ENGINES
@pytest.mark.parametrize(
    ("log", "segment"),
    [(NO_SPACE, "9.2 MiB"), (NEWER, "9.2 MiB"), (IN_A_CONTAINER, "9.2 MiB"), (FOR_THE_PROXY, "31.5 MiB")],
)
def test_42_the_remedy_is_more_shared_memory(engine: Cause, log: str, segment: str) -> None:
    reason, line = engine(log + ERROR, 1, ready=False)
    assert reason is Reason.NCCL_REJECTED
    assert line.startswith(f"/dev/shm is too small; a segment of {segment} did not fit: set `shm_size: 16g`")
    assert "`ipc: host`" in line
    assert "NCCL_SHM_DISABLE=1 would measure another transport" in line


def test_42_its_size_is_told_where_it_is_known() -> None:
    found = cause(NO_SPACE, {}, shm_bytes=67108864)
    assert found is not None
    assert found[1].startswith("/dev/shm (64 MiB) is too small")
    assert found[2] == ()  # no variable is at fault


def test_42_the_preflight() -> None:
    told = too_small(67108864, 2)
    assert told is not None
    assert told.startswith("SHM_TOO_SMALL 64 MiB")
    assert "`shm_size: 16g` or `ipc: host`" in told
    assert "294 MiB" in (too_small(67108864, 8) or "")


@pytest.mark.parametrize(
    ("shm_bytes", "ranks"), [(67108864, 1), (None, 8), (16 << 30, 8), (1 << 30, 8), (128 << 20, 2)]
)
def test_42_what_may_suffice_passes(shm_bytes: int | None, ranks: int) -> None:
    assert too_small(shm_bytes, ranks) is None


# Ranks in containers of their own (vllm-project/vllm#18831)


def test_42_memory_that_is_not_shared_is_another_thing() -> None:
    log = (
        "NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl- (size 192814336), error: No "
        "such file or directory (2)\n"
    )
    found = cause(log, {})
    assert found is not None
    assert found[0] is Reason.NCCL_REJECTED
    assert "the ranks share no /dev/shm" in found[1]
    assert "shm_size" not in found[1]


# 44: variables that were set and not used (voipmonitor/rtx6kpro: custom all-reduce serves the messages)

LOG_44 = """\
NCCL INFO NCCL_P2P_DISABLE set by environment to 1.
NCCL version 2.28.9+cuda13.0
"""


def test_44_only_what_nccl_says_is_applied() -> None:
    told = applied(LOG_44, {"NCCL_P2P_DISABLE": "1", "NCCL_MIN_NCHANNELS": "16"})
    assert told.applied == {"NCCL_P2P_DISABLE"}
    assert told.unconfirmed == {"NCCL_MIN_NCHANNELS"}
    assert version_in(LOG_44) == "2.28.9+cuda13.0"


# A graph file for another number of GPUs, set by a machine image's /etc/nccl.conf (NVIDIA/nccl#1008, #1240,
# Azure/azhpc-images#327)

GRAPH = """\
::16674:17023 [0] NCCL INFO NCCL_TOPO_FILE set by environment to /opt/microsoft/ncv4/topo.xml
::16674:17023 [0] NCCL INFO NCCL_GRAPH_FILE set by environment to /opt/microsoft/ncv4/graph.xml

::16674:17023 [0] graph/search.cc:703 NCCL WARN XML Import Channel : dev 1 not found.
::16674:17023 [0] NCCL INFO graph/search.cc:733 -> 2
RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)
"""


@ENGINES
def test_a_graph_file_for_another_group(engine: Cause) -> None:
    reason, line = engine(GRAPH, 1, ready=False)
    assert reason is Reason.NCCL_REJECTED
    assert line.startswith("NCCL WARN XML Import Channel : dev 1 not found.")
    found = cause(GRAPH, {})
    assert found is not None
    assert found[2] == ("NCCL_GRAPH_FILE",)
    assert applied(GRAPH, {}).unasked == {
        "NCCL_TOPO_FILE": "/opt/microsoft/ncv4/topo.xml",
        "NCCL_GRAPH_FILE": "/opt/microsoft/ncv4/graph.xml",
    }


# A network that an image forces and this host does not have


@ENGINES
@pytest.mark.parametrize("ready", [True, False])
def test_a_network_that_is_not_there(engine: Cause, ready: bool) -> None:
    log = (
        "host:7:7 [0] NCCL INFO NCCL_NET set by environment to AWS Libfabric\n"
        "host:7:7 [0] plugin/net.cc:359 NCCL WARN Failed to initialize any NET plugin\n"
        "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)\n"
    )
    reason, line = engine(log, 1, ready=ready)
    assert reason is Reason.NCCL_REJECTED
    assert "Failed to initialize any NET plugin" in line


# One that vLLM's ranks need even on one host


@ENGINES
def test_a_socket_interface_that_is_not_there(engine: Cause) -> None:
    log = (
        "(Worker_TP0 pid=9) host:9:9 [0] bootstrap.cc:76 NCCL WARN Bootstrap : no socket interface found\n"
        "(Worker_TP0 pid=9) ERROR 1-1 1:1:3 [a.py:1] RuntimeError: NCCL error: internal error\n"
    )
    reason, line = engine(log, 1, ready=False)
    assert reason is Reason.NCCL_REJECTED
    assert line == "NCCL WARN Bootstrap : no socket interface found"


# Deadlocks through an IOMMU or ACS (NVIDIA/nccl#2079, vllm-project/vllm#33041)


@ENGINES
@pytest.mark.parametrize("ready", [True, False])
def test_a_deadlock_is_a_hang(engine: Cause, ready: bool) -> None:
    log = (
        "[rank0]:[E1130 03:25:35.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE) ran for 600351 milliseconds before timing out.\n"
        "[rank0]: torch.distributed.DistBackendError: NCCL watchdog thread terminated with exception\n"
    )
    reason, line = engine(log, -6, ready=ready)
    assert reason is Reason.HANG
    assert "Watchdog caught collective operation timeout" in line


@ENGINES
def test_an_error_under_load_without_a_variable_is_a_crash(engine: Cause) -> None:
    log = "RuntimeError: NCCL error: remote process exited or there was a network error\n"
    assert engine(log, 1, ready=True)[0] is Reason.CRASH_UNDER_LOAD
    assert engine(log, 1, ready=False)[0] is Reason.NCCL_REJECTED


def test_42_a_container_is_refused_before_anything_is_started() -> None:
    """Docker's own 64 MiB, of case 42's HostConfig."""
    small = Container(image="engine", shm_size="64m")
    with pytest.raises(UsageError, match=r"SHM_TOO_SMALL 64 MiB.*`shm_size: 16g` or `ipc: host`"):
        check_room(small, 2)
    check_room(small, 1)
    check_room(Container(image="engine"), 8)
