"""One server as a container: as it was, or a process of the machine put into an image."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from launchers.containers.command import mounted
from launchers.containers.options import ANY_ADDRESS, ContainerOptions, Volume, parse_volume
from launchers.engines import files_read
from launchers.engines.deploy import Argv
from launchers.engines.engine import Served
from launchers.gpu_choice import CONTAINER, VISIBLE
from results.secrets import HIDDEN
from sweeps.export.deployable import Deployable
from sweeps.export.server import secret_word

GPU_ID = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")


@dataclass(frozen=True)
class Box:
    """What runs in a container, and what it is given."""

    image: str  # "" = to be set by whoever starts it
    argv: Argv  # the program first; a word of HIDDEN is secret
    given: Mapping[str, str]
    secrets: tuple[str, ...]
    volumes: tuple[Volume, ...]
    options: ContainerOptions
    gpu_ids: tuple[str, ...]  # if some were named
    notes: tuple[str, ...]


def box(what: Deployable, *, pod: bool = False) -> Box:
    """`pod`: with a network of its own, and as many GPUs as it is given, whatever it had."""
    found = _as_it_was(what) if what.server.container else _of_process(what)
    if pod:
        given, _, notes = _visible_gpus(found.given)
        found = replace(found, given=given, notes=(*found.notes, *notes))
    elif found.options.is_on_host_network:
        return found
    address = what.server.engine.address
    return replace(found, argv=address(found.argv, ANY_ADDRESS, what.server.port))


def _as_it_was(what: Deployable) -> Box:
    server = what.server
    assert server.container is not None
    options = server.container.options
    ids = options.gpus if isinstance(options.gpus, tuple) else ()
    return Box(
        image=server.container.launch.image or options.image,
        argv=_without(server.gone, server.argv),
        given=server.given,
        secrets=server.secrets,
        volumes=tuple(map(parse_volume, options.volumes)),
        options=options,
        gpu_ids=ids,
        notes=(),
    )


def _of_process(what: Deployable) -> Box:
    server = what.server
    named = [Path(name) for name in server.engine.models(server.argv) if Path(name).is_absolute()]
    reads = dict.fromkeys([*named, *files_read(server.argv, Served("", None, {}, {}))])
    given, ids, notes = _visible_gpus(server.given)
    return Box(
        image="",
        argv=_without(server.gone, server.engine.in_image(server.argv)),
        given=given,
        secrets=server.secrets,
        volumes=tuple(Volume(str(path), str(path)) for path in mounted(reads)),
        options=ContainerOptions("", network="bridge", gpus=ids or what.gpus or None),
        gpu_ids=ids,
        notes=(
            "It was measured as a process of the machine: the image must hold the same engine version.",
            *notes,
        ),
    )


def _visible_gpus(given: Mapping[str, str]) -> tuple[Mapping[str, str], tuple[str, ...], tuple[str, ...]]:
    """(variables, ids of GPUs, notes): a container counts its GPUs anew, so their choice moves out of it."""
    chosen = next((given[name] for name in (VISIBLE, CONTAINER) if given.get(name)), "")
    ids = tuple(part.strip() for part in chosen.split(",") if part.strip())
    if not ids or not all(map(GPU_ID.fullmatch, ids)):
        return given, (), ()
    kept = {n: v for n, v in given.items() if n not in (VISIBLE, CONTAINER)}
    return kept, ids, (f"{VISIBLE}={chosen} became the GPUs of the container, which counts them anew.",)


def _without(gone: tuple[str, ...], argv: Argv) -> Argv:
    """Variables that the image may set, and the server must not have."""
    return ("env", *(word for name in gone for word in ("-u", name)), *argv) if gone else argv


def referring(argv: Argv, at: int, reference: str) -> str:
    """A word with its secret as a reference, written like `${%s}`."""
    name = secret_word(argv, at)
    return argv[at] if name is None else argv[at].replace(HIDDEN, reference % name)
