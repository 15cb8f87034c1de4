"""NVML without a GPU: the real pynvml on a C library whose answers a test scripts."""

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from launchers.nvml import Driver, driver
from tests.missing import missing

SOURCE = Path(__file__).parent / "launchers" / "nvml_stub" / "libnvidia_ml.c"
ABSENT = 5_000_000  # pids from here on are above the kernel's highest: of no process here
SERVER, STRANGER = ABSENT + 4242, ABSENT + 77

Scripted = Callable[..., Driver]

A_GPU: dict[str, object] = {
    "uuid": "GPU-aaaa",
    "name": "RTX_4090",
    "bus": "00000000:01:00.0",
    "utilisation": 98,
    "memory_used": 20 * 2**30,
    "memory_total": 24 * 2**30,
    "power_mw": 300_000,
    "power_limit_mw": 450_000,
    "default_power_limit_mw": 450_000,
    "sm_mhz": 2500,
    "memory_mhz": 10_000,
    "max_sm_mhz": 3105,
    "max_memory_mhz": 10_501,
    "temperature": 64,
    "reasons": 0,
    "energy_mj": 5_000_000,
    "ecc": 0,
    "ecc_mode": 1,
    "persistence": 1,
    "pcie_tx": 1000,
    "pcie_rx": 2000,
    "xid": 0,
    "processes": f"{SERVER}:{20 * 2**30}",
}


def gpu(**changes: object) -> str:
    """A line of the script: a healthy GPU with changes; None takes a value away (NOT_SUPPORTED)."""
    values = {k: v for k, v in {**A_GPU, **changes}.items() if v is not None}
    return "gpu " + " ".join(f"{key}={value}" for key, value in values.items())


def script(*gpus: str) -> str:
    return "\n".join(["driver 610.43", "cuda 13010", *gpus]) + "\n"


@cache
def library(*options: str) -> Path:
    """The scripted libnvidia-ml.so.1. Without gcc the test is skipped, but fails in CI."""
    compiler = shutil.which("gcc")
    if compiler is None:
        missing("gcc is needed to build the scripted libnvidia-ml.so.1")
    built = Path(tempfile.mkdtemp(prefix="nvml-")) / "libnvidia-ml.so.1"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", *options]
    subprocess.run([compiler, *flags, "-o", str(built), str(SOURCE)], check=True)
    return built


@contextmanager
def scripted(folder: Path, *gpus: str, options: tuple[str, ...] = ()) -> Iterator[Driver]:
    """pynvml speaks to the scripted library while this is open; `options` are the compiler's."""
    import pynvml

    nvml: Any = pynvml
    path = folder / "nvml.txt"
    path.write_text(script(*gpus))
    os.environ["NVML_SCRIPT"] = str(path)
    nvml.nvmlLib = ctypes.CDLL(str(library(*options)))
    _forget(nvml)
    try:
        yield driver()
    finally:
        os.environ.pop("NVML_SCRIPT", None)
        nvml.nvmlLib = None
        _forget(nvml)


def _forget(nvml: Any) -> None:
    nvml._nvmlGetFunctionPointer_cache.clear()
    driver.cache_clear()
