"""One description of a server's container, written for the docker SDK and as a `docker run` command line.

Both forms are made from the same Settings, so that what an operator pastes is what the tool starts.
"""

import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launchers.containers.options import (
    ContainerOptions,
    bytes_of,
    check_passed,
    option_words,
    parse_volume,
    ulimit,
)
from launchers.launcher import Launch
from launchers.port import LOOPBACK
from results.errors import UsageError
from results.secrets import hides, looks_secret, masked

DOCKER, PODMAN = "docker", "podman"


@dataclass(frozen=True, slots=True)
class Setting:
    """A keyword of the SDK's `containers.create` with its value, and the same for `docker run`."""

    keyword: str
    value: Any
    words: tuple[str, ...]


def settings(options: ContainerOptions, launch: Launch, tool: str = DOCKER) -> Iterator[Setting]:
    """Everything but image, command and labels. Secret values are in no word."""
    if "init" not in options.options:
        # Signals reach the server as on a bare machine, and its orphans are collected.
        yield Setting("init", True, ("--init",))
    yield from _resources(options, tool)
    yield from _network(options, launch)
    yield from _volumes(options, launch)
    yield from _environment(options, launch)
    # Whatever the daemon's own default: the log is read from its first line.
    yield Setting("log_config", {"Type": "json-file"}, ("--log-driver", "json-file"))
    if options.user is not None:
        yield Setting("user", options.user, ("--user", options.user))
    if options.privileged:
        yield Setting("privileged", True, ("--privileged",))
    for name, value in options.options.items():
        yield Setting(name, value, option_words(name, value))


def _resources(options: ContainerOptions, tool: str) -> Iterator[Setting]:
    if options.gpus is not None:
        yield _gpus(options.gpus, tool)
    if options.ipc == "host":
        yield Setting("ipc_mode", "host", ("--ipc", "host"))
    else:
        yield Setting("ipc_mode", "private", ("--ipc", "private"))
        shm_size = bytes_of("container.shm_size", options.shm_size)
        yield Setting("shm_size", shm_size, ("--shm-size", str(shm_size)))
    limits = {name: ulimit(name, value) for name, value in options.ulimits.items()}
    if limits:
        values = [{"Name": name, "Soft": soft, "Hard": hard} for name, (soft, hard) in limits.items()]
        words = [w for name, (soft, hard) in limits.items() for w in ("--ulimit", f"{name}={soft}:{hard}")]
        yield Setting("ulimits", values, tuple(words))
    if options.memory is not None:
        memory = bytes_of("container.memory", options.memory)
        yield Setting("mem_limit", memory, ("--memory", str(memory)))
        if "memswap_limit" not in options.options:  # a server that swaps measures the disk
            yield Setting("memswap_limit", memory, ("--memory-swap", str(memory)))
    if options.cpus is not None:
        yield Setting("nano_cpus", round(options.cpus * 1e9), ("--cpus", f"{options.cpus:g}"))
    if options.cpuset is not None:
        yield Setting("cpuset_cpus", options.cpuset, ("--cpuset-cpus", options.cpuset))


def _gpus(gpus: str | int | tuple[str, ...], tool: str) -> Setting:
    """Docker asks NVIDIA's runtime; Podman knows GPUs by their CDI names."""
    if tool == PODMAN:
        ids = ["all"] if gpus == "all" else [*map(str, range(gpus) if isinstance(gpus, int) else gpus)]
        names = [f"nvidia.com/gpu={i}" for i in ids]
        request: dict[str, Any] = {"Driver": "cdi", "DeviceIDs": names}
        return Setting("device_requests", [request], tuple(w for n in names for w in ("--device", n)))
    capabilities = [["gpu"]]
    if isinstance(gpus, tuple):
        request = {"DeviceIDs": [*gpus], "Capabilities": capabilities}
        return Setting("device_requests", [request], ("--gpus", f'"device={",".join(gpus)}"'))
    request = {"Count": -1 if gpus == "all" else gpus, "Capabilities": capabilities}
    return Setting("device_requests", [request], ("--gpus", str(gpus)))


def _network(options: ContainerOptions, launch: Launch) -> Iterator[Setting]:
    yield Setting("network_mode", options.network, ("--network", options.network))
    if not options.is_on_host_network:
        port = launch.port
        yield Setting("ports", {f"{port}/tcp": (LOOPBACK, port)}, ("-p", f"{LOOPBACK}:{port}:{port}"))


def _volumes(options: ContainerOptions, launch: Launch) -> Iterator[Setting]:
    """The user's, and what the server reads and writes, at the same path as here."""
    own = [parse_volume(text) for text in options.volumes]
    texts = [volume.text for volume in own]
    covered = [volume.target for volume in own]
    for path in mounted(launch.reads):
        texts += [] if any(map(path.is_relative_to, covered)) else [f"{path}:{path}:ro"]
    texts += [f"{path}:{path}:rw" for path in mounted(launch.writes)]
    if texts:
        yield Setting("volumes", texts, tuple(word for text in texts for word in ("-v", text)))


def mounted(reads: Collection[Path]) -> list[Path]:
    """What must be mounted for these to be read at the same path: each once, none inside another.

    A snapshot of the Hugging Face cache links to blobs beside it: its whole repository is taken. Links
    that lead elsewhere take along the folder of what they name. Raises UsageError for a ':' in a path.
    """
    wanted = {path for read in reads for path in _with_targets(read.absolute())}
    for path in wanted:
        if ":" in str(path):
            raise UsageError(f"{path}: a path with ':' cannot be mounted into a container; rename it")
    return sorted(path for path in wanted if not any(path != w and path.is_relative_to(w) for w in wanted))


def _with_targets(path: Path) -> Iterator[Path]:
    repository = next((p for p in (path, *path.parents) if p.name.startswith("models--")), None)
    if repository is not None and (repository / "snapshots").is_dir():
        yield repository
        return
    yield path
    linked = [p for p in path.iterdir() if p.is_symlink()] if path.is_dir() else []
    for link in linked:
        target = Path(os.path.realpath(link))  # of a loop: the link itself
        if target.exists() and not target.is_relative_to(path.resolve()):
            yield target.parent


def _environment(options: ContainerOptions, launch: Launch) -> Iterator[Setting]:
    """A value of None: taken from the tool's own environment when the container is made."""
    given: dict[str, str | None] = {n: v for n, v in launch.env.items() if v is not None}
    given |= dict.fromkeys(name for name in options.pass_env if name not in launch.env)
    if given:
        words = [w for n, v in given.items() for w in ("-e", n if is_hidden(n, v) else f"{n}={v}")]
        yield Setting("environment", given, tuple(words))


def is_hidden(name: str, value: str | None) -> bool:
    """Whether a variable's value must not be shown."""
    return value is None or hides(name, value)


def program(launch: Launch, set_by_image: Collection[str] | None) -> tuple[str, ...]:
    """What runs in the container: the server, without the image's own variables that it must not have.

    `set_by_image` None: the image is not known, so all of them are taken away.
    """
    gone = [n for n, v in launch.env.items() if v is None and (set_by_image is None or n in set_by_image)]
    return (
        ("env", *(word for name in sorted(gone) for word in ("-u", name)), *launch.argv)
        if gone
        else launch.argv
    )


def create_arguments(
    options: ContainerOptions,
    launch: Launch,
    labels: Mapping[str, str],
    tool: str = DOCKER,
    set_by_image: Collection[str] | None = None,
) -> dict[str, Any]:
    """Keywords for the SDK's `containers.create`. Raises UsageError for a variable that is not set here."""
    check_passed(options)
    arguments = {s.keyword: s.value for s in settings(options, launch, tool)}
    arguments["environment"] = {
        name: os.environ[name] if value is None else value
        for name, value in arguments.get("environment", {}).items()
    }
    entrypoint, *words = program(launch, set_by_image)
    return {
        **arguments,
        "image": launch.image or options.image,
        "entrypoint": [entrypoint],
        "command": words,
        "labels": dict(labels),
    }


def docker_run_words(
    options: ContainerOptions,
    launch: Launch,
    tool: str = DOCKER,
    set_by_image: Collection[str] | None = None,
) -> tuple[str, ...]:
    """The same container as words of `docker run`; a secret variable only by its name."""
    words = [word for s in settings(options, launch, tool) for word in s.words]
    entrypoint, *rest = masked(program(launch, set_by_image))
    image = launch.image or options.image
    return (tool, "run", "--rm", *words, "--entrypoint", entrypoint, image, *rest)


def docker_run_command(options: ContainerOptions, launch: Launch, tool: str = DOCKER) -> str:
    """What an operator can paste; variables that hold a secret must be set in that shell."""
    return shlex.join(docker_run_words(options, launch, tool))


def without_secrets(text: str, options: ContainerOptions, launch: Launch) -> str:
    """A daemon's message that may quote the whole request, with the value of no secret in it."""
    values = [v for n, v in launch.env.items() if v and is_hidden(n, v)]
    values += [v for n in options.pass_env if (v := os.environ.get(n))]
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "<secret>")
    return re.sub(r"\S+", lambda word: "<secret>" if looks_secret(word[0]) else word[0], text)
