"""The fingerprint of where a result was measured: two results compare only if it is the same."""

import hashlib
import json
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
    name: str
    memory_bytes: int | None  # None where the driver does not tell


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
    python: str
    tuner: str
    engine: str
    packages: Mapping[str, str]
    taken_at: float  # Unix time

    @property
    def identity(self) -> str:
        """Short hash of all that must be equal for two results to be comparable."""
        parts = asdict(self)
        del parts["taken_at"]
        return short_hash(parts)


def fingerprint(tuner: str, engine: str, packages: Iterable[str] = PACKAGES) -> Environment:
    """This machine now. `tuner` and `engine` are their versions."""
    gpus, driver = _gpus()
    return Environment(
        host=short_hash(socket.gethostname()),
        system=_system(),
        kernel=platform.release(),
        machine=platform.machine(),
        cpu=_cpu(),
        physical_cores=psutil.cpu_count(logical=False),
        logical_cores=psutil.cpu_count(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus,
        gpu_driver=driver,
        python=sys.version.split()[0],
        tuner=tuner,
        engine=engine,
        packages=_versions(packages),
        taken_at=time.time(),
    )


def short_hash(value: object) -> str:
    """12 hex digits that name a JSON-able value; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.version()}"


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


def _gpus() -> tuple[tuple[Gpu, ...], str | None]:
    """Empty without NVIDIA's library or driver."""
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return (), None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return (), None
    try:
        count = pynvml.nvmlDeviceGetCount()
        return tuple(_gpu(pynvml, i) for i in range(count)), _text(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def _gpu(pynvml: object, index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)  # type: ignore[attr-defined]
    name = _text(pynvml.nvmlDeviceGetName(handle))  # type: ignore[attr-defined]
    try:
        return Gpu(name, int(pynvml.nvmlDeviceGetMemoryInfo(handle).total))  # type: ignore[attr-defined]
    except pynvml.NVMLError:  # type: ignore[attr-defined]  # unified memory: NOT_SUPPORTED
        return Gpu(name, None)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
