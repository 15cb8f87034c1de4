"""What an engine's servers are like to whoever deploys them: how they are addressed, asked, drafted by size.

Everything here works on a recorded command line alone: the engine need not be installed where it is done.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from results.records import Point

Argv = tuple[str, ...]
MODULE_IN_IMAGE = "python3"


@dataclass(frozen=True, slots=True)
class Size:
    """Batch sizes from `first` to `last` (None = all above), and the tokens to draft for them; 0 = none."""

    first: int
    last: int | None
    tokens: int


class BySize(Protocol):
    """An engine's own way to draft more or fewer tokens by the size of the batch, as a form of export."""

    form: str

    def entry_of(self, point: Point) -> tuple[Point, int] | None:
        """(the rest of the Point, tokens that it drafts); None if it cannot be one entry of a schedule.

        Points with an equal rest can stand in one schedule.
        """

    def why_not(self, method: str) -> str:
        """Why no Point of a method can be an entry; what to do."""

    def config(self, sizes: Sequence[Size]) -> Mapping[str, object] | None:
        """What goes into a file of its own; None = the command line holds it all."""

    def command(self, argv: Argv, sizes: Sequence[Size], file: str) -> Argv:
        """The command line of an entry, with the schedule in place of its draft length.

        `file` is where `config` will lie. Raises UsageError if that server would ignore it.
        """


def with_flag(argv: Argv, flag: str, value: str) -> Argv:
    """The command line with this flag at this value, in its place or at the end."""
    if flag not in argv:
        return (*argv, flag, value)
    at = argv.index(flag)
    return (*argv[: at + 1], value, *argv[at + 2 :])


def value_of(argv: Sequence[str], flag: str) -> str | None:
    """The word after a flag."""
    return argv[argv.index(flag) + 1] if flag in argv else None


def by_flags(argv: Argv, host: str, port: int) -> Argv:
    """A server told its address by --host and --port."""
    return with_flag(with_flag(argv, "--host", host), "--port", str(port))


def alone(argv: Argv, rank: int, host: str) -> Argv:
    """From the command of rank 0 that of another, `host` being rank 0's address. This engine has one only."""
    return argv


def ask_with_python(url: str) -> Argv:
    """A check from inside an image that has Python: fails unless the URL answers with 200."""
    return (
        MODULE_IN_IMAGE,
        "-c",
        f"import urllib.request; urllib.request.urlopen({url!r}, timeout=5)",
    )


def run_by_python(argv: Argv) -> Argv:
    """The same in an image that has the engine for its own Python."""
    return (MODULE_IN_IMAGE, *argv[1:])


@dataclass(frozen=True, slots=True)
class Deployment:
    """One engine, deployed."""

    port: int  # the engine's usual one
    models: Callable[[Argv], Sequence[str]]  # words of a command line that name model and drafter
    health: str = "/health"  # answers 200 once requests are served
    address: Callable[[Argv, str, int], Argv] = by_flags  # the command line for another host and port
    in_image: Callable[[Argv], Argv] = run_by_python  # of a process, the same in the engine's own image
    ask: Callable[[str], Argv] = ask_with_python  # what to run in there to see that a URL answers
    of_rank: Callable[[Argv, int, str], Argv] = alone  # of several commands, that of a rank; see `alone`
    for_measuring: frozenset[str] = frozenset()  # variables that open endpoints which only tuner needs
    by_size: tuple[BySize, ...] = ()
