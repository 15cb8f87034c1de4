"""What every Engine knows: its knobs, flags, read-back, counters and failure signs."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from launchers.launcher import Endpoint
from launchers.place import Place
from results.hidden_states import DumpHeader, HiddenStates
from results.reasons import Reason
from results.records import DraftShape, KnobValue, Point, Rewrite, SpecCounters


@dataclass(frozen=True, slots=True)
class Knob:
    """One speculative setting: its kind, the range the engine honours, a default grid to search."""

    name: str
    default: KnobValue
    low: float | None = None
    high: float | None = None
    choices: tuple[KnobValue, ...] = ()  # closed set of values, if there is one
    grid: tuple[KnobValue, ...] = ()  # values worth searching when the user names none
    meaning: str = ""
    optional: bool = False  # not part of a Point while it has its default


@dataclass(frozen=True, slots=True)
class Served:
    """What both arms serve: the same model, drafter, fixed arguments and environment."""

    model: Path | str
    draft: Path | str | None
    args: Mapping[str, KnobValue]  # fixed arguments by the engine's own flag name without dashes
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What the server says is in effect."""

    model: str | None
    speculating: bool | None  # None = this engine cannot say
    effective: Mapping[str, KnobValue | None]  # canonical knob or argument name -> value in effect
    rewrites: tuple[Rewrite, ...] = ()  # asked for, and changed by the server
    point: Point | None = None  # the canonical Point in effect, if it is not the one asked for


@dataclass(frozen=True, slots=True)
class SlotDrafts:
    """Draft tokens of one slot of a server since it started."""

    slot: int
    accepted: int
    generated: int


@dataclass(frozen=True, slots=True)
class Recount:
    """The same drafts since the server started, counted twice: by the server and by its drafter."""

    server: SpecCounters
    drafter: SpecCounters


@dataclass(frozen=True, slots=True)
class Rank:
    """The place of one process in a server over several nodes."""

    number: int  # 0 is the one that answers requests
    nodes: int
    host: str  # IP address of rank 0's node, where all meet
    port: int  # a free one there


class Instrument(Protocol):
    """Makes a server write files into a folder."""

    @property
    def folder(self) -> Path:
        """Where the files land: on this machine, and by the same path where the server runs."""

    @property
    def words(self) -> tuple[str, ...]:
        """What the command of the server needs in addition."""

    @property
    def variables(self) -> Mapping[str, str]:
        """What its environment needs in addition."""


class Capture(Instrument, Protocol):
    """Makes a server write down the states of its target, and what its drafter is given of them.

    Requests are sent one at a time. The instrumented server is never measured.
    """

    @property
    def point(self) -> Point:
        """What the instrumented server runs: the Point that was asked for, or the chain of a tree."""

    @property
    def header(self) -> DumpHeader:
        """What is alike for all that is captured."""

    def sequences(self) -> Iterator[HiddenStates]:
        """What has been captured so far, a sequence for each request in the order in which they were sent.

        Raises MeasurementInvalid if the server wrote nothing, or what cannot be put together.
        """


class Tracer(Instrument, Protocol):
    """Makes a server write down what it does for a moment, as files in Chrome's trace format."""

    def start(self, endpoint: Endpoint) -> None:
        """Begin. Raises MeasurementInvalid."""

    def stop(self, endpoint: Endpoint) -> None:
        """End, and wait until the server has written its files, which may take minutes. Raises as above."""

    def files(self) -> Sequence[Path]:
        """What has been written so far, one of each rank, in their order."""

    def step_times_s(self, endpoint: Endpoint) -> Mapping[int, Sequence[float]]:
        """Steps since the start by batch size, where the server keeps them; they cost it nothing."""


class Engine(Protocol):
    """One inference engine. All knowledge that is special to it lives in its module."""

    name: str
    usual_start_s: float  # a start of a small model takes about so long
    no_custom_all_reduce: str  # the flag that leaves every all-reduce to NCCL; "" if there is none

    @property
    def speculative_settings(self) -> frozenset[str]:
        """Names in `ReadBack.effective` that only speculation sets; all others are equal in both arms."""

    @property
    def memory_settings(self) -> Mapping[str, bool]:
        """Knobs and flags that decide how much memory a server takes; True = a share of the memory.

        More of any needs more memory. Of a share too little is a failure as well (no room for the cache).
        """

    def version(self) -> str:
        """Version of the engine that will be launched, without launching it."""

    def resolve(
        self,
        model: str,
        draft: str | None,
        args: Mapping[str, KnobValue],
        env: Mapping[str, str],
    ) -> Served:
        """What a sweep file asks to be served; models found or fetched.

        Raises UsageError if model, drafter or arguments cannot be served (missing, truncated ...).
        """

    def notes(self, served: Served) -> Sequence[str]:
        """What to tell once before a sweep: rules read from another version, a deprecated argument ..."""

    def identity(self, served: Served) -> Mapping[str, str]:
        """What was served, by content: hashes of model and drafter."""

    def methods(self, served: Served) -> Mapping[str, tuple[Knob, ...]]:
        """Speculative methods open to this model and drafter, each with its knobs."""

    def check(self, point: Point, served: Served) -> None:
        """Raise UsageError with the rule and the nearest legal values if a Point is illegal.

        Shared flags are checked as fixed arguments are; variables and images are not the engine's.
        """

    def lossy(self, point: Point, served: Served) -> str:
        """Why the output of this Point is not distributed as the target model's; "" if nothing says so."""

    def canonical(self, point: Point) -> Point:
        """The Point without dead knobs, defaults filled in: equal results behave equally.

        Optional knobs at their default are left out. Shared settings stay as they are.
        """

    def draft_shape(self, point: Point) -> DraftShape | None:
        """What a canonical Point drafts at most; None without drafts, or where it changes while it runs."""

    def starting_points(self, served: Served) -> Sequence[Point]:
        """Engine defaults and known good Points, best guesses first."""

    def command(self, point: Point, served: Served, port: int) -> tuple[str, ...]:
        """The exact command line: every speculative knob is passed explicitly.

        What the engine would set differently for the two arms by itself is passed alike to both. The
        Point's shared settings win over the fixed arguments.
        """

    def environment(self, point: Point, served: Served) -> Mapping[str, str | None]:
        """Variables set for the server, the Point's over the sweep's; None = taken away."""

    def ranks(self, point: Point, served: Served) -> int:
        """Processes of the server that exchange tensors with each other (through NCCL, on GPUs)."""

    def check_nodes(self, point: Point, served: Served, nodes: int) -> None:
        """Raise UsageError if a server of this Point cannot be spread evenly over so many nodes."""

    def on_node(self, argv: tuple[str, ...], rank: Rank) -> tuple[str, ...]:
        """The command of one rank, from that of a server of one node. Only after `check_nodes`."""

    def torch_of(self, point: Point) -> tuple[Place, str] | None:
        """The Python whose torch, and with it NCCL, a server of this Point uses; None if it uses none."""

    def device(self, point: Point) -> str:
        """What a server of this Point computes on, by torch's name (`cpu`, `cuda`); "" if not known."""

    def is_ready(self, endpoint: Endpoint) -> bool:
        """Whether the server accepts requests now; never raises for a server that is not up yet."""

    def read_back(self, endpoint: Endpoint, point: Point, served: Served) -> ReadBack:
        """Effective settings. Raises MeasurementInvalid: WRONG_SERVER, IGNORED_SETTING, NOT_SPECULATING.

        A setting that the server changed to another value is a Rewrite; one that it dropped is
        IGNORED_SETTING. Settings of one start alone (ports, seeds drawn at random) are left out.
        """

    def request_fields(self, *, fixed_length: bool) -> Mapping[str, object]:
        """Body fields this engine needs beside OpenAI's (no prompt cache, ignore EOS ...)."""

    def counters(self, endpoint: Endpoint) -> SpecCounters | None:
        """Speculation counters now; None if the server has none. Asked for while nothing is in flight."""

    def counted_in_reply(self, stats: Mapping[str, float]) -> SpecCounters | None:
        """What a reply says of its own drafts (see Request.engine_stats); None if it says nothing.

        `drafts` is 0 where the engine tells only their tokens.
        """

    def refused_sampling(self, text: str, fields: Collection[str]) -> str | None:
        """The line of an HTTP error or a log that says one of these request fields is refused or ignored."""

    def drafts_by_slot(self, endpoint: Endpoint) -> Sequence[SlotDrafts]:
        """Drafts of every slot where none accepted would mean a broken drafter.

        Empty if the engine does not tell, or if the method only looks up what was said before:
        that may rightly find nothing of use.
        """

    def recount(self, endpoint: Endpoint) -> Recount | None:
        """Both counts where the engine keeps two apart; asked for while no request is in flight."""

    def admission(self, endpoint: Endpoint) -> tuple[int, int] | None:
        """Requests (running, waiting) inside the server now; None if it does not tell."""

    def generated_tokens(self, endpoint: Endpoint) -> int | None:
        """Tokens generated for all clients since the start; None if untold, or if there can be no others."""

    def reset_cache(self, endpoint: Endpoint) -> bool:
        """Forget cached prefixes; False if this engine cannot."""

    def context_tokens(self, endpoint: Endpoint) -> int | None:
        """Tokens one request may use (prompt and output), None if unknown."""

    def count_tokens(self, endpoint: Endpoint, body: Mapping[str, object]) -> int:
        """Prompt tokens of a request body (`messages` or `prompt`), as this server counts them."""

    def tracer(self, point: Point, folder: Path, *, stacks: bool = False) -> Tracer:
        """What traces a server of this Point into a folder; `stacks`: with the functions of Python.

        Raises UsageError if servers of this engine cannot be traced.
        """

    def capture(
        self, point: Point, served: Served, folder: Path, boundaries: Collection[int] | None = None
    ) -> Capture:
        """What writes down the states that a server of this Point passes to its drafter.

        `boundaries`: those that are kept of the target; None = all, which is much for a large model.
        Raises UsageError if there are none to be seen: no such drafter, or an engine that shows nothing.
        """

    def cause(self, log: str, exit_code: int | None, *, ready: bool) -> tuple[Reason, str]:
        """Name a failure from the log and the exit code: the reason and the line that shows it."""
