"""What a log says of NCCL, whatever stands in front of its lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.nccl.log import applied, cause, version_in
from launchers.nccl.variables import VARIABLES
from results.reasons import Reason

PREFIXES = (
    "",
    "host-1.example:123:456 [0] ",
    "(Worker_TP1 pid=13) host:13:13 [1] ",
    "(RayWorkerWrapper pid=539) vllm-0:539:539 [6] ",
    "2026-11-30T03:26:07.123456789Z host:1:114 [2] ",
    "[2026-04-22 21:34:20] mt-l-x86iavx512-45:202016:202235 [0] ",
    "[2026-11-30 03:25:35 TP0] ",
    "[2026-11-30 03:25:35 DP1 TP0] host:1:1 [0] ",
    "[TP0] ",
    "(EngineCore_DP0 pid=7) INFO 11-30 03:26:07 [core.py:9] ",
    "\x1b[0;36m(EngineCore_DP0 pid=7)\x1b[0;0m host:7:7 [0] ",
    "[rank0]: ",
    "::16674:17023 [0] ",
)


@pytest.mark.parametrize(
    ("log", "version"),
    [
        ("NCCL version 2.28.9+cuda13.0\n", "2.28.9+cuda13.0"),
        ("host:1:1 [0] NCCL INFO NCCL version 2.26.2+cuda12.2\n", "2.26.2+cuda12.2"),
        ("(Worker pid=1) INFO 06-12 13:10:35 [pynccl.py:63] vLLM is using nccl==2.31.2\n", "2.31.2"),
        ("[2026-11-30 03:25:35 TP0] sglang is using nccl==2.27.5\n", "2.27.5"),
        ("vLLM is using nccl==2.21.5\nNCCL version 2.27.5+cuda12.9\n", "2.27.5+cuda12.9"),
        ("ProcessGroupNCCL environments: NCCL version: 2.25.1, TORCH_NCCL_ENABLE_TIMING: 0", "2.25.1"),
        ("NCCL error in: a.cpp:1, internal error, NCCL version 2.21.5\n", "2.21.5"),
        ("NCCL version : 2.29.1 compiled with CUDA 13.0\n", "2.29.1"),
        ("RCCL version : 2.22.3-develop:4f1e1f5\n", "2.22.3-develop"),
        ("an NCCL version that nobody told\n", None),
    ],
)
def test_the_version(log: str, version: str | None) -> None:
    assert version_in(log) == version


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("suffix", ["", " [repeated 15x across cluster]", "\r"])
def test_a_variable_is_confirmed_whatever_surrounds_its_line(prefix: str, suffix: str) -> None:
    log = f"{prefix}NCCL INFO NCCL_P2P_LEVEL set by environment to NVL{suffix}\n"
    log += f"{prefix}NCCL INFO NCCL_CUMEM_ENABLE set by environment to 0.{suffix}\n"
    told = applied(log, {"NCCL_P2P_LEVEL": "NVL", "NCCL_CUMEM_ENABLE": "0", "NCCL_NTHREADS": "256"})
    assert told.applied == {"NCCL_P2P_LEVEL", "NCCL_CUMEM_ENABLE"}
    assert told.unconfirmed == {"NCCL_NTHREADS"}
    assert (told.overridden, told.unasked) == ({}, {})


def line(name: str, value: str) -> str:
    return f"host:1:1 [0] NCCL INFO {name} set by environment to {value}\n"


def test_another_value_than_asked_is_overridden_also_on_one_rank_alone() -> None:
    log = line("NCCL_ALGO", "Ring") + line("NCCL_ALGO", "Tree") + line("NCCL_NTHREADS", "256.")
    told = applied(log, {"NCCL_ALGO": "Ring", "NCCL_NTHREADS": "512"})
    assert told.overridden == {"NCCL_ALGO": "Ring, Tree", "NCCL_NTHREADS": "256"}
    assert (told.applied, told.unconfirmed) == (frozenset(), frozenset())


def test_a_config_file_sets_what_nobody_asked_for() -> None:
    log = line("NCCL_GRAPH_FILE", "/opt/microsoft/ncv4/graph.xml") + line("NCCL_PROTO", "LL")
    told = applied(log, {"NCCL_PROTO": "unset", "NCCL_ALGO": "unset"})
    assert told.unasked == {"NCCL_GRAPH_FILE": "/opt/microsoft/ncv4/graph.xml"}
    assert told.overridden == {"NCCL_PROTO": "LL"}
    assert told.applied == {"NCCL_ALGO"}


@pytest.mark.parametrize(
    ("name", "asked", "told", "same"),
    [
        ("NCCL_BUFFSIZE", "0x100000", "1048576.", True),
        ("NCCL_BUFFSIZE", "0x100000", "1048577.", False),
        ("NCCL_P2P_LEVEL", "4", "SYS", True),
        ("NCCL_P2P_LEVEL", "9", "SYS", True),
        ("NCCL_P2P_LEVEL", "3", "SYS", False),
        ("NCCL_P2P_LEVEL", "0", "LOC", True),
        ("NCCL_ALGO", "allreduce:tree,ring;allgather:ring", "allreduce:tree,ring;allgather:ring", True),
        ("NCCL_SOCKET_IFNAME", "=eth0", "eth0", False),
    ],
)
def test_values_are_compared_as_nccl_writes_them(name: str, asked: str, told: str, same: bool) -> None:
    assert (applied(line(name, told), {name: asked}).applied == {name}) is same


@pytest.mark.parametrize(
    ("name", "asked", "told", "in_effect"),
    [
        (
            "NCCL_NTHREADS",
            "100",
            "Invalid NCCL_NTHREADS 100 (must be a multiple of 32)",
            "must be a multiple of 32",
        ),
        ("NCCL_NTHREADS", "1024", "Invalid NCCL_NTHREADS 1024 (maximum 512).", "maximum 512"),
        ("NCCL_MIN_NCHANNELS", "99", "User asked for a minimum of 99 channels, limiting to 64", "64"),
        ("NCCL_MAX_NCHANNELS", "0", "User asked for a maximum of 0 channels, setting it to 1", "1"),
        ("NCCL_MIN_CTAS", "32", "minCTAs 32 is larger than maxCTAs 16, set both to 16", "16"),
        ("NCCL_MAX_CTAS", "99", "maxCTAs 99 is larger than #channels upper limit 64, cap it to 64", "64"),
        (
            "NCCL_BUFFSIZE",
            "99999999999999999999",
            "Invalid value 99999999999999999999 for NCCL_BUFFSIZE, using default -2.",
            "default -2",
        ),
    ],
)
def test_a_value_that_nccl_replaced_is_not_applied(name: str, asked: str, told: str, in_effect: str) -> None:
    said = applied(line(name, f"{asked}.") + f"host:1:1 [0] NCCL INFO {told}\n", {name: asked})
    assert said.overridden == {name: in_effect}
    assert said.applied == frozenset()


# Failures


NO_DEVICE = "NCCL error in: NCCLUtils.hpp:268, unhandled system error (run with NCCL_DEBUG=INFO for details)"


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("text", "env", "variables"),
    [
        (
            "NCCL WARN Error : no algorithm/protocol available for function AllGather with datatype "
            "ncclInt8. NCCL_ALGO was set to Tree.",
            {"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"},
            ("NCCL_ALGO",),
        ),
        (
            'NCCL WARN Unrecognized element token "rnig" when parsing "rnig"',
            {"NCCL_ALGO": "rnig", "NCCL_PROTO": "LL"},
            ("NCCL_ALGO",),
        ),
        (
            'NCCL WARN All entries except the first must have a prefix: "LL;LL128"',
            {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL;LL128"},
            ("NCCL_PROTO",),
        ),
        ("NCCL WARN XML Import Channel : dev 1 not found.", {"NCCL_GRAPH_FILE": "g"}, ("NCCL_GRAPH_FILE",)),
        (
            "NCCL WARN Could not open XML graph file /no/graph.xml : No such file or directory",
            {"NCCL_GRAPH_FILE": "/no/graph.xml", "NCCL_ALGO": "Ring"},
            ("NCCL_GRAPH_FILE",),
        ),
        (
            "NCCL WARN Failed to initialize any NET plugin",
            {"NCCL_NET": "gIB", "NCCL_ALGO": "Ring"},
            ("NCCL_NET",),
        ),
        (
            "NCCL WARN Error: network AWS Libfabric not found.",
            {"NCCL_NET": "AWS Libfabric"},
            ("NCCL_NET",),
        ),
        (
            "NCCL WARN Bootstrap : no socket interface found",
            {"NCCL_SOCKET_IFNAME": "=nowhere0", "NCCL_SOCKET_FAMILY": "unset"},
            ("NCCL_SOCKET_IFNAME",),
        ),
        (
            "NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 1",
            {"NCCL_NVLS_ENABLE": "1"},
            ("NCCL_NVLS_ENABLE",),
        ),
        ("NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000", {}, ()),
    ],
)
def test_a_refusal_names_its_line_and_its_variables(
    prefix: str, text: str, env: dict[str, str], variables: tuple[str, ...]
) -> None:
    told = f"{prefix}{text}\n{prefix}torch.distributed.DistBackendError: {NO_DEVICE}\n"
    found = cause(f"loading\n{told}", env)
    assert found is not None
    reason, evidence, offending = found
    assert reason is Reason.NCCL_REJECTED
    assert evidence.startswith(text)
    assert offending == variables


def test_variables_are_known_from_the_log_itself() -> None:
    log = line("NCCL_GRAPH_FILE", "/opt/microsoft/ncv4/graph.xml")
    log += "::16674:17023 [0] graph/search.cc:703 NCCL WARN XML Import Channel : dev 1 not found.\n"
    found = cause(log, {})
    assert found is not None
    assert found[2] == ("NCCL_GRAPH_FILE",)
    assert "graph file serves one number of GPUs" in found[1]


WATCHDOG = (
    "[rank1]:[E1130 03:25:35.1 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600351 milliseconds before "
    "timing out.\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    "  what():  NCCL watchdog thread terminated with exception: [Rank 1] Watchdog caught collective\n"
)


def test_a_time_out_is_a_hang() -> None:
    found = cause(WATCHDOG, {"NCCL_P2P_LEVEL": "SYS"})
    assert found is not None
    assert found[0] is Reason.HANG
    assert "Watchdog caught collective operation timeout" in found[1]


def test_a_refusal_comes_before_the_time_out_of_those_who_wait() -> None:
    refused = "host:1:1 [0] NCCL WARN Failed to initialize any NET plugin\n"
    found = cause(WATCHDOG + refused, {"NCCL_NET": "gIB"})
    assert found is not None
    assert found[0] is Reason.NCCL_REJECTED


def test_the_first_warning_tells_more_than_the_error() -> None:
    log = (
        "host:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.6<0>\n"
        'host:1:1 [0] NCCL WARN Missing "iommu=pt" from kernel command line which can lead to a hang!\n'
        "host:1:1 [1] misc/socket.cc:28 NCCL WARN Socket recv failed while polling for opId=0x7f\n"
        "host:1:1 [0] graph/xml.h:85 NCCL WARN Attribute busid of node nic not found\n"
        f"[rank0]: RuntimeError: {NO_DEVICE}\n"
    )
    assert cause(log, {}) == (
        Reason.NCCL_REJECTED,
        "NCCL WARN Attribute busid of node nic not found",
        (),
    )


def test_without_a_warning_what_torch_quotes_is_told() -> None:
    log = (
        "[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1, invalid usage\n"
        "[rank0]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
        "[rank0]: Last error:\n"
        "[rank0]: NCCL_MNNVL_ENABLE is 1 and MNNVL is not supported\n"
    )
    found = cause(log, {"NCCL_MNNVL_ENABLE": "1", "NCCL_ALGO": "Ring"})
    assert found is not None
    assert found[1].endswith("invalid usage: NCCL_MNNVL_ENABLE is 1 and MNNVL is not supported")
    assert found[2] == ("NCCL_MNNVL_ENABLE",)


@pytest.mark.parametrize(
    "log",
    [
        "",
        "NCCL version 2.28.9+cuda13.0\nhost:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Init COMPLETE\n",
        'host:1:1 [0] NCCL WARN Missing "iommu=pt" from kernel command line\n',
        "server_args={'nccl_port': 1, 'enable_nccl_nvls': False}\nValueError: no such model\n",
        "WARNING: destroy_process_group() was not called before program exit (ProcessGroupNCCL)\n",
        "TimeoutError: RPC call to sample_tokens timed out.\n",
        "OSError: [Errno 28] No space left on device: '/tmp/x'\n",
    ],
)
def test_nothing_is_made_of_a_log_without_a_failure_of_nccl(log: str) -> None:
    assert cause(log, {"NCCL_ALGO": "Ring"}) is None


WORDS = st.sampled_from(
    [
        *PREFIXES,
        *VARIABLES,
        "NCCL WARN ",
        "NCCL INFO ",
        " set by environment to ",
        "NCCL error",
        "Last error:",
        " was set to ",
        "posix_fallocate failed : No space left on device",
        "(size 9637888)",
        "\n",
        "\x1b[0m",
        "99999999999999999999999",
    ]
)


@given(
    st.lists(st.one_of(WORDS, st.text(max_size=8)), max_size=12).map("".join),
    st.dictionaries(st.sampled_from(sorted(VARIABLES)), st.text(max_size=6), max_size=3),
)
def test_no_text_is_too_odd(log: str, env: dict[str, str]) -> None:
    told = applied(log, env)
    assert told.applied | told.unconfirmed | told.overridden.keys() == env.keys()
    assert not told.applied & (told.unconfirmed | told.overridden.keys())
    version_in(log)
    found = cause(log, env)
    assert found is None or "\n" not in found[1]


@given(
    st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=4),
    st.sampled_from(["Ring", "16", "allreduce:tree,ring;allgather:ring", "/etc/graph.xml"]),
)
def test_a_rank_more_changes_nothing(prefixes: list[str], value: str) -> None:
    log = "".join(f"{p}NCCL INFO NCCL_X set by environment to {value}\n" for p in prefixes)
    assert applied(log, {"NCCL_X": value}).applied == {"NCCL_X"}
