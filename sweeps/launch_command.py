"""Where in a shell text an inference server is started, and what stands around it: variables, a container."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from results.errors import UsageError
from sweeps.shell_words import UNRESOLVED, Script, assignment, read_script

MODULES = {"sglang.launch_server": "sglang", "vllm.entrypoints.openai.api_server": "vllm"}
COMMANDS = {"sglang": "sglang", "vllm": "vllm"}  # each followed by `serve`
SCRIPTS = {"sglang/launch_server.py": "sglang", "openai/api_server.py": "vllm"}
IMAGES = {"sglang": "sglang", "vllm": "vllm", "llama.cpp": "llamacpp", "llama-cpp": "llamacpp"}
SERVERS = {"sglang": "python3", "vllm": "python3", "llamacpp": "llama-server"}
IN_IMAGE = {"llamacpp": "/app/llama-server"}  # where an engine's own image has it, if on no path
CONTAINER_TOOLS = ("docker", "podman", "nerdctl")
SHELLS = ("sh", "bash", "zsh")
SAID_ONLY = ("echo", "printf", "grep", "pgrep", "pkill", "pip", "pip3")  # name a server, start none
PLAIN_PREFIXES = ("nohup", "exec", "time", "env", "sudo", "command", "then", "else", "do", "{", "setsid")
# Options of `docker run` that take no value; every other one takes the next word.
CONTAINER_SWITCHES = (
    *("detach", "interactive", "tty", "rm", "init", "privileged", "publish-all", "quiet", "read-only"),
    *("no-healthcheck", "oom-kill-disable", "sig-proxy", "replace"),
)
SHORT_SWITCHES = "ditPq"  # may be written together: -it


@dataclass(frozen=True, slots=True)
class Container:
    """What a container gave the server, beside its environment."""

    image: str
    options: tuple[tuple[str, str], ...]  # (name without dashes, value or nothing), variables left out
    mounts: Mapping[str, str]  # folder inside -> folder of this machine
    passed: tuple[str, ...]  # variables that come from the caller's environment


@dataclass(frozen=True, slots=True)
class ServerStart:
    """One start of a server."""

    engine: str
    server: str  # interpreter or binary, as written
    words: tuple[str, ...]  # what the server is given
    env: Mapping[str, str]
    prefix: tuple[str, ...] = ()  # what it is started under, e.g. numactl
    container: Container | None = None
    assigned: Mapping[str, str] = field(default_factory=dict)  # variables that the text sets anywhere
    branches: bool = False  # the text has lines that may not run


def find_server(text: str, variables: Mapping[str, str]) -> ServerStart:
    """The one server that the text starts.

    Raises UsageError if there is none, or more than one.
    """
    script = read_script(text, variables)
    found = _only(_servers(script, variables))
    if found is None:
        raise UsageError(_nothing_found(script.commands))
    return found


def _only(found: Sequence[ServerStart]) -> ServerStart | None:
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} servers are started ({', '.join(start.engine for start in found)}):"
            " give the command of one of them"
        )
    return found[0] if found else None


def _servers(script: Script, variables: Mapping[str, str]) -> list[ServerStart]:
    exported: dict[str, str] = {}
    activated: str | None = None  # folder of programs of the virtual environment
    found: list[ServerStart] = []
    for words in script.commands:
        if words[0] == "export":
            exported.update(filter(None, map(assignment, words)))
        elif words[0] in ("source", ".") and len(words) > 1 and words[1].endswith("/bin/activate"):
            activated = words[1].removesuffix("/activate")
        elif start := _start(words, variables):
            found.append(
                replace(
                    start,
                    server=_of_venv(start, activated),
                    env=start.env if start.container else {**exported, **start.env},
                    assigned={**script.variables, **start.assigned},
                    branches=script.branches or start.branches,
                )
            )
    return found


def _of_venv(start: ServerStart, activated: str | None) -> str:
    in_venv = activated is not None and start.container is None and start.server in ("python", "python3")
    return f"{activated}/python" if in_venv else start.server


def _nothing_found(commands: Sequence[Sequence[str]]) -> str:
    known = "`python -m sglang.launch_server`, `sglang serve`, `vllm serve`, `llama-server`, or a container"
    if not commands:
        return f"the command is empty: expected {known}"
    program = next((word for word in commands[-1] if assignment(word) is None), commands[-1][0])
    name = PurePosixPath(program).name  # anything but a plain word may tell a secret
    runs = f"the command runs {name!r}: " if re.fullmatch(r"[\w.+-]+", name) else ""
    return (
        f"no start of a known engine found, {runs}expected {known} (a compose file or manifest is not read)"
    )


def _start(words: Sequence[str], variables: Mapping[str, str]) -> ServerStart | None:
    """The server start in the words of one command."""
    if words[0] in SAID_ONLY or words[:2] == ["uv", "pip"]:
        return None
    for at, word in enumerate(words):
        program, rest = PurePosixPath(word).name, words[at + 1 :]
        found = (
            _container(program, rest, variables)
            or _direct(word, program, rest)
            or _inside_shell(program, rest, variables)
        )
        if found is not None:
            return _below(found, words[:at])
    return None


def _below(start: ServerStart, prefix: Sequence[str]) -> ServerStart:
    """The start with the variables set before it; other words before it are kept as its prefix."""
    env = dict(filter(None, map(assignment, prefix)))
    others = [word for word in prefix if assignment(word) is None]
    while others and (others[0] in PLAIN_PREFIXES or others[0].startswith("-")):
        del others[0]
    return replace(start, env={**env, **start.env}, prefix=(*others, *start.prefix))


def _direct(word: str, program: str, rest: Sequence[str]) -> ServerStart | None:
    if re.fullmatch(r"python[\d.]*(\.exe)?", program):
        return _python(word, rest)
    if program in COMMANDS and rest[:1] == ["serve"]:
        beside = word.rpartition("/")[0]
        server = f"{beside}/python" if beside else SERVERS[COMMANDS[program]]
        return ServerStart(COMMANDS[program], server, tuple(rest[1:]), {})
    if program.removesuffix(".exe") == "llama-server":
        return ServerStart("llamacpp", word, tuple(rest), {})
    return None


def _python(interpreter: str, rest: Sequence[str]) -> ServerStart | None:
    for at, word in enumerate(rest):
        if word == "-m" and at + 1 < len(rest):
            engine, words = MODULES.get(rest[at + 1]), rest[at + 2 :]
            return ServerStart(engine, interpreter, tuple(words), {}) if engine else None
        if not word.startswith("-"):  # a script in place of a module
            if PurePosixPath(word).name in COMMANDS and list(rest[at + 1 : at + 2]) == ["serve"]:
                return ServerStart(COMMANDS[PurePosixPath(word).name], interpreter, tuple(rest[at + 2 :]), {})
            engine = next((e for path, e in SCRIPTS.items() if word.endswith(path)), None)
            return ServerStart(engine, interpreter, tuple(rest[at + 1 :]), {}) if engine else None
    return None


def _inside_shell(program: str, rest: Sequence[str], variables: Mapping[str, str]) -> ServerStart | None:
    """`bash -c "..."`."""
    if program not in SHELLS or len(rest) < 2 or not re.fullmatch(r"-\w*c", rest[0]):
        return None
    return _only(_servers(read_script(_shown(rest[1]), variables), variables))


def _container(program: str, rest: Sequence[str], variables: Mapping[str, str]) -> ServerStart | None:
    if program not in CONTAINER_TOOLS or "run" not in rest[:3]:
        return None
    options, image, command = _container_options(rest[rest.index("run") + 1 :])
    entrypoint = [value for name, value in options if name == "entrypoint"]
    start = _start([*entrypoint, *command] or ["true"], variables) or _image_start(image, command)
    given = [value for name, value in options if name in ("e", "env")]
    return replace(
        start,
        env={**dict(filter(None, map(assignment, given))), **start.env},
        container=Container(
            image=image,
            options=tuple(pair for pair in options if not _is_of_no_use(*pair)),
            mounts=dict(filter(None, (_mount(name, value) for name, value in options))),
            passed=tuple(name for name in given if "=" not in name),
        ),
    )


def _is_of_no_use(name: str, value: str) -> bool:
    """Whether an option says nothing that the server could miss; its variables are kept apart."""
    return name in ("e", "env", "rm", "detach", "name") or (not value and set(name) <= set(SHORT_SWITCHES))


def _shown(word: str) -> str:
    return word.replace(UNRESOLVED, "")


def _image_start(image: str, command: Sequence[str]) -> ServerStart:
    """An image whose entrypoint is the server."""
    engine = next((engine for part, engine in IMAGES.items() if part in image), None)
    if engine is None:
        raise UsageError(f"the container of {_shown(image)} starts no known engine: name its server command")
    words = command[1:] if command[:1] == ["serve"] else command
    return ServerStart(engine, IN_IMAGE.get(engine, SERVERS[engine]), tuple(words), {})


def _container_options(words: Sequence[str]) -> tuple[list[tuple[str, str]], str, Sequence[str]]:
    """(option, value) pairs, the image, the command inside."""
    options: list[tuple[str, str]] = []
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].lstrip("-").partition("=")
        short = not words[at].startswith("--")
        if short and len(name) > 1 and name[0] in "evpuwmlh":  # -p8000:8000, -eNAME=value
            name, equals, value = name[0], "=", words[at][2:].removeprefix("=")
        if not equals and not (name in CONTAINER_SWITCHES or (short and set(name) <= set(SHORT_SWITCHES))):
            at += 1
            value = words[at] if at < len(words) else ""
        options.append((name, value))
        at += 1
    if at >= len(words):
        raise UsageError("the container command names no image")
    return options, words[at], words[at + 1 :]


def _mount(name: str, value: str) -> tuple[str, str] | None:
    """(folder inside, folder of this machine) of -v and --mount."""
    if name in ("v", "volume"):
        outside, _, inside = value.partition(":")
        return (inside.partition(":")[0].rstrip("/"), outside.rstrip("/")) if inside else None
    if name == "mount":
        fields = dict(field.partition("=")[::2] for field in value.split(","))
        source = next((fields[key] for key in ("source", "src") if key in fields), "")
        inside = next((fields[key] for key in ("target", "destination", "dst") if key in fields), "")
        return (inside.rstrip("/"), source.rstrip("/")) if source and inside else None
    return None
