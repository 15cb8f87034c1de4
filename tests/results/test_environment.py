"""The fingerprint says what a result depends on, and nothing private."""

import getpass
import json
import os
import socket
import sys
from dataclasses import asdict, replace

from results.environment import Environment, Gpu, Gpus, fingerprint, short_hash


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


def test_gpus_are_part_of_the_identity() -> None:
    gpu = Gpu("GPU-a", "GB10", None, None, 250.0, 250.0, None, None, None, None)
    environment = fingerprint("0.1.0", "fake 1", gpus=Gpus((gpu,), "610.1", "13.1"))
    assert (environment.gpus, environment.gpu_driver, environment.cuda_driver) == ((gpu,), "610.1", "13.1")
    limited = replace(environment, gpus=(replace(gpu, power_limit_w=200.0),))
    assert limited.identity != environment.identity


def test_no_driver_no_gpus() -> None:
    assert (taken().gpus, taken().gpu_driver, taken().cuda_driver) == ((), None, None)


def test_cores_that_may_not_be_used_are_told_apart() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        held = fingerprint("1", "engine")
    finally:
        os.sched_setaffinity(0, allowed)
    assert held.usable_cores == 1
    assert fingerprint("1", "engine").usable_cores == len(allowed)
