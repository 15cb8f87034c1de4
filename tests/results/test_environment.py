"""The fingerprint says what a result depends on, and nothing private."""

import getpass
import json
import socket
import sys
from dataclasses import asdict, replace

import pytest

from results.environment import Environment, fingerprint, short_hash


def taken() -> Environment:
    return fingerprint("0.1.0", "fake 1", packages=("psutil", "no-such-package"))


def test_says_what_it_runs_on() -> None:
    environment = taken()
    assert environment.python == sys.version.split()[0]
    assert (environment.tuner, environment.engine) == ("0.1.0", "fake 1")
    assert set(environment.packages) == {"psutil"}
    assert environment.memory_bytes > 0
    assert environment.cpu


def test_is_json_without_private_names() -> None:
    text = json.dumps(asdict(taken()))
    assert socket.gethostname() not in text
    assert f'"{getpass.getuser()}"' not in text


def test_identity_ignores_time_and_notices_everything_else() -> None:
    environment = taken()
    assert replace(environment, taken_at=0.0).identity == environment.identity
    for changed in (
        replace(environment, kernel="other"),
        replace(environment, engine="fake 2"),
        replace(environment, packages={}),
        replace(environment, gpu_driver="1"),
    ):
        assert changed.identity != environment.identity


def test_short_hash_does_not_depend_on_key_order() -> None:
    assert short_hash({"a": 1, "b": 2}) == short_hash({"b": 2, "a": 1})
    assert short_hash({"a": 1}) != short_hash({"a": 2})


class NvmlError(Exception):
    pass


class Nvml:
    """A driver with one GPU that does not tell its memory."""

    NVMLError = NvmlError

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"610.1"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "GB10"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> None:
        raise NvmlError


class NoDriver(Nvml):
    def nvmlInit(self) -> None:
        raise NvmlError


def test_gpus_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    environment = taken()
    assert [(gpu.name, gpu.memory_bytes) for gpu in environment.gpus] == [("GB10", None)]
    assert environment.gpu_driver == "610.1"


def test_no_driver_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", NoDriver())
    assert (taken().gpus, taken().gpu_driver) == ((), None)
