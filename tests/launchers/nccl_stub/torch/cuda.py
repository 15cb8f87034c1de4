"""Two GPUs, unless NCCL_STUB_GPUS says another number."""

import os


def is_available() -> bool:
    return os.environ.get("NCCL_STUB") != "no_cuda"


def device_count() -> int:
    return int(os.environ.get("NCCL_STUB_GPUS", "2"))


def set_device(_: int) -> None:
    pass


def synchronize() -> None:
    pass
