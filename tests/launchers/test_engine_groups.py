"""The commands of a server over several nodes, by engine, and what does not divide."""

from pathlib import Path
from typing import Any

import pytest

from launchers.engines.attached import Attached, Found
from launchers.engines.engine import Rank, Served
from launchers.engines.llamacpp.engine import LlamaCpp
from launchers.engines.sglang import group as sglang
from launchers.engines.sglang.log import cause_from_log
from launchers.engines.vllm import group as vllm
from launchers.engines.vllm.flags import Capabilities, Flag
from results.errors import UsageError
from results.records import BASELINE, Point

FIRST, SECOND = Rank(0, 2, "10.0.0.1", 29_000), Rank(1, 2, "10.0.0.1", 29_000)


def test_sglang_meets_at_the_first_node() -> None:
    meeting = ("--dist-init-addr", "10.0.0.1:29000")
    assert sglang.words(FIRST) == ("--nnodes", "2", "--node-rank", "0", *meeting)
    assert sglang.words(SECOND) == ("--nnodes", "2", "--node-rank", "1", *meeting)


@pytest.mark.parametrize(("ready", "reason"), [(True, "CRASH_UNDER_LOAD"), (False, "START_FAILED")])
def test_sglang_says_which_of_its_processes_is_gone(ready: bool, reason: str) -> None:
    """The end of the log of rank 1, its scheduler killed."""
    gone = "Scheduler or DataParallelController 26256 terminated with -9"
    last = "[2026-11-30 23:41:31] kill_process_tree called: parent_pid=26079, include_parent=False, pid=26079"
    log = f"[2026-11-30 23:41:31] {gone}\n{last}\n"
    assert cause_from_log(log, 0, ready=ready) == (reason, gone)
    asked_to_end = log.replace("-9", "-15")
    assert cause_from_log(asked_to_end, 0, ready=ready)[1] != gone.replace("-9", "-15")


@pytest.mark.parametrize(
    ("settings", "nodes"),
    [
        ({"tp_size": 2}, 2),
        ({"tp_size": 16, "pp_size": 1}, 4),
        ({"tp_size": 8, "pp_size": 2}, 2),  # a stage on each
        ({"tp_size": 8, "pp_size": 4}, 2),  # two on each
        ({"tp_size": 8, "pp_size": 2}, 4),  # two nodes for each
        ({"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, 2),
    ],
)
def test_sglang_divides(settings: dict[str, object], nodes: int) -> None:
    sglang.check(settings, nodes)


@pytest.mark.parametrize(
    ("settings", "nodes"),
    [
        ({}, 2),
        ({"tp_size": 3}, 2),
        ({"tp_size": 4, "pp_size": 3}, 2),  # SGLang accepts it and starts two of three stages
        ({"tp_size": 6, "pp_size": 2}, 8),
    ],
)
def test_sglang_does_not_divide(settings: dict[str, object], nodes: int) -> None:
    with pytest.raises(UsageError, match=f"do not divide over {nodes} nodes"):
        sglang.check(settings, nodes)


def test_sglang_has_no_replicas_over_nodes() -> None:
    with pytest.raises(UsageError, match="data-parallel replicas"):
        sglang.check({"tp_size": 4, "dp_size": 2}, 2)


def test_vllm_has_an_api_server_on_the_first_node_alone() -> None:
    argv = ("python3", "-m", "vllm.entrypoints.cli.main", "serve", "m")
    meeting = ("--master-addr", "10.0.0.1", "--master-port", "29000", "--distributed-executor-backend", "mp")
    assert vllm.on_node(argv, FIRST) == (*argv, "--nnodes", "2", "--node-rank", "0", *meeting)
    assert vllm.on_node(argv, SECOND) == (*argv, "--nnodes", "2", "--node-rank", "1", *meeting, "--headless")


def test_vllm_is_not_told_its_executor_twice() -> None:
    argv = ("vllm", "--distributed-executor-backend", "mp")
    assert vllm.on_node(argv, FIRST).count("--distributed-executor-backend") == 1


def known(*flags: str, is_named_vllm: bool = True) -> Capabilities:
    made: Any = tuple(Flag((f"--{name}",), name, 1, False, ()) for name in flags)
    return Capabilities("0.32.0", made, {}, (), (), (), False, is_named_vllm, "cuda", "", None)


BOTH = ("nnodes", "headless")


@pytest.mark.parametrize("sizes", [{"tensor": 4}, {"tensor": 1, "pipeline": 2}, {"tensor": 3, "pipeline": 2}])
def test_vllm_divides(sizes: dict[str, int]) -> None:
    vllm.check({f"--{name}-parallel-size": size for name, size in sizes.items()}, 2, known(*BOTH))


@pytest.mark.parametrize(
    ("settings", "there", "why"),
    [
        ({}, known(*BOTH), "one rank does not divide over 2 nodes"),
        (
            {"--tensor-parallel-size": 3},
            known(*BOTH),
            "--tensor-parallel-size 3 does not divide over 2 nodes",
        ),
        ({"--tensor-parallel-size": 2}, known("headless"), "has no --nnodes"),
        ({"--tensor-parallel-size": 2}, known(*BOTH, is_named_vllm=False), "no distribution named vllm"),
        ({"--tensor-parallel-size": 2, "--data-parallel-size": 2}, known(*BOTH), "data-parallel replicas"),
        (
            {"--tensor-parallel-size": 2, "--distributed-executor-backend": "ray"},
            known(*BOTH),
            "distributed-executor-backend must be mp",
        ),
    ],
)
def test_vllm_refuses(settings: dict[str, object], there: Capabilities, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        vllm.check(settings, 2, there)


def test_others_serve_on_one_node() -> None:
    served = Served(Path("m"), None, {}, {})
    attached = Attached("http://127.0.0.1:1", Found("1", "m", Point("unknown"), {}))
    for engine in (LlamaCpp.__new__(LlamaCpp), attached):
        with pytest.raises(UsageError):
            engine.check_nodes(BASELINE, served, 2)
        with pytest.raises(UsageError):
            engine.on_node(("x",), FIRST)
