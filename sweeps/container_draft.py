"""The section `container` of a sweep file from the options of `docker run`, and why some are not in it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launchers.containers.options import FURTHER, ContainerOptions, bytes_of, parse_volume, ulimit
from results.errors import UsageError
from results.secrets import is_secret
from sweeps.launch_command import Container
from sweeps.shell_words import UNRESOLVED

ALIASES = {
    "c": "cpu-shares",
    "dns-opt": "dns-option",
    "h": "hostname",
    "m": "memory",
    "net": "network",
    "u": "user",
    "v": "volume",
    "w": "workdir",
}
BY_FLAG = {flag.lstrip("-"): (name, shape) for name, (flag, shape) in FURTHER.items()}
PLAIN = {"ipc": "ipc", "shm-size": "shm_size", "user": "user", "memory": "memory", "cpuset-cpus": "cpuset"}
# Left out, with the reason.
NOT_TAKEN = {
    "entrypoint": "",
    "env-file": "write its variables under env, or pass_env for the secret ones",
    "health-cmd": "the engine's own readiness is asked",
    "label": "",
    "l": "",
    "log-driver": "the log goes to the run folder",
    "p": "the port is published by the tool, on loopback only",
    "P": "the port is published by the tool, on loopback only",
    "publish": "the port is published by the tool, on loopback only",
    "publish-all": "the port is published by the tool, on loopback only",
    "pull": "an image that is not here is pulled",
    "restart": "a server that comes back by itself cannot be measured",
}


@dataclass(frozen=True)
class ContainerDraft:
    """The keys of the section, and what the command said beside them."""

    keys: Mapping[str, Any]
    left_out: Sequence[str] = ()  # options with the reason, a line each
    notes: Sequence[str] = ()


@dataclass
class _Section:
    """The section while it is filled."""

    keys: dict[str, Any]
    left_out: list[str] = field(default_factory=list)

    def drop(self, name: str, value: str, why: str) -> None:
        written = f"{'-' if len(name) == 1 else '--'}{name} {value}".replace(UNRESOLVED, "").rstrip()
        self.left_out.append(f"{written}: {why}" if why else written)


def draft_container(
    container: Container, passed: Sequence[str], holds_secret: Callable[[str], bool]
) -> ContainerDraft:
    """`passed` are variables to take from where tuner runs; an option that holds a secret is left out."""
    section = _Section({"image": container.image})
    for name, value in container.options:
        name = ALIASES.get(name, name)
        if is_secret(name) or is_secret(value.partition("=")[0]) or holds_secret(value):
            section.left_out.append(f"--{name} (a secret)")
        elif UNRESOLVED in value:
            section.drop(name, value, "its value is not in this text")
        elif name in NOT_TAKEN:
            section.drop(name, value, NOT_TAKEN[name])
        elif not _take(section, name, value):
            section.drop(name, value, "no key of this file says it")
    if passed:
        section.keys["pass_env"] = [*passed]
    return ContainerDraft(_in_order(section.keys), section.left_out, _notes(section.keys))


def _in_order(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {name: keys[name] for name in ContainerOptions.__dataclass_fields__ if name in keys}


def _take(section: _Section, name: str, value: str) -> bool:
    """Whether a key says this option; then it has it."""
    keys, plain = section.keys, value.strip("\"'")
    try:
        match name:
            case "gpus":
                keys["gpus"] = _gpus(plain)
            case "device" if plain.startswith("nvidia.com/gpu="):
                _add_cdi(keys, plain.removeprefix("nvidia.com/gpu="))
            case "volume" | "mount":
                keys.setdefault("volumes", []).append(_volume(name, value))
            case "ulimit":
                limit, _, numbers = value.partition("=")
                ulimit(limit, numbers)
                is_one = re.fullmatch(r"-?\d+", numbers) is not None
                keys.setdefault("ulimits", {})[limit] = int(numbers) if is_one else numbers
            case "network":
                ContainerOptions("image", network=value)
                keys["network"] = value
            case "cpus":
                keys["cpus"] = float(value)
            case "privileged":
                keys["privileged"] = value != "false"
            case _ if name in PLAIN:
                _take_plain(keys, PLAIN[name], value)
            case _:
                return _take_further(keys, name, value)
    except (UsageError, ValueError):
        return False
    return True


def _gpus(text: str) -> Any:
    """all, a count, or ids."""
    if text in ("all", "-1"):
        return "all"
    if "device=" in text:
        return _ids(text.partition("device=")[2].strip("\"'"))
    return int(text)


def _add_cdi(keys: dict[str, Any], text: str) -> None:
    """Podman's names of GPUs, one an option."""
    before = keys.get("gpus", [])
    keys["gpus"] = "all" if text == "all" or before == "all" else [*before, *_ids(text)]


def _ids(text: str) -> list[int | str]:
    return [int(word) if word.isdigit() else word for word in text.split(",")]


def _volume(name: str, value: str) -> str:
    """As written; docker makes what it says nothing of writable."""
    if name == "volume":
        volume = parse_volume(value)
        return f"{volume.source}:{volume.target}:{volume.mode if value.count(':') > 1 else 'rw'}"
    fields = dict(part.partition("=")[::2] for part in value.split(","))
    source = fields.get("source") or fields.get("src") or ""
    target = fields.get("target") or fields.get("destination") or fields.get("dst") or ""
    if fields.get("type", "volume") not in ("bind", "volume"):
        raise ValueError(value)
    is_read_only = any(key in fields and fields[key] != "false" for key in ("readonly", "ro"))
    volume = parse_volume(f"{source}:{target}")
    return f"{volume.source}:{volume.target}:{'ro' if is_read_only else 'rw'}"


def _take_plain(keys: dict[str, Any], key: str, value: str) -> None:
    if key in ("shm_size", "memory"):
        bytes_of(key, value)
    if key == "ipc":
        ContainerOptions("image", ipc=value)
    keys[key] = value


def _take_further(keys: dict[str, Any], name: str, value: str) -> bool:
    if name not in BY_FLAG:
        return False
    option, shape = BY_FLAG[name]
    further = keys.setdefault("options", {})
    if shape == "switch":
        further[option] = value != "false"
    elif shape == "list":
        further.setdefault(option, []).append(value)
    elif shape == "value":
        further[option] = value
    else:
        key, _, content = value.partition(shape[-1])
        further.setdefault(option, {})[key] = content
    return True


def _notes(keys: Mapping[str, Any]) -> list[str]:
    notes = []
    if "network" not in keys:
        notes.append(
            "the container gets the host's network, so that no proxy is in the path of what is measured:"
            " network: bridge is as docker does it"
        )
    if any(volume.endswith(":rw") for volume in keys.get("volumes", ())):
        notes.append("volumes are writable, as in your command: without :rw they are read-only")
    return notes
