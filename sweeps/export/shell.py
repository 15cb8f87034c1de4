"""A shell script that starts the server, and a file of its variables."""

import shlex
from collections.abc import Iterator, Mapping

from results.errors import UsageError
from sweeps.export.deployable import Deployable, commented
from sweeps.export.server import Server

ARGS = "TUNER_ARGS"
RANK, HEAD = "TUNER_RANK", "TUNER_HEAD"  # of a server over several nodes


def command(what: Deployable) -> str:
    """A script for bash: variables, then the server in place of the shell."""
    server = what.server
    needed = [f': "${{{name}:?set it: its value was not recorded}}"' for name in server.secrets]
    lines = [
        "#!/usr/bin/env bash",
        commented(what.about).rstrip("\n"),
        "set -eu",
        *needed,
        *([f"export {' '.join(server.secrets)}"] if server.secrets else []),
    ]
    if server.container is None:
        lines += [f"unset {name}" for name in server.gone]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in server.given.items()]
    return "\n".join([*lines, *(_ranks(what) if what.nodes > 1 else [_exec(server)])]) + "\n"


def _ranks(what: Deployable) -> Iterator[str]:
    """One script for all nodes of a server."""
    yield f"# On each of {what.nodes} nodes, with its own number: {RANK}=0 {HEAD}=10.0.0.1 bash THIS_FILE"
    yield f': "${{{RANK}:?the number of this node, 0 to {what.nodes - 1}; requests go to node 0}}"'
    yield f': "${{{HEAD}:?the address of node 0 that the others reach}}"'
    yield f'case "${RANK}" in'
    for rank in range(what.nodes):
        start = _exec(what.server.of_rank(rank, HEAD)).replace(HEAD, f'"${HEAD}"')
        yield f"{rank}) {start} ;;"
    yield f'*) echo "{RANK} is ${RANK}, not 0 to {what.nodes - 1}" >&2; exit 2 ;;'
    yield "esac"


def _exec(server: Server) -> str:
    return f"exec {wrapped(server.quoted)}"


def wrapped(words: list[str]) -> str:
    """A command with each option on a line of its own."""
    text = words[0]
    for word in words[1:]:
        text += f" \\\n  {word}" if word.startswith("--") else f" {word}"
    return text


def env(what: Deployable) -> str:
    """Variables for systemd's `EnvironmentFile=` and `docker run --env-file`; one holds the arguments."""
    server = what.server
    if any(name not in server.env for name in server.secrets):
        raise UsageError("a hidden argument cannot stand in an env file: export it --as command")
    at = next((i for i, word in enumerate(server.argv) if word.startswith("--")), len(server.argv))
    program, arguments = server.argv[:at], server.argv[at:]
    use = f"systemd: EnvironmentFile=THIS_FILE and ExecStart={shlex.join(program)} ${ARGS}"
    if server.container is not None:
        use = f"docker run --env-file THIS_FILE; for all of its options: --as command; {ARGS} is for scripts"
    away = [
        f"Take {name} away from the server's environment: UnsetEnvironment={name}" for name in server.gone
    ]
    passed = [
        f"{name} holds a secret: set it where this file is used, or write it here" for name in server.secrets
    ]
    head = (
        *what.about,
        use,
        *away,
        *passed,
    )
    values: Mapping[str, str] = {**server.given, ARGS: shlex.join(arguments)}
    lines = [*server.secrets, *(f"{name}={plain(name, value)}" for name, value in values.items())]
    return commented(head) + "\n".join(lines) + "\n"


def plain(name: str, value: str) -> str:
    """A value that systemd and Docker read alike. Raises UsageError for any that they do not.

    Docker takes a line as it stands. systemd drops blanks at either end, reads quotes at the start and
    backslashes anywhere, and refuses control characters (systemd.exec(5); docker/cli, opts/file.go).
    """
    why = ""
    if any(ord(c) < 32 and c != "\t" for c in value) or "\x7f" in value:
        why = "a line break or another control character"
    elif "\\" in value:
        why = "a backslash"
    elif value != value.strip(" \t"):
        why = "a blank at its end"
    elif value[:1] in ("'", '"'):
        why = "a quote at its start"
    if why:
        raise UsageError(
            f"{name} holds {why}, which an env file cannot say to systemd and Docker alike:"
            " export it --as command"
        )
    return value
