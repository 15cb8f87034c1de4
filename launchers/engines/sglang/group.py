"""SGLang over several nodes.

Read from SGLang 0.5.23, `srt/entrypoints/engine.py` (`_calculate_rank_ranges`: which ranks a node computes)
and `srt/arg_groups/validation_hook.py`. Nodes above 0 load their share, answer nothing but /health on their
own port, and end with their schedulers.
"""

from collections.abc import Mapping, Sequence

from launchers.engines.deploy import Argv, value_of, with_flag
from launchers.engines.engine import Rank
from results.errors import UsageError

NODES, NUMBER, MEETING = FLAGS = ("--nnodes", "--node-rank", "--dist-init-addr")


def words(rank: Rank) -> Sequence[str]:
    """What the command of one node has in addition."""
    return (NODES, f"{rank.nodes}", NUMBER, f"{rank.number}", MEETING, f"{rank.host}:{rank.port}")


def of_rank(argv: Argv, rank: int, host: str) -> Argv:
    """From the command of rank 0 that of another; see Deployment."""
    port = (value_of(argv, MEETING) or "").rpartition(":")[2]
    return with_flag(with_flag(argv, NUMBER, str(rank)), MEETING, f"{host}:{port}")


def check(settings: Mapping[str, object], nodes: int) -> None:
    """Raises UsageError; `settings` by field of ServerArgs.

    Whole pipeline stages on each node, or whole nodes for each stage: SGLang itself checks the product
    alone, and then leaves out ranks.
    """
    tensor, stages, replicas = (_size(settings.get(name)) for name in ("tp_size", "pp_size", "dp_size"))
    if replicas > 1 and not settings.get("enable_dp_attention"):
        raise UsageError("ray.nodes: SGLang serves no data-parallel replicas (--dp-size) over several nodes")
    nodes_of_stage, apart = divmod(nodes, stages)
    if stages % nodes and (apart or tensor % nodes_of_stage):
        raise UsageError(
            f"ray.nodes: --tp-size {tensor} and --pp-size {stages} do not divide over {nodes} nodes: each has"
            " whole pipeline stages, or whole nodes share one"
        )


def _size(value: object) -> int:
    return value if isinstance(value, int) else 1
