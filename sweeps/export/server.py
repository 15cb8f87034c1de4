"""A server of a run as it was last started, from the records alone: what to start to have it again."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from launchers.containers.options import ContainerOptions
from launchers.containers.recorded import Recorded, read_words
from launchers.engines import deployment_of, is_container
from launchers.engines.deploy import Argv, Deployment, value_of
from launchers.port import LOOPBACK
from results.records import Block, Point
from results.secrets import HIDDEN, hides
from sweeps.export.address import published
from sweeps.sweep import Sweep


@dataclass(frozen=True)
class Server:
    """What to start. A variable of HIDDEN has a value that was not recorded; one of None is taken away."""

    engine: Deployment
    argv: Argv  # of the server itself, in a container too
    env: Mapping[str, str | None]
    port: int
    host: str = LOOPBACK
    container: Recorded | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """Variables that whoever starts it must set: of its environment, and for words of its arguments."""
        of_words = [name for word in range(len(self.argv)) if (name := secret_word(self.argv, word))]
        return (*(name for name, value in self.env.items() if value == HIDDEN), *of_words)

    @property
    def given(self) -> Mapping[str, str]:
        """Variables with the values they get, without the secrets."""
        return {n: v for n, v in self.env.items() if v is not None and v != HIDDEN}

    @property
    def gone(self) -> tuple[str, ...]:
        """Variables that are taken away."""
        return tuple(name for name, value in self.env.items() if value is None)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words of the command, of a container all of `docker run`; variables of a process apart."""
        if self.container is None:
            return self.argv
        launch = replace(self.container.launch, argv=self.argv, port=self.port)
        here = replace(self.container, launch=launch)
        return here.words(self.host if here.options.is_on_host_network else published(self.host))

    @property
    def one_line(self) -> str:
        """For a shell; a secret is taken from a variable of that shell."""
        if self.container is not None:
            return " ".join(self.quoted)
        given = [f'{n}="${n}"' if v == HIDDEN else f"{n}={shlex.quote(v)}" for n, v in self._set.items()]
        away = [word for name in self.gone for word in ("-u", name)]
        return " ".join([*given, *(["env", *away] if away else []), *self.quoted])

    @property
    def _set(self) -> Mapping[str, str]:
        return {n: v for n, v in self.env.items() if v is not None}

    @property
    def quoted(self) -> list[str]:
        """The words as a shell takes them, secrets as references to variables."""
        return [_quoted(self.words, at) for at in range(len(self.words))]

    def of_rank(self, rank: int, host: str) -> "Server":
        """Of a server over several nodes the command of a rank; `host` is where rank 0 is met."""
        return replace(self, argv=self.engine.of_rank(self.argv, rank, host))

    def at(self, host: str, port: int) -> "Server":
        """The same at another address; in a container of a network of its own, published there."""
        inside = host
        if self.container is not None and not self.container.options.is_on_host_network:
            inside = self.container.options.listens_on
        return replace(self, argv=self.engine.address(self.argv, inside, port), port=port, host=host)


def secret_word(argv: Sequence[str], at: int) -> str | None:
    """The variable that stands for a hidden word of a command line, named after its flag; None = not one."""
    if HIDDEN not in argv[at]:
        return None
    flag = argv[at].partition("=")[0] if argv[at].startswith("-") else argv[at - 1 : at][0]
    return re.sub(r"[^A-Z0-9]+", "_", flag.strip("-").upper()).strip("_") or "SECRET"


def _quoted(words: Sequence[str], at: int) -> str:
    name = secret_word(words, at)
    if name is None:
        return shlex.quote(words[at])
    before, _, after = words[at].partition(HIDDEN)
    return "".join([shlex.quote(before) if before else "", f'"${name}"', shlex.quote(after) if after else ""])


def recorded(point: Point, sweep: Sweep, blocks: Sequence[Block]) -> Server | None:
    """The server of a Point as it was last started; None if none was, or if somebody else runs it."""
    words = next((arm.argv for b in reversed(blocks) if (arm := b.arm(point)) and arm.argv), ())
    if not words or sweep.launcher == "attach":
        return None
    engine = deployment_of(sweep.engine)
    if is_container(words):
        return _in_container(words, engine, sweep)
    env = {**sweep.env, **point.variables}
    shown = {n: HIDDEN if v is not None and _hides(n, v) else v for n, v in env.items()}
    return Server(engine, words, shown, port_of(words))


def _in_container(words: Sequence[str], engine: Deployment, sweep: Sweep) -> Server:
    options = sweep.container.to_options() if sweep.container else ContainerOptions("")
    found = read_words(words, options, port_of(words))
    env = {**found.launch.env, **dict.fromkeys(found.options.pass_env, HIDDEN)}
    return Server(engine, found.launch.argv, env, found.launch.port, container=found)


def port_of(words: Sequence[str]) -> int:
    """Where the server listened while it was measured."""
    return int(value_of(words, "--port") or words[-1])


def without(server: Server, names: frozenset[str]) -> Server:
    """The same without some variables."""
    kept = {n: v for n, v in server.env.items() if n not in names}
    if server.container is None:
        return replace(server, env=kept)
    launch = server.container.launch
    inner = replace(launch, env={n: v for n, v in launch.env.items() if n not in names})
    return replace(server, env=kept, container=replace(server.container, launch=inner))


def _hides(name: str, value: str) -> bool:
    """Also of a value that was hidden when the sweep was written down."""
    return value == HIDDEN or hides(name, value)
