"""Run inside the engine's own Python with the server's environment: does NCCL start, and answer?

Started as source text, so it imports nothing of this project, only torch and the standard library:

    python -c SOURCE RANKS DEADLINE_S

One process for each rank, on GPUs 0 to RANKS - 1, rendezvous on the loopback interface. What NCCL prints goes
to stdout, and so does one line for each thing that happened, `@tuner {...}`:

    {"rank": 0, "ready": true}                                 torch is imported, the GPU is there
    {"rank": 0, "collective": "all_reduce small", "error": null}
    {"rank": 0, "finished": true}
    {"unavailable": "no CUDA device"}                          nothing was tried
    {"rank": 0, "unfinished": true}                            ended at the deadline: a deadlock

The deadline counts from when a rank is ready. A rank that is left behind by another's failure is ended soon
after. Exit code 0: all ranks finished.
"""

import ctypes
import datetime
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

SMALL = 1024  # elements of 4 bytes: a decoding step, LL's size
LARGE = 16 * 1024 * 1024  # a long prefill, Simple's size
LEFT_BEHIND_S = 5.0


def tell(event: Mapping[str, object]) -> None:
    """One line by one write, also where another rank has not ended its line."""
    os.write(1, f"\n@tuner {json.dumps(event)}\n".encode())


def unavailable(ranks: int) -> str | None:
    """Why NCCL cannot be tried here; None if it can."""
    try:
        torch = import_module("torch")
        distributed = import_module("torch.distributed")
    except (ImportError, OSError) as error:
        return str(error).splitlines()[0]
    if not torch.cuda.is_available():
        return "no CUDA device"
    if not distributed.is_nccl_available():
        return "torch was built without NCCL"
    found = torch.cuda.device_count()
    return f"{found} GPUs for {ranks} ranks" if found < ranks else None


def collectives(torch: Any, ranks: int, device: str) -> dict[str, Callable[[], object]]:
    """What to call, what every engine needs first."""
    distributed = torch.distributed
    small, large = torch.ones(SMALL, device=device), torch.ones(LARGE, device=device)
    parts = [torch.empty_like(small) for _ in range(ranks)]
    return {
        "all_reduce small": lambda: distributed.all_reduce(small),
        "all_reduce large": lambda: distributed.all_reduce(large),
        "all_gather": lambda: distributed.all_gather(parts, small),
        "broadcast": lambda: distributed.broadcast(small, 0),
        "reduce_scatter": lambda: distributed.reduce_scatter(small, parts),
    }


def one_rank(rank: int, ranks: int, port: int, deadline_s: int) -> None:
    torch = import_module("torch")
    device = f"cuda:{rank}"
    torch.cuda.set_device(rank)
    tell({"rank": rank, "ready": True})
    signal.alarm(deadline_s)  # its default action ends a process even inside a deadlocked call
    torch.distributed.init_process_group(
        "nccl",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=2 * deadline_s),
    )
    for name, call in collectives(torch, ranks, device).items():
        tell({"rank": rank, "collective": name, "error": error_of(torch, call)})
    tell({"rank": rank, "finished": True})


def error_of(torch: Any, call: Callable[[], object]) -> str | None:
    """None if the collective did its work."""
    try:
        call()
        torch.cuda.synchronize()
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return " ".join(lines[:1] + lines[-1:])[:500]
    return None


def start(rank: int, ranks: int, port: int, deadline_s: int) -> int:
    """Process id of a new rank. It never returns here: ending by itself could wait for other ranks."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        why = unavailable(ranks)
        if why is None:
            one_rank(rank, ranks, port, deadline_s)
            code = 0
        elif rank == 0:
            tell({"unavailable": why})
    except (RuntimeError, OSError, ValueError) as error:
        os.write(1, f"{type(error).__name__}: {error}\n".encode())
    finally:
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)  # what NCCL wrote by C's stdout
        os._exit(code)


def wait(ranks_by_pid: dict[int, int]) -> int:
    """The worst exit code. Once a rank has failed the others have LEFT_BEHIND_S."""
    worst, until = 0, None
    while ranks_by_pid:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            rank = ranks_by_pid.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            if code == -signal.SIGALRM and not worst:  # else it waited for one that failed
                tell({"rank": rank, "unfinished": True})
            if code:
                worst = worst or (1 if code < 0 else code)
                until = until or time.monotonic() + LEFT_BEHIND_S
        elif until and time.monotonic() > until:
            for left in ranks_by_pid:
                os.kill(left, signal.SIGKILL)
            until = float("inf")
        else:
            time.sleep(0.05)
    return worst


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def main() -> None:
    ranks, deadline_s = int(sys.argv[1]), max(1, int(float(sys.argv[2])))
    port = free_port()
    pids = {start(rank, ranks, port, deadline_s): rank for rank in range(ranks)}
    sys.exit(wait(pids))


if __name__ == "__main__":
    main()
