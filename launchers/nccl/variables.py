"""NCCL's environment variables worth knowing, with the values that NCCL reads.

From NCCL's user guide (docs/userguide/source/env.rst, of 2.31) and the sources of 2.31.2. Values are
strings, as in an environment. NCCL ignores most values that it cannot read, without an error: so they are
refused here.
"""

import difflib
import re
from dataclasses import dataclass

from launchers.nccl.grammar import ALGORITHMS, COLLECTIVES, PROTOCOLS, Unreadable, parse
from results.errors import UsageError
from results.records import UNSET

# Distances between GPUs, nearest first; the names in the user guide, and those it leaves out.
LEVELS = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")
MORE_LEVELS = ("NVB", "C2C", "P2C", "PXN", "0", "1", "2", "3", "4", "5")
FLAG = ("0", "1")
AUTO = ("0", "1", "2")
FREE = "any text"
NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|[0-9]+)")


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; without choices, elements and bounds any text is legal (file, list of names ...)."""

    name: str
    meaning: str
    choices: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # legal too, not worth naming
    elements: tuple[str, ...] = ()  # of a list as in NCCL_ALGO
    low: int | None = None
    high: int | None = None
    multiple_of: int = 1
    since: str = ""  # the NCCL release that brought it, if known

    @property
    def legal(self) -> str:
        """The legal values, in words."""
        if self.elements:
            names = ", ".join(self.elements)
            return f"a list of {names} (^ excludes; by collective: allreduce:{self.elements[0]})"
        if self.choices:
            return ", ".join(self.choices)
        if self.low is None and self.high is None:
            return FREE
        upto = "" if self.high is None else f" to {self.high}"
        step = "" if self.multiple_of == 1 else f", a multiple of {self.multiple_of}"
        return f"an integer from {self.low}{upto}{step}"


_P2P = (
    Variable("NCCL_P2P_DISABLE", "1: no direct access between GPUs; shared memory instead", FLAG),
    Variable("NCCL_P2P_LEVEL", "how far apart GPUs may be for direct access", LEVELS, MORE_LEVELS),
    Variable("NCCL_P2P_DIRECT_DISABLE", "1: no direct access to user buffers", FLAG),
    Variable("NCCL_P2P_USE_CUDA_MEMCPY", "1: copy engines in place of kernels", FLAG),
    Variable("NCCL_P2P_NET_CHUNKSIZE", "bytes of a send through the network", low=1, since="2.14"),
    Variable("NCCL_P2P_LL_THRESHOLD", "bytes up to which sends use LL", low=0, since="2.14"),
    Variable("NCCL_P2P_PXN_LEVEL", "when sends go through another GPU's NIC", AUTO, since="2.12"),
    Variable("NCCL_IGNORE_DISABLED_P2P", "go on where direct access is broken", AUTO),
    Variable("NCCL_NVB_DISABLE", "1: no NVLink through another GPU", FLAG, since="2.11"),
    Variable("NCCL_PXN_DISABLE", "1: no NIC of another GPU", FLAG, since="2.12"),
    Variable("NCCL_SHM_DISABLE", "1: no shared memory: the network instead, also inside a host", FLAG),
    Variable("NCCL_SHM_LOCALITY", "1: buffers at the sender, 2: at the receiver", ("1", "2")),
    Variable("NCCL_SHM_USE_CUDA_MEMCPY", "1: copy engines for shared memory", FLAG),
    Variable("NCCL_CUMEM_ENABLE", "1: GPU memory by cuMem functions", FLAG, since="2.18"),
    Variable("NCCL_CUMEM_HOST_ENABLE", "1: host memory by cuMem functions, not /dev/shm", FLAG, since="2.23"),
    Variable("NCCL_NVLS_ENABLE", "NVLink SHARP: 0 off, 1 on, 2 if supported", AUTO, since="2.17"),
    Variable("NCCL_NVLS_NCHANNELS", "channels of NVLink SHARP", low=1, high=64),
    Variable("NCCL_NVLS_CHUNKSIZE", "bytes of a step of NVLink SHARP", low=1),
    Variable(
        "NCCL_MNNVL_ENABLE", "NVLink between hosts: 0 off, 1 or fail, 2 if supported", AUTO, since="2.21"
    ),
)
_KERNELS = (
    Variable("NCCL_ALGO", "algorithms, by collective since 2.24", elements=ALGORITHMS, since="2.5"),
    Variable("NCCL_PROTO", "protocols, by collective since 2.24", elements=PROTOCOLS, since="2.5"),
    Variable("NCCL_SYM_KERNEL", "kernels for symmetric memory", since="2.31"),
    Variable("NCCL_MIN_NCHANNELS", "fewest channels (thread blocks)", low=1, high=64, since="2.5"),
    Variable("NCCL_MAX_NCHANNELS", "most channels (thread blocks)", low=1, high=64, since="2.5"),
    Variable("NCCL_MIN_NRINGS", "older name of NCCL_MIN_NCHANNELS", low=1, high=64),
    Variable("NCCL_MAX_NRINGS", "older name of NCCL_MAX_NCHANNELS", low=1, high=64),
    Variable("NCCL_MIN_CTAS", "fewest thread blocks", low=1, high=64, since="2.17"),
    Variable("NCCL_MAX_CTAS", "most thread blocks", low=1, high=64, since="2.17"),
    Variable("NCCL_CGA_CLUSTER_SIZE", "thread blocks of a cluster", low=0, high=8, since="2.16"),
    Variable("NCCL_NTHREADS", "threads of a block", low=64, high=512, multiple_of=32),
    Variable("NCCL_LL128_NTHREADS", "threads of a block of LL128", low=160, high=640, multiple_of=32),
    Variable("NCCL_THREAD_THRESHOLDS", "six sizes: Tree then Ring, LL LL128 Simple"),
    Variable("NCCL_BUFFSIZE", "bytes of a buffer between two GPUs; powers of 2", low=1),
    Variable("NCCL_CTA_POLICY", "DEFAULT, EFFICIENCY, ZERO", since="2.27"),
    Variable("NCCL_PAT_ENABLE", "algorithm PAT: 0 off, 1 on, 2 if supported", AUTO, since="2.23"),
    Variable("NCCL_MEM_SYNC_DOMAIN", "memory domain of the kernels", FLAG, since="2.16"),
    Variable("NCCL_LAUNCH_MODE", "how kernels are launched", ("PARALLEL", "GROUP"), since="2.1"),
    Variable("NCCL_LAUNCH_ORDER_IMPLICIT", "1: order of launches as in the program", FLAG, since="2.26"),
    Variable("NCCL_GRAPH_REGISTER", "1: register buffers in CUDA graphs", FLAG, since="2.11"),
    Variable(
        "NCCL_GRAPH_MIXING_SUPPORT", "1: calls in and out of CUDA graphs may overlap", FLAG, since="2.13"
    ),
    Variable("NCCL_LOCAL_REGISTER", "1: register local buffers", FLAG, since="2.19"),
    Variable("NCCL_WIN_ENABLE", "1: symmetric memory windows", FLAG, since="2.27"),
    Variable("NCCL_RUNTIME_CONNECT", "1: connect at the first call", FLAG, since="2.22"),
    Variable("NCCL_GRAPH_FILE", "XML file with rings and trees, for one number of GPUs"),
    Variable("NCCL_TOPO_FILE", "XML file with the topology", since="2.6"),
    Variable("NCCL_TUNER_PLUGIN", "library that chooses algorithms"),
    Variable("NCCL_IGNORE_CPU_AFFINITY", "1: the GPU's CPUs whatever the job has", FLAG, since="2.4.6"),
)
_NETWORK = (
    Variable("NCCL_NET", "IB, Socket, or a plugin's name", since="2.10"),
    Variable("NCCL_NET_PLUGIN", "library of a network", since="2.11"),
    Variable("NCCL_NET_GDR_LEVEL", "how far GPU and NIC may be apart for RDMA", LEVELS, MORE_LEVELS),
    Variable("NCCL_NET_GDR_READ", "1: RDMA also when sending", FLAG),
    Variable("NCCL_NET_SHARED_BUFFERS", "1: one pool of buffers for all peers", FLAG, since="2.8"),
    Variable("NCCL_DMABUF_ENABLE", "1: RDMA by dma-buf", FLAG, since="2.13"),
    Variable("NCCL_COLLNET_ENABLE", "1: collectives in the network", FLAG, since="2.6"),
    Variable("NCCL_CROSS_NIC", "rings over different NICs: 0 never, 1 yes, 2 if better", AUTO),
    Variable("NCCL_IB_DISABLE", "1: no InfiniBand or RoCE, sockets instead", FLAG),
    Variable("NCCL_IB_HCA", "adapters to use, or ^ not to use"),
    Variable("NCCL_IB_TIMEOUT", "4.096 us * 2^N", low=0, high=31),
    Variable("NCCL_IB_RETRY_CNT", "retries", low=0, high=7),
    Variable("NCCL_IB_GID_INDEX", "GID of RoCE; -1 chooses", low=-1),
    Variable("NCCL_IB_SL", "service level", low=0),
    Variable("NCCL_IB_TC", "traffic class", low=0),
    Variable("NCCL_IB_QPS_PER_CONNECTION", "queue pairs between two ranks", low=1, high=128, since="2.10"),
    Variable("NCCL_IB_SPLIT_DATA_ON_QPS", "1: split each message on them", FLAG, since="2.18"),
    Variable("NCCL_IB_PCI_RELAXED_ORDERING", "0 off, 1 or fail, 2 if supported", AUTO, since="2.12"),
    Variable("NCCL_IB_ADAPTIVE_ROUTING", "1: adaptive routing", FLAG, since="2.16"),
    Variable("NCCL_SOCKET_IFNAME", "interfaces by the start of their names, ^ excludes, = is exact"),
    Variable("NCCL_SOCKET_FAMILY", "IP version", ("AF_INET", "AF_INET6")),
    Variable("NCCL_SOCKET_NTHREADS", "threads of a socket connection", low=1, high=16),
    Variable("NCCL_NSOCKS_PERTHREAD", "sockets of a thread", low=1, high=64),
)
_DEBUGGING = (
    Variable("NCCL_DEBUG", "what NCCL prints", ("VERSION", "WARN", "INFO", "TRACE", "ABORT")),
    Variable("NCCL_DEBUG_SUBSYS", "of which parts"),
    Variable("NCCL_DEBUG_FILE", "where to"),
    Variable("NCCL_CONF_FILE", "file with variables that the environment does not set", since="2.23"),
    Variable("NCCL_CHECK_POINTERS", "1: check arguments of every call", FLAG),
    Variable("NCCL_COMM_BLOCKING", "whether calls block", FLAG, since="2.14"),
    Variable("NCCL_RAS_ENABLE", "1: monitoring threads", FLAG, since="2.24"),
)
VARIABLES = {variable.name: variable for variable in (*_P2P, *_KERNELS, *_NETWORK, *_DEBUGGING)}


def check_value(name: str, value: str) -> None:
    """Raise UsageError with the legal values if NCCL would refuse this value, or silently ignore it.

    Variables that are not in the table take any value but the empty one, which NCCL reads as its default.
    """
    if value == UNSET:
        return
    if not value:
        raise UsageError(f"{name}: an empty value means NCCL's default, which is written `{UNSET}`")
    variable = VARIABLES.get(name)
    if variable is not None and not _legal(variable, value):
        raise UsageError(f"{name}={value}: {_nearest_value(variable, value)}legal is {variable.legal}")


def nearest_name(name: str) -> str | None:
    """The known variable that an unknown NCCL_ name is most like; None for a known one, or without any."""
    if name in VARIABLES:
        return None
    close = difflib.get_close_matches(name, VARIABLES, n=1, cutoff=0.75)
    return close[0] if close else None


def unknown_note(name: str) -> str | None:
    """What to tell once of an NCCL_ name that is not in the table; None for all others."""
    if name in VARIABLES or not name.startswith("NCCL_"):
        return None
    nearest = nearest_name(name)
    hint = f" (did you mean {nearest}?)" if nearest else ""
    return f"{name} is no variable of NCCL 2.31 that is known here{hint}: its values are passed unchecked"


def integer(value: str) -> int | None:
    """A number as NCCL reads it (decimal, 0x hexadecimal); None for anything else, such as Python's `1_6`."""
    if not NUMBER.fullmatch(value):
        return None
    try:
        return int(value, 0)
    except ValueError:
        return None


def _legal(variable: Variable, value: str) -> bool:
    if variable.elements:
        try:
            parse(value, variable.elements)
        except Unreadable:
            return False
        return True
    if variable.choices:
        return value in variable.choices or value in variable.also
    if variable.low is None:
        return True
    number = integer(value)
    if number is None or number < variable.low or number % variable.multiple_of:
        return False
    return variable.high is None or number <= variable.high


def _nearest_value(variable: Variable, value: str) -> str:
    """The nearest legal value, as the start of a sentence."""
    names = variable.elements or variable.choices
    if variable.elements and (unknown := _unknown_element(variable, value)):
        value = unknown
    by_case = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(value.casefold(), by_case, n=1, cutoff=0.5)
    return f"did you mean {by_case[close[0]]}? " if close else ""


def _unknown_element(variable: Variable, value: str) -> str:
    """The first name of a list that is no element."""
    words = value.replace(";", ",").replace(":", ",").replace("^", ",").split(",")
    known = {name.casefold() for name in (*variable.elements, *COLLECTIVES)}
    return next((word for word in words if word and word.casefold() not in known), "")
