"""A draft of a sweep file from the command that a user starts a server with: text in, Draft out.

Nothing is run and no secret is kept. `sweeps.draft_file` writes the Draft as YAML.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from launchers.engines.command_line import Reading, Searched
from launchers.engines.llamacpp.cli import read_llamacpp
from launchers.engines.sglang.cli import read_sglang
from launchers.engines.vllm.cli import read_vllm
from results.errors import UsageError
from results.records import KnobValue
from results.secrets import is_secret, looks_secret
from sweeps.container_draft import ContainerDraft, draft_container
from sweeps.launch_command import Container, ServerStart, find_server
from sweeps.shell_words import UNRESOLVED

READERS: Mapping[str, Callable[[Sequence[str]], Reading]] = {
    "sglang": read_sglang,
    "vllm": read_vllm,
    "llamacpp": read_llamacpp,
}
UNUSED = ("host", "port", "served-model-name")  # dropped, whatever their value
BINDERS = ("numactl", "taskset", "nice", "ionice", "chrt")
RUNNERS = ("uv", "poetry", "pdm", "pixi", "conda", "mamba", "micromamba")
SHORTEST_SECRET = 6  # characters; a shorter one (EMPTY, x) stands in harmless words too


@dataclass(frozen=True, slots=True)
class Draft:
    """What the sweep file will say: no secret and no shell variable is in it."""

    name: str
    engine: str
    server: str
    model: str
    draft: str | None
    args: Mapping[str, KnobValue]
    env: Mapping[str, str]
    space: Sequence[Searched]
    container: ContainerDraft | None
    notes: Sequence[str]


def draft_sweep(text: str, variables: Mapping[str, str]) -> Draft:
    """The sweep that a launch command describes; `variables` are the shell's that may be used (HOME ...).

    Raises UsageError: no server, an unknown engine, a flag without its value, a variable without one.
    """
    start = find_server(_checked_text(text), variables)
    _check_variables(start.words)
    _check_image(start)
    secrets = _secrets(start)
    reading = READERS[start.engine](start.words)
    notes = [*_start_notes(start, reading), *reading.notes]
    paths = _Paths(start.container)
    env = _environment(start, secrets, notes)
    container = _container(start, reading, secrets)
    return Draft(
        name=_run_name(reading.model),
        engine=start.engine,
        server=_open(secrets, "the server", start.server),
        model=paths.outside(_open(secrets, "the model", reading.model)),
        draft=paths.outside(_open(secrets, "the draft model", reading.draft)) if reading.draft else None,
        args=_fixed_arguments(reading.args, secrets, notes),
        env=env,
        space=reading.space,
        container=container,
        notes=[
            note
            for note in [*notes, *(container.notes if container else ()), *paths.notes]
            if not secrets.within(note)
        ],
    )


def _checked_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError("the command is not valid text (UTF-8)") from None
    if re.search(r"(?<![\w'\"])[A-Za-z]:\\\w", text):
        raise UsageError("a path has backslashes, which a shell drops: write C:/models/x")
    return text


def _run_name(model: str) -> str:
    last = model.rstrip("/").rpartition("/")[2].removesuffix(".gguf")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).lstrip("._-")[:60] or "sweep"


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every word with the flag it stands behind; a flag `--x=y` with its own value."""
    flag = ""
    for word in words:
        if word.startswith("-"):
            flag, _, value = word.partition("=")
            yield flag, value
        else:
            yield flag, word


def _check_variables(words: Sequence[str]) -> None:
    for flag, value in _pairs(words):
        unused = flag.lstrip("-").replace("_", "-") in UNUSED or is_secret(flag)
        reference = re.search(UNRESOLVED + r"(\$\w+|\$\{[^}]*\}|\S*)", value)
        where = flag or "the server's first argument"
        if reference and not unused:
            raise UsageError(
                f"{where}: {reference[1]} has no value in this text: set the variable above the command,"
                " write its value, or read the running server's own: --from /proc/PID/cmdline"
            )
        if re.fullmatch(r"<[\w./ -]+>", value) and not unused:
            raise UsageError(f"{where}: replace the placeholder {value}")


def _check_image(start: ServerStart) -> None:
    image = start.container.image if start.container else ""
    if UNRESOLVED in image:
        raise UsageError(
            f"the image {image.replace(UNRESOLVED, '')} has no value in this text: set the variable above the"
            " command, or write its value"
        )


# --- secrets


@dataclass(frozen=True, slots=True)
class _Secrets:
    """Values that were named as secrets somewhere in the command."""

    values: frozenset[str]

    def within(self, text: str) -> bool:
        return looks_secret(text) or any(value in text for value in self.values)


def _secrets(start: ServerStart) -> _Secrets:
    options = start.container.options if start.container else ()
    named = [*_pairs(start.words), *start.assigned.items(), *start.env.items(), *options]
    named += [value.partition("=")[::2] for _, value in named]
    return _Secrets(frozenset(v for name, v in named if is_secret(name) and len(v) >= SHORTEST_SECRET))


def _open(secrets: _Secrets, what: str, value: str) -> str:
    if secrets.within(value):
        raise UsageError(f"{what} holds a secret, which no sweep file may: give it by a name or path without")
    return value


def _has_secret_key(value: KnobValue) -> bool:
    """Whether a JSON text has a key that names a secret."""
    try:
        content = json.loads(value) if isinstance(value, str) and "{" in value else None
    except (json.JSONDecodeError, RecursionError):
        return False
    keys: list[str] = []
    open_ones = [content]
    while open_ones:
        here = open_ones.pop()
        keys += here if isinstance(here, dict) else ()
        open_ones += here.values() if isinstance(here, dict) else here if isinstance(here, list) else ()
    return any(is_secret(key) for key in keys)


def _fixed_arguments(
    args: Mapping[str, KnobValue], secrets: _Secrets, notes: list[str]
) -> dict[str, KnobValue]:
    kept: dict[str, KnobValue] = {}
    for name, value in args.items():
        if name == "hf-token":
            notes.append(
                "--hf-token is a secret, left out: set HF_TOKEN where tuner runs, its servers get it"
            )
        elif is_secret(name) or secrets.within(str(value)) or _has_secret_key(value):
            notes.append(f"--{name} holds a secret, left out: tuner's own servers listen on loopback only")
        else:
            kept[name] = value
    return kept


# --- what stands around the server


def _environment(start: ServerStart, secrets: _Secrets, notes: list[str]) -> dict[str, str]:
    kept: dict[str, str] = {}
    for name, value in start.env.items():
        how = "its container gets it (pass_env)" if start.container else "its servers inherit it"
        if is_secret(name) or secrets.within(value):
            notes.append(f"{name} is a secret, left out: set it where tuner runs, {how}")
        elif UNRESOLVED in value:
            notes.append(f"{name} is left out, its value is not in this text: set it where tuner runs, {how}")
        else:
            kept[name] = value
    return kept


def _container(start: ServerStart, reading: Reading, secrets: _Secrets) -> ContainerDraft | None:
    if start.container is None:
        return None
    image = _open(secrets, "the image", start.container.image)
    hidden = [n for n, v in start.env.items() if is_secret(n) or secrets.within(v) or UNRESOLVED in v]
    hidden += ["HF_TOKEN"] if "hf-token" in reading.args else []
    passed = [name for name in dict.fromkeys([*start.container.passed, *hidden]) if not secrets.within(name)]
    return draft_container(replace(start.container, image=image), passed, secrets.within)


def _start_notes(start: ServerStart, reading: Reading) -> list[str]:
    notes = []
    if start.container:
        notes += [
            f"{name} comes from the caller's environment (pass_env): set it where tuner runs"
            for name in start.container.passed
        ]
    if start.prefix:
        notes.append(_prefix_note(start.prefix))
    if start.branches:
        notes.append(
            "the script has branches (if, case, for): every line was read as if it ran, check the values"
        )
    if "config" in reading.args:
        notes.append("--config names a file with further settings, which were not read here")
    return notes


def _prefix_note(prefix: Sequence[str]) -> str:
    written, program = " ".join(prefix), prefix[0].rpartition("/")[2]
    if program in BINDERS:
        return f"the command runs under `{written}`: put that before `tuner sweep`, whose servers inherit it"
    if program in RUNNERS:
        return f"`server` must be the Python that `{written}` takes: `{written} which python` prints it"
    return f"the command runs under `{written}`: tuner starts the server without it"


@dataclass(frozen=True, slots=True)
class _Paths:
    """Paths inside a container, and where its volumes have them on this machine."""

    container: Container | None
    notes: list[str] = field(default_factory=list)

    def outside(self, path: str) -> str:
        """The path on this machine; one that no volume covers stays as it is."""
        mounts = self.container.mounts if self.container else {}
        for inside, here in sorted(mounts.items(), reverse=True):
            usable = inside and here.startswith(("/", "~", ".")) and UNRESOLVED not in here
            if usable and (path == inside or path.startswith(f"{inside}/")):
                moved = here + path.removeprefix(inside)
                self._note(
                    f"{path} in the container is {moved} here, by its volume; it is mounted at its own path"
                )
                return moved
        if self.container and re.match(r"/\w", path):
            self._note(
                f"{path} is a path inside the container that no volume covers: set one of this machine"
            )
        return path

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
