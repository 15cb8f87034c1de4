"""The collectives, and what NCCL prints when it starts."""

import os
import time
from typing import Any

READ = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_LEVEL", "NCCL_NTHREADS", "NCCL_MIN_NCHANNELS")
rank = 0


def is_nccl_available() -> bool:
    return True


def say(text: str) -> None:
    _write(f"host:{os.getpid()}:{os.getpid()} [{rank}] {text}")


def _write(line: str) -> None:
    """At once, as NCCL does where its file is buffered by line."""
    os.write(1, f"{line}\n".encode())


def init_process_group(backend: str, *, init_method: str, rank: int, world_size: int, timeout: Any) -> None:
    assert backend == "nccl"
    assert init_method.startswith("tcp://127.0.0.1:")
    assert 0 <= rank < world_size
    globals()["rank"] = rank
    if rank == 0:
        _write("NCCL version 2.28.9+cuda13.0")
    for name in READ:
        if name in os.environ:
            dot = "" if name in ("NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_LEVEL") else "."
            say(f"NCCL INFO {name} set by environment to {os.environ[name]}{dot}")
    fault = os.environ.get("NCCL_STUB", "")
    if fault == "shm":
        say(
            "misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, "
            "error: No space left on device (28)"
        )
        raise RuntimeError("NCCL error in: NCCLUtils.cpp:268, unhandled system error, NCCL version 2.28.9")
    if fault == "oom":
        raise RuntimeError("CUDA out of memory. Tried to allocate 64.00 MiB.")
    if fault == "die" and rank == 1:
        os._exit(7)


def _call(name: str) -> None:
    kind, _, which = os.environ.get("NCCL_STUB", "").partition(":")
    if kind == "die" or (kind == "hang" and which == name):
        time.sleep(600)
    if kind == "refuse" and name in which.split(","):
        told = f"No algorithm/protocol available for function {name} with datatype ncclFloat32."
        say(f"NCCL WARN {told} NCCL_ALGO was set to {os.environ.get('NCCL_ALGO')}.")
        raise RuntimeError(f"NCCL error in: ProcessGroupNCCL.cpp:3353, invalid usage\nLast error:\n{told}")


def all_reduce(_: object) -> None:
    _call("all_reduce")


def all_gather(_: object, __: object) -> None:
    _call("all_gather")


def broadcast(_: object, __: int) -> None:
    _call("broadcast")


def reduce_scatter(_: object, __: object) -> None:
    _call("reduce_scatter")
