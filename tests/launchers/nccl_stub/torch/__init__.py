"""Stands in for torch with NCCL on two GPUs: prints what NCCL prints, and fails as NCCL_STUB says.

NCCL_STUB is empty, `no_cuda`, `oom`, `shm`, `die`, `hang:COLLECTIVE` or `refuse:COLLECTIVE,...`.
"""

import os
import sys
from typing import Any

from torch import cuda, distributed

__all__ = ["Tensor", "cuda", "distributed", "empty_like", "ones"]


class Tensor:
    """Nothing but a name."""


def ones(*_: Any, **__: Any) -> Tensor:
    return Tensor()


def empty_like(_: Tensor) -> Tensor:
    return Tensor()


if os.environ.get("NCCL_STUB") == "no_torch":
    print("importing", file=sys.stderr)
    raise ImportError("libtorch_cuda.so: cannot open shared object file: No such file or directory")
