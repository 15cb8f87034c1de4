"""One module per engine: its knobs, rules, flags, read-back, counters and failure signs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from launchers.containers.command import DOCKER, PODMAN
from launchers.containers.images import Images
from launchers.engines.deploy import Deployment
from launchers.engines.engine import Engine, Instrument, Rank, Served
from launchers.group import Group
from launchers.launcher import Launch, Launcher
from launchers.place import Places, on_this_machine
from launchers.port import free_port
from launchers.process import ProcessLauncher
from results.records import Point
from results.secrets import masked

# Folders that are a container's own.
SYSTEM = ("", "bin", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr")


def engine_named(
    name: str, server: str, places: Places = on_this_machine, *, planning: bool = False
) -> Engine:
    """The engine a sweep file names. A new engine is added here and in `sweeps.sweep.Sweep.engine`.

    `server` is what the engine is started from; "" = the engine's own default. `places` says where.
    While `planning`, a model that is not on this machine is taken as it is named.
    """
    match name:
        case "fake":
            from launchers.fake import FakeEngine

            return FakeEngine()
        case "sglang":
            from launchers.engines.sglang.engine import Sglang

            return Sglang(server, places, planning=planning)
        case "vllm":
            from launchers.engines.vllm.engine import Vllm

            return Vllm(server, places=places, planning=planning)
        case _:
            from launchers.engines.llamacpp.engine import EMBEDDED, LlamaCpp

            return LlamaCpp(server or EMBEDDED, places, planning=planning)


def launcher_for(engine: Engine, run_dir: Path, places: Places = on_this_machine) -> Launcher:
    """What starts this engine's servers in these places."""
    from launchers.engines.attached import Attached

    if isinstance(engine, Attached):
        from launchers.attach import AttachLauncher

        return AttachLauncher()
    if engine.name == "fake":
        from launchers.fake import FakeEngine, FakeLauncher

        assert isinstance(engine, FakeEngine)
        return FakeLauncher(engine, ProcessLauncher(run_dir))
    if isinstance(places, Images):
        return places.launcher(run_dir)
    return ProcessLauncher(run_dir)


def deployment_of(name: str) -> Deployment:
    """How servers of the engine that a sweep file names are deployed; nothing of it need be installed."""
    match name:
        case "fake":
            from launchers.fake import DEPLOYMENT
        case "sglang":
            from launchers.engines.sglang.deploy import DEPLOYMENT
        case "vllm":
            from launchers.engines.vllm.deploy import DEPLOYMENT
        case _:
            from launchers.engines.llamacpp.deploy import DEPLOYMENT
    return DEPLOYMENT


def launch_of(
    engine: Engine, served: Served, point: Point, port: int, log_path: Path, group: Group | None = None
) -> Launch:
    """What to start for a Point; over the nodes of a group, if there is one."""
    if group is None:
        return _launch_of(engine, served, point, port, log_path)
    meeting = free_port(group.host)
    ports = (port, *(member.free_port() for member in group.members))
    ranks = [Rank(number, group.nodes, group.host, meeting) for number in range(group.nodes)]
    launches = [
        _launch_of(engine, served, point, port, _log_of(rank, log_path), rank)
        for rank, port in zip(ranks, ports, strict=True)
    ]
    return replace(launches[0], others=tuple(launches[1:]))


def _log_of(rank: Rank, log_path: Path) -> Path:
    return log_path.with_name(f"{log_path.stem}.rank{rank.number}.log") if rank.number else log_path


def _launch_of(
    engine: Engine, served: Served, point: Point, port: int, log_path: Path, rank: Rank | None = None
) -> Launch:
    argv = engine.command(point, served, port)
    argv = argv if rank is None else engine.on_node(argv, rank)
    environment = engine.environment(point, served)
    return Launch(argv, port, log_path, environment, files_read(argv, served), image=point.image)


def instrumented(launch: Launch, instrument: Instrument) -> Launch:
    """The same launch, prepared for its server to be looked into."""
    return replace(
        launch,
        argv=(*launch.argv, *instrument.words),
        env={**launch.env, **instrument.variables},
        writes=(*launch.writes, instrument.folder),
    )


def files_read(argv: Sequence[str], served: Served) -> tuple[Path, ...]:
    """Files and folders of this machine that a server must see: model, draft, and what its arguments name.

    In a plan a model may not be here yet.
    """
    models = [Path(path) for path in (served.model, served.draft) if path and Path(path).is_absolute()]
    words = [Path(word.partition("=")[2] or word) for word in argv[1:]]
    named = [path for path in words if path.is_absolute() and "".join(path.parts[1:2]) not in SYSTEM]
    return tuple(dict.fromkeys([*models, *filter(_exists, named)]))


def _exists(path: Path) -> bool:
    """Also of a word that is far too long for the name of a file."""
    try:
        return path.exists()
    except OSError:
        return False


def image_digests(places: Places, images: Collection[str | None]) -> Mapping[str, str]:
    """Digests of the images that Points name (None = the sweep's own), by name; empty without containers."""
    return places.digests(images) if isinstance(places, Images) else {}


def shown_command(launch: Launch, places: Places) -> tuple[str, ...]:
    """What an operator can start the same server with; no secret is in it."""
    return places.run_words(launch) if isinstance(places, Images) else masked(launch.argv)


def is_container(words: Sequence[str]) -> bool:
    """Whether a command line starts a container, with its variables among its words."""
    return tuple(words[:2]) in ((DOCKER, "run"), (PODMAN, "run"))
