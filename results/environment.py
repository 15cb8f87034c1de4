"""The fingerprint of where a result was measured: two results compare only if it is the same."""

import hashlib
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

PACKAGES = ("optuna", "scipy", "httptools", "msgspec", "uvloop", "psutil", "xllamacpp")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU and the settings that a result depends on. None where the driver does not tell."""

    uuid: str
    name: str
    pci_bus_id: str | None
    memory_bytes: int | None
    power_limit_w: float | None
    default_power_limit_w: float | None
    max_sm_clock_hz: float | None
    max_memory_clock_hz: float | None
    ecc: bool | None
    persistence: bool | None


@dataclass(frozen=True, slots=True)
class Gpus:
    """What NVIDIA's driver shows of this machine; empty without it."""

    devices: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None  # the newest CUDA that the driver serves, e.g. "13.1"


@dataclass(frozen=True, slots=True)
class Environment:
    """Host, software and versions; no secret, no user name, and the host's name only as a hash."""

    host: str  # short hash of the host's name
    system: str
    kernel: str
    machine: str
    cpu: str
    physical_cores: int | None
    logical_cores: int | None
    memory_bytes: int
    gpus: tuple[Gpu, ...]
    gpu_driver: str | None
    cuda_driver: str | None
    python: str
    tuner: str
    engine: str
    packages: Mapping[str, str]
    taken_at: float  # Unix time
    usable_cores: int | None = None  # logical ones that this process and its servers may run on

    @property
    def identity(self) -> str:
        """Short hash of all that must be equal for two results to be comparable."""
        parts = asdict(self)
        del parts["taken_at"]
        return short_hash(parts)


def fingerprint(
    tuner: str, engine: str, packages: Iterable[str] = PACKAGES, gpus: Gpus | None = None
) -> Environment:
    """This machine now. `tuner` and `engine` are their versions; `gpus` is what the driver shows."""
    gpus = gpus or Gpus()
    return Environment(
        host=host_hash(),
        system=_system(),
        kernel=platform.release(),
        machine=platform.machine(),
        cpu=_cpu(),
        physical_cores=psutil.cpu_count(logical=False),
        logical_cores=psutil.cpu_count(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus.devices,
        gpu_driver=gpus.driver,
        cuda_driver=gpus.cuda,
        python=sys.version.split()[0],
        tuner=tuner,
        engine=engine,
        packages=_versions(packages),
        taken_at=time.time(),
        usable_cores=usable_cores(),
    )


def host_hash() -> str:
    """Names this machine without telling its host name."""
    return short_hash(socket.gethostname())


def short_hash(value: object) -> str:
    """12 hex digits that name a JSON-able value; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.version()}"


def usable_cores() -> int | None:
    """Fewer than there are inside `taskset` or a container's cpuset; None where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text("utf-8", "replace").splitlines() if cpuinfo.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
