"""A recorded `docker run` command line read back: what `command.docker_run_words` wrote, and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from launchers.containers.command import docker_run_words
from launchers.containers.options import ContainerOptions
from launchers.launcher import Launch
from launchers.port import LOOPBACK


@dataclass(frozen=True, slots=True)
class Recorded:
    """A container as it was started. A variable of `options.pass_env` had a value that was not written."""

    tool: str
    options: ContainerOptions  # with everything that was mounted
    launch: Launch  # its image pinned; a variable of None is taken away from what the image sets

    def words(self, published_on: str = LOOPBACK) -> tuple[str, ...]:
        """The command line again; a published port on this address of the machine."""
        words = docker_run_words(self.options, self.launch, self.tool)
        port = self.launch.port
        at, to = f"{LOOPBACK}:{port}:{port}", f"{published_on}:{port}:{port}"
        return tuple(to if word == at and before == "-p" else word for before, word in _pairs(words))


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(("", *words), words, strict=False))


def read_words(words: Sequence[str], options: ContainerOptions, port: int) -> Recorded:
    """`options` as the sweep file has them; the server's own port."""
    at = words.index("--entrypoint")
    given, argv = _pairs(words[:at]), (words[at + 1], *words[at + 3 :])
    variables = [word for before, word in given if before == "-e"]
    env = dict(word.split("=", 1) for word in variables if "=" in word)
    passed = tuple(word for word in variables if "=" not in word)
    gone, argv = _taken_away(argv)
    volumes = tuple(word for before, word in given if before == "-v")
    launch = Launch(
        argv, port, Path(), {**env, **dict.fromkeys(gone)}, image=words[at + 2]
    )  # its reads are among the volumes
    return Recorded(words[0], replace(options, volumes=volumes, pass_env=passed), launch)


def _taken_away(argv: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """(variables, the rest) of `env -u A -u B server ...`."""
    gone: list[str] = []
    if argv[0] != "env":
        return gone, argv
    argv = argv[1:]
    while argv[0] == "-u":
        gone.append(argv[1])
        argv = argv[2:]
    return gone, argv
