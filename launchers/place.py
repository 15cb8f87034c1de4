"""Where an engine's programs are: on this machine, or in the image of a container.

An engine is asked in the place in which its servers will run, so that the answers are theirs.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from launchers.port import LOOPBACK
from results.errors import UsageError

Variables = Mapping[str, str | None]  # None = taken away


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that ended by itself, or was ended at its time limit."""

    exit_code: int | None  # None: the time was up
    output: str  # stdout
    errors: str = ""  # stderr


class Conversation(Protocol):
    """A running program that answers one line with one line."""

    def ask(self, line: str, timeout_s: float) -> str:
        """Its answer; "" if it ended without one, or was too slow and is ended."""

    def errors(self) -> str:
        """Of a program that ended: what it wrote to stderr, or its exit code."""

    def end(self) -> None: ...


class Place(Protocol):
    """Where programs run."""

    name: str  # for people
    host: str  # what a server here must listen on to be reached on this machine's loopback
    identity: str  # what programs there are depends on: an image's digest; "" for this machine
    absent: str  # why it cannot be asked: an image that is not here, while planning; "" = it can

    def program(self, name: str) -> str:
        """How to call a program; raises UsageError if it is not there."""

    def run(self, argv: Sequence[str], env: Variables, timeout_s: float) -> Ran:
        """Run a program to its end, without a shell and without input."""

    def converse(self, argv: Sequence[str], env: Variables) -> Conversation:
        """Start a program that answers lines."""


class Machine:
    """The Place that the tool itself is in."""

    name = "this machine"
    host = LOOPBACK
    identity = ""
    absent = ""

    def program(self, name: str) -> str:
        """Links are kept: a venv's interpreter is a link, and knows its packages by its own place."""
        found = shutil.which(Path(name).expanduser())
        if found is None:
            raise UsageError(
                f"cannot run {name}: there is no such program; set `server` to the Python that has the engine"
            )
        return str(Path(found).absolute())

    def run(self, argv: Sequence[str], env: Variables, timeout_s: float) -> Ran:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=with_variables(env),
            start_new_session=True,  # so that its children can be ended with it
        )
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            return Ran(None, output, errors)
        return Ran(process.returncode, output, errors)

    def converse(self, argv: Sequence[str], env: Variables) -> "ProcessConversation":
        return ProcessConversation(argv, env)


MACHINE = Machine()


class ProcessConversation:
    """A Conversation with a process of this machine."""

    def __init__(self, argv: Sequence[str], env: Variables) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `end`
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=with_variables(env),
        )

    def ask(self, line: str, timeout_s: float) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(timeout_s, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
            return self._process.stdout.readline()
        except BrokenPipeError:
            return ""
        finally:
            timer.cancel()

    def errors(self) -> str:
        exit_code = self._process.wait()
        self._errors.seek(0)
        told = self._errors.read().decode("utf-8", "replace")
        return told.strip() or f"no answer (exit code {exit_code})"

    def end(self) -> None:
        self._process.kill()  # it holds nothing but memory
        self._process.communicate()
        self._errors.close()


def with_variables(env: Variables) -> dict[str, str]:
    """The environment of the tool with these changes."""
    return {k: v for k, v in {**os.environ, **env}.items() if v is not None}


Places = Callable[[str | None], Place]  # by the image that a Point names; None = the sweep's own


def on_this_machine(image: str | None) -> Place:
    """The Places of a sweep without containers."""
    return MACHINE
