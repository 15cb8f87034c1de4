"""vLLM over several nodes, by its own processes (the `mp` executor), one command a node.

Read from vLLM 0.32.0, `v1/executor/multiproc_executor.py`, `config/parallel.py`, `entrypoints/cli/serve.py`.
Its other way, the executor `ray`, puts the workers under the daemons of Ray: those would outlive a server
that was killed, would need Ray in the environment of the engine, and take the resources that tuner holds.
"""

import math
from collections.abc import Mapping

from launchers.engines.deploy import Argv, with_flag
from launchers.engines.engine import Rank
from launchers.engines.vllm.flags import Capabilities
from results.errors import UsageError

HEADLESS, EXECUTOR = "--headless", "--distributed-executor-backend"
NODES, NUMBER, HOST, PORT = ("--nnodes", "--node-rank", "--master-addr", "--master-port")
FLAGS = (NODES, NUMBER, HOST, PORT, HEADLESS)


def on_node(argv: Argv, rank: Rank) -> Argv:
    """The command of one node; those above 0 have no API server."""
    place = (NODES, f"{rank.nodes}", NUMBER, f"{rank.number}")
    meeting = (HOST, rank.host, PORT, f"{rank.port}")
    executor = () if EXECUTOR in argv else (EXECUTOR, "mp")
    return (*argv, *place, *meeting, *executor, *((HEADLESS,) if rank.number else ()))


def of_rank(argv: Argv, rank: int, host: str) -> Argv:
    """From the command of rank 0 that of another; see Deployment."""
    found = with_flag(with_flag(argv, NUMBER, str(rank)), HOST, host)
    return (*found, HEADLESS) if rank else found


def check(settings: Mapping[str, object], nodes: int, known: Capabilities) -> None:
    """Raises UsageError; `settings` by flag."""
    if known.flag("nnodes") is None or known.flag("headless") is None:
        raise UsageError(f"ray.nodes: vLLM {known.version} has no --nnodes: it serves on one node")
    if not known.is_named_vllm:
        raise UsageError("ray.nodes: needs the command `vllm serve`, and no distribution named vllm is there")
    if settings.get(EXECUTOR, "mp") != "mp":
        raise UsageError(f"ray.nodes: {EXECUTOR.removeprefix('--')} must be mp: leave it out")
    if _size(settings, "data") > 1:
        raise UsageError("ray.nodes: tuner starts no data-parallel replicas over several nodes")
    sizes = {name: _size(settings, name) for name in ("tensor", "pipeline", "prefill-context")}
    if math.prod(sizes.values()) % nodes:
        told = ", ".join(f"--{name}-parallel-size {size}" for name, size in sizes.items() if size > 1)
        raise UsageError(f"ray.nodes: {told or 'one rank'} does not divide over {nodes} nodes")


def _size(settings: Mapping[str, object], name: str) -> int:
    size = settings.get(f"--{name}-parallel-size", 1)
    return size if isinstance(size, int) else 1
