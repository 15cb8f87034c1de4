"""What a sweep file says of its containers, checked. Pure: no daemon is asked."""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launchers.port import LOOPBACK
from results.errors import UsageError

ANY_ADDRESS = "0.0.0.0"
UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
DEFAULT_ULIMITS: Mapping[str, int | str] = {"memlock": -1, "stack": 67108864}
ULIMITS = (
    *("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc"),
    *("rss", "rtprio", "rttime", "sigpending", "stack"),
)
VOLUME_MODES = {"ro", "rw", "z", "Z", "shared", "rshared", "slave", "rslave", "private", "rprivate"}


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """How the servers' containers are made; see `sweeps.sweep.Container` for what each key means."""

    image: str
    gpus: str | int | tuple[str, ...] | None = None  # "all", a count, or ids
    ipc: str = "private"
    shm_size: str = "16g"
    ulimits: Mapping[str, int | str] = field(default_factory=lambda: dict(DEFAULT_ULIMITS))
    network: str = "host"
    volumes: tuple[str, ...] = ()
    user: str | None = None
    memory: str | None = None
    cpus: float | None = None
    cpuset: str | None = None
    privileged: bool = False
    pass_env: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)  # by the docker SDK's names

    def __post_init__(self) -> None:
        """Raises UsageError, with the key and what may be written."""
        _check_gpus(self.gpus)
        if self.ipc not in ("private", "host"):
            raise UsageError(f"container.ipc: {self.ipc!r} is neither private nor host")
        for key, text in (("shm_size", self.shm_size), ("memory", self.memory)):
            if text is not None:
                bytes_of(f"container.{key}", text)
        if self.network in ("none", "") or self.network.startswith("container:"):
            raise UsageError(
                f"container.network: {self.network!r} cannot be reached: host, bridge or a network's name"
            )
        for name, limit in self.ulimits.items():
            ulimit(name, limit)
        for volume in self.volumes:
            parse_volume(volume)
        for name, value in self.options.items():
            option_words(name, value)

    @property
    def is_on_host_network(self) -> bool:
        return self.network == "host"

    @property
    def listens_on(self) -> str:
        """What a server inside must listen on, to be reached on this machine's loopback alone."""
        return LOOPBACK if self.is_on_host_network else ANY_ADDRESS


def _check_gpus(gpus: str | int | tuple[str, ...] | None) -> None:
    fits = {str: gpus == "all", int: isinstance(gpus, int) and gpus > 0, tuple: bool(gpus)}
    if gpus is not None and not fits.get(type(gpus), False):
        raise UsageError(f"container.gpus: {gpus!r} is neither all, nor a count, nor a list of ids or UUIDs")


def bytes_of(key: str, text: str) -> int:
    """Bytes of `16g`, `512m`, `64MiB` or a plain number. Raises UsageError that names the key."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", str(text).strip().lower())
    if match is None:
        raise UsageError(f"{key}: {text!r} is no size: write it like 16g, 512m or 64k")
    return int(float(match[1]) * UNITS[match[2]])


def shm_bytes(options: ContainerOptions) -> int:
    """Size of /dev/shm that a server sees."""
    if options.ipc == "host":
        found = os.statvfs("/dev/shm")
        return found.f_blocks * found.f_frsize
    return bytes_of("container.shm_size", options.shm_size)


def ulimit(name: str, value: int | str) -> tuple[int, int]:
    """(soft, hard). Raises UsageError."""
    if name not in ULIMITS:
        close = difflib.get_close_matches(name, ULIMITS, 1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(ULIMITS)}"
        raise UsageError(f"container.ulimits.{name}: no such limit ({hint})")
    soft, _, hard = str(value).partition(":")
    try:
        return int(soft), int(hard or soft)
    except ValueError:
        raise UsageError(
            f"container.ulimits.{name}: {value!r} is neither a number nor soft:hard (-1 is unlimited)"
        ) from None


@dataclass(frozen=True, slots=True)
class Volume:
    """A folder or file of this machine, or a named volume, inside a container."""

    source: str
    target: str
    mode: str = "ro"

    @property
    def is_named(self) -> bool:
        """Whether the daemon keeps it under a name; else it is a path of this machine."""
        return not self.source.startswith(("/", "~", "."))

    @property
    def text(self) -> str:
        """As `docker run -v` writes it."""
        source = self.source if self.is_named else str(Path(self.source).expanduser().absolute())
        return f"{source}:{self.target}:{self.mode}"


def parse_volume(text: str) -> Volume:
    """`source:target[:rw|:ro]`, read-only unless it says otherwise. Raises UsageError."""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    modes = [m for m in mode.split(",") if m]
    if not source or not target.startswith("/") or not set(modes) <= VOLUME_MODES:
        raise UsageError(
            f"container.volumes: {text!r} is not source:target or source:target:rw, with an absolute target"
        )
    if not {"ro", "rw"} & set(modes):
        modes.insert(0, "ro")
    return Volume(source, target.rstrip("/") or "/", ",".join(modes))


def missing_sources(options: ContainerOptions) -> list[str]:
    """Volumes whose source is not on this machine; a container runtime would make an empty folder of it."""
    volumes = [parse_volume(text) for text in options.volumes]
    return [v.source for v in volumes if not v.is_named and not Path(v.source).expanduser().exists()]


def check_passed(options: ContainerOptions) -> None:
    """Raises UsageError for a variable of `pass_env` that has no value where the tool runs."""
    for name in options.pass_env:
        if name not in os.environ:
            raise UsageError(
                f"container.pass_env: {name} is not set where tuner runs: export it, or leave it out"
            )


# --- further options, by the names of the docker SDK

# SDK name -> flag of `docker run`, and how a value is written for it.
FURTHER: Mapping[str, tuple[str, str]] = {
    "blkio_weight": ("--blkio-weight", "number"),
    "cap_add": ("--cap-add", "list"),
    "cap_drop": ("--cap-drop", "list"),
    "cgroup_parent": ("--cgroup-parent", "value"),
    "cgroupns": ("--cgroupns", "value"),
    "cpu_period": ("--cpu-period", "number"),
    "cpu_quota": ("--cpu-quota", "number"),
    "cpu_rt_period": ("--cpu-rt-period", "number"),
    "cpu_rt_runtime": ("--cpu-rt-runtime", "number"),
    "cpu_shares": ("--cpu-shares", "number"),
    "cpuset_mems": ("--cpuset-mems", "value"),
    "device_cgroup_rules": ("--device-cgroup-rule", "list"),
    "devices": ("--device", "list"),
    "dns": ("--dns", "list"),
    "dns_opt": ("--dns-option", "list"),
    "dns_search": ("--dns-search", "list"),
    "domainname": ("--domainname", "value"),
    "extra_hosts": ("--add-host", "pairs:"),
    "group_add": ("--group-add", "list"),
    "hostname": ("--hostname", "value"),
    "init": ("--init", "switch"),
    "mac_address": ("--mac-address", "value"),
    "mem_reservation": ("--memory-reservation", "value"),
    "mem_swappiness": ("--memory-swappiness", "number"),
    "memswap_limit": ("--memory-swap", "value"),
    "oom_kill_disable": ("--oom-kill-disable", "switch"),
    "oom_score_adj": ("--oom-score-adj", "number"),
    "pid_mode": ("--pid", "value"),
    "pids_limit": ("--pids-limit", "number"),
    "platform": ("--platform", "value"),
    "read_only": ("--read-only", "switch"),
    "runtime": ("--runtime", "value"),
    "security_opt": ("--security-opt", "list"),
    "stop_signal": ("--stop-signal", "value"),
    "storage_opt": ("--storage-opt", "pairs="),
    "sysctls": ("--sysctl", "pairs="),
    "tmpfs": ("--tmpfs", "pairs:"),
    "userns_mode": ("--userns", "host"),
    "uts_mode": ("--uts", "host"),
    "volume_driver": ("--volume-driver", "value"),
    "volumes_from": ("--volumes-from", "list"),
    "working_dir": ("--workdir", "value"),
}
_OWN_KEYS = {
    "cpuset_cpus": "container.cpuset",
    "device_requests": "container.gpus",
    "environment": "env, or container.pass_env for a secret",
    "image": "container.image",
    "ipc_mode": "container.ipc",
    "mem_limit": "container.memory",
    "mounts": "container.volumes",
    "nano_cpus": "container.cpus",
    "network": "container.network",
    "network_mode": "container.network",
    "privileged": "container.privileged",
    "shm_size": "container.shm_size",
    "ulimits": "container.ulimits",
    "user": "container.user",
    "volumes": "container.volumes",
}
_BY_THE_TOOL = {
    "auto_remove": "the tool removes the container itself, after it has read how the server ended",
    "command": "the engine's command is made from the sweep",
    "detach": "the tool follows the server itself",
    "entrypoint": "the engine's command is made from the sweep",
    "healthcheck": "the engine's own readiness is asked",
    "labels": "`tuner reap` finds a run's containers by the tool's labels",
    "log_config": "the tool streams the log to the run folder",
    "name": "the tool names every container",
    "network_disabled": "the server must be reached",
    "ports": "the tool publishes the server's port, on loopback only",
    "publish_all_ports": "the tool publishes the server's port, on loopback only",
    "restart_policy": "a server that comes back by itself cannot be measured",
    "stdin_open": "servers read no input",
    "tty": "servers have no terminal",
}


def option_words(name: str, value: object) -> tuple[str, ...]:
    """`docker run` words of a further option. Raises UsageError: unknown, the tool's own, bad value."""
    place = f"container.options.{name}"
    if name in _OWN_KEYS:
        raise UsageError(f"{place}: write {_OWN_KEYS[name]}")
    if name in _BY_THE_TOOL:
        raise UsageError(f"{place} is set by the tool: {_BY_THE_TOOL[name]}")
    if name not in FURTHER:
        close = difflib.get_close_matches(name.replace("-", "_"), [*FURTHER, *_OWN_KEYS], 1, cutoff=0.5)
        hint = f": did you mean {close[0]}?" if close else f" (known: {', '.join(FURTHER)})"
        raise UsageError(f"{place}: no such option of the docker SDK{hint}")
    flag, shape = FURTHER[name]
    return tuple(_words(place, flag, shape, value))


def _words(place: str, flag: str, shape: str, value: object) -> Sequence[str]:
    match shape, value:
        case "switch", bool():
            return [flag] if value else []
        case "list", list() | tuple():
            return [word for item in value for word in (flag, str(item))]
        case (("pairs=" | "pairs:"), Mapping()):
            return [word for k, v in value.items() for word in (flag, f"{k}{shape[-1]}{v}".rstrip(":"))]
        case "number", int() if not isinstance(value, bool):
            return [flag, str(value)]
        case "host", "host":
            return [flag, "host"]
        case "value", str() | int() | float() if not isinstance(value, bool):
            return [flag, str(value)]
    wanted = {
        "switch": "true or false",
        "list": "a list",
        "value": "one value",
        "number": "a whole number",
        "host": "host, the one value that the SDK takes",
    }.get(shape, "names with values")
    raise UsageError(f"{place}: expected {wanted}, not {value!r}")
