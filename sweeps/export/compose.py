"""A file for `docker compose` (Compose Specification)."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from launchers.containers.command import settings
from launchers.containers.options import Volume
from launchers.launcher import Launch
from sweeps.export.address import published
from sweeps.export.box import Box, box, referring
from sweeps.export.deployable import Deployable, commented
from sweeps.export.yaml_text import dump

# SDK keyword -> key of a service, where the value is written alike.
KEYS: Mapping[str, str] = {
    "init": "init",
    "ipc_mode": "ipc",
    "shm_size": "shm_size",
    "mem_limit": "mem_limit",
    "memswap_limit": "memswap_limit",
    "cpuset_cpus": "cpuset",
    "user": "user",
    "privileged": "privileged",
    "cap_add": "cap_add",
    "cap_drop": "cap_drop",
    "cgroup_parent": "cgroup_parent",
    "cgroupns": "cgroup",
    "cpu_period": "cpu_period",
    "cpu_quota": "cpu_quota",
    "cpu_rt_period": "cpu_rt_period",
    "cpu_rt_runtime": "cpu_rt_runtime",
    "cpu_shares": "cpu_shares",
    "device_cgroup_rules": "device_cgroup_rules",
    "devices": "devices",
    "dns": "dns",
    "dns_opt": "dns_opt",
    "dns_search": "dns_search",
    "domainname": "domainname",
    "extra_hosts": "extra_hosts",
    "group_add": "group_add",
    "hostname": "hostname",
    "mac_address": "mac_address",
    "mem_reservation": "mem_reservation",
    "mem_swappiness": "mem_swappiness",
    "oom_kill_disable": "oom_kill_disable",
    "oom_score_adj": "oom_score_adj",
    "pid_mode": "pid",
    "pids_limit": "pids_limit",
    "platform": "platform",
    "read_only": "read_only",
    "runtime": "runtime",
    "security_opt": "security_opt",
    "stop_signal": "stop_signal",
    "storage_opt": "storage_opt",
    "sysctls": "sysctls",
    "userns_mode": "userns_mode",
    "uts_mode": "uts",
    "volumes_from": "volumes_from",
    "working_dir": "working_dir",
}
# Written in another way below, or only there for tuner to measure.
OTHERWISE = {"device_requests", "ulimits", "nano_cpus", "network_mode", "ports", "volumes", "environment"}
OTHERWISE |= {"log_config", "tmpfs", "blkio_weight"}


def compose(what: Deployable) -> tuple[str, tuple[str, ...]]:
    """(the file, notes). Raises UsageError for what no container can have."""
    found = box(what)
    service = {key: value for key, value in _service(what, found).items() if value not in ([], {}, ())}
    document: dict[str, Any] = {
        "name": project_name(what.name),
        "services": {project_name(what.name): service},
    }
    if volumes := [v.source for v in found.volumes if v.is_named]:
        document["volumes"] = {name: {"external": True} for name in dict.fromkeys(volumes)}
    if not found.options.is_on_host_network and found.options.network != "bridge":
        document["networks"] = {found.options.network: {"external": True}}
    notes = (*found.notes, *_to_set(what, found), *_left_out(found))
    return commented((*what.about, *notes)) + dump(document), notes


def project_name(name: str) -> str:
    """A name that Compose takes: lower case, digits, - and _, a letter or digit first."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")
    return plain or "tuner"


def _service(what: Deployable, found: Box) -> dict[str, Any]:
    escaped = tuple(map(_escape, found.argv))
    argv = [referring(escaped, at, "${%s:?set it}") for at in range(len(escaped))]
    return {
        "image": _escape(found.image) if found.image else f"${{IMAGE:?{_wanted(what)}}}",
        "entrypoint": argv[:1],
        "command": argv[1:],
        "environment": {
            **{name: _escape(value) for name, value in found.given.items()},
            **{name: f"${{{name}:?set it}}" for name in found.secrets if name in what.server.env},
        },
        **_network(what, found),
        "volumes": [_volume(volume) for volume in found.volumes],
        **dict(_options(found)),
        "deploy": _deploy(found),
        "healthcheck": _healthcheck(what),
        "restart": "unless-stopped",
    }


def _escape(text: str) -> str:
    return text.replace("$", "$$")


def _wanted(what: Deployable) -> str:
    """Why an image must be named; without a character that ends the expression."""
    return re.sub(r"[^A-Za-z0-9 ._+-]+", " ", f"set IMAGE to an image with {what.engine_version}")


def _network(what: Deployable, found: Box) -> dict[str, Any]:
    if found.options.is_on_host_network:
        return {"network_mode": "host"}
    port = what.server.port
    ports = {"ports": [f"{published(what.server.host)}:{port}:{port}"]}
    own = found.options.network
    return ports if own == "bridge" else {**ports, "networks": [own]}


def _volume(volume: Volume) -> dict[str, Any]:
    """In the long form, which makes no empty folder of a source that is not there."""
    modes = volume.mode.split(",")
    found: dict[str, Any] = {"type": "volume" if volume.is_named else "bind"}
    source = volume.source if volume.is_named else str(Path(volume.source).expanduser().absolute())
    found |= {"source": _escape(source), "target": _escape(volume.target), "read_only": "rw" not in modes}
    if not volume.is_named:
        bind: dict[str, Any] = {"create_host_path": False}
        for mode in modes:
            if mode not in ("ro", "rw"):
                bind["selinux" if mode in "zZ" else "propagation"] = mode
        found["bind"] = bind
    return found


def _options(found: Box) -> Iterator[tuple[str, Any]]:
    """The container's own, made from the same settings that it was started with."""
    for setting in settings(found.options, Launch((), 0, Path())):
        name, value = setting.keyword, setting.value
        if name == "ulimits":
            yield name, {limit["Name"]: {"soft": limit["Soft"], "hard": limit["Hard"]} for limit in value}
        elif name == "nano_cpus":
            yield "cpus", value / 1e9
        elif name == "tmpfs":
            yield name, [f"{path}:{options}".rstrip(":") for path, options in value.items()]
        elif name == "blkio_weight":
            yield "blkio_config", {"weight": value}
        elif name in KEYS:
            yield KEYS[name], _plain(value)


def _plain(value: Any) -> Any:
    """Every text without an expression of Compose's own."""
    match value:
        case str():
            return _escape(value)
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
    return value


def _deploy(found: Box) -> dict[str, Any]:
    gpus = found.options.gpus
    if gpus is None:
        return {}
    some = {"device_ids": [*found.gpu_ids]} if found.gpu_ids else {"count": gpus}
    device = {"driver": "nvidia", **some, "capabilities": ["gpu"]}
    return {"resources": {"reservations": {"devices": [device]}}}


def _healthcheck(what: Deployable) -> dict[str, Any]:
    url = f"http://127.0.0.1:{what.server.port}{what.server.engine.health}"
    return {
        "test": ["CMD", *map(_escape, what.server.engine.ask(url))],
        "interval": "15s",
        "timeout": "10s",
        "retries": 4,
        "start_period": f"{patience_s(what)}s",
    }


def patience_s(what: Deployable) -> int:
    """How long a start may take: four times what it took, and never less than the sweep allowed."""
    return round(max(what.choice.sweep.patience.start_timeout_s, 4 * what.start_s))


def _to_set(what: Deployable, found: Box) -> Iterator[str]:
    if not found.image:
        yield f"To set: IMAGE, an image with {what.engine_version} (best by digest)."
    for name in found.secrets:
        yield f"To set: {name}, whose value was not recorded."


def _left_out(found: Box) -> Iterator[str]:
    for setting in settings(found.options, Launch((), 0, Path())):
        if setting.keyword not in {*KEYS, *OTHERWISE}:
            yield f"Left out, since Compose has no such key: {setting.keyword}={setting.value}."
