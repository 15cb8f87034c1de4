"""The records a run is made of: frozen, typed, versioned. Units stand in the names.

Times named `*_s` inside a window are seconds since that window began (monotonic clock); `*_at` are
Unix times. A missing figure is None, never 0.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest

from results.reasons import Reason

SCHEMA = 1

KnobValue = int | float | str | bool

BASELINE_METHOD = "none"


@dataclass(frozen=True, slots=True)
class Point:
    """One canonical configuration: the speculative method and the knobs that matter to it."""

    method: str
    knobs: Mapping[str, KnobValue] = field(default_factory=dict)
    name: str = ""  # of a side of a comparison: two sides may have equal settings here. Engines ignore it

    @property
    def key(self) -> str:
        """Identity of the Point: equal keys behave equally."""
        return json.dumps([self.method, dict(self.knobs), *filter(None, [self.name])], sort_keys=True)

    @property
    def label(self) -> str:
        """Derived name for people, e.g. `ngram-simple size_m=8 size_n=4`."""
        settings = " ".join([self.method, *(f"{k}={v}" for k, v in sorted(self.knobs.items()))])
        return f"{self.name}: {settings}" if self.name else settings

    @property
    def is_baseline(self) -> bool:
        """Whether speculation is off."""
        return self.method == BASELINE_METHOD

    @property
    def speculative(self) -> dict[str, KnobValue]:
        """Its speculative knobs."""
        return {k: v for k, v in self.knobs.items() if not is_shared(k)}

    @property
    def shared(self) -> dict[str, KnobValue]:
        """Its settings that a server without speculation has too."""
        return {k: v for k, v in self.knobs.items() if is_shared(k)}

    @property
    def flags(self) -> dict[str, KnobValue]:
        """Of the shared settings those on the command line."""
        return {k: v for k, v in self.knobs.items() if k.startswith("--")}

    @property
    def variables(self) -> dict[str, str | None]:
        """Of the shared settings those in the environment; None = the variable is taken away."""
        return {k: None if v == UNSET else str(v) for k, v in self.knobs.items() if is_variable(k)}

    @property
    def image(self) -> str | None:
        """The container image, if the Point names one."""
        return str(self.knobs[IMAGE]) if IMAGE in self.knobs else None


BASELINE = Point(BASELINE_METHOD)
IMAGE = "image"  # the knob that names a container image
UNSET = "unset"  # as the value of an environment variable: it is not there


def is_shared(knob: str) -> bool:
    """Whether a knob is a setting of the server itself, not a speculative one.

    `--its-flag`, an environment variable (`NCCL_PROTO`), or the container image.
    """
    return knob.startswith("--") or knob == IMAGE or is_variable(knob)


def is_variable(knob: str) -> bool:
    """Whether a knob is an environment variable: known by its capitals."""
    return re.fullmatch(r"[A-Z][A-Z0-9_]*", knob) is not None


@dataclass(frozen=True, slots=True)
class DraftShape:
    """What a Point drafts at most in one step, told alike for every engine."""

    depth: int  # longest run of draft tokens that one step can accept
    draft_tokens: int  # tokens verified beside the one that plain decoding computes
    passes: int  # of the drafter's network, one after the other; 0 = it looks up what was said before
    topk: int = 1  # branches kept in each pass; 1 = a chain


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A setting that the server changed by itself."""

    name: str
    asked: KnobValue
    got: KnobValue | None


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload class at one pace and context length: the smallest thing a speed-up is stated for."""

    workload_class: str
    pace: str  # as the Pace prints itself, e.g. "closed(4)"
    context_tokens: int | None = None  # asked for, per prompt; None = prompts as they are

    @property
    def label(self) -> str:
        length = f" @ {self.context_tokens} tokens" if self.context_tokens is not None else ""
        return f"{self.workload_class} @ {self.pace}{length}"


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each Cell counts in a speed-up over all of them; what is not named counts once.

    The weight of a Cell is the product of those of its class, pace and context. 0 = measured, not counted.
    """

    classes: Mapping[str, float] = field(default_factory=dict)
    paces: Mapping[str, float] = field(default_factory=dict)  # as the Pace prints itself
    contexts: Mapping[int, float] = field(default_factory=dict)  # tokens; 0 = prompts as they are

    def of(self, cell: Cell) -> float:
        """The weight of a Cell."""
        context = self.contexts.get(cell.context_tokens or 0, 1.0)
        return self.classes.get(cell.workload_class, 1.0) * self.paces.get(cell.pace, 1.0) * context


EQUAL_WEIGHTS = Weights()


@dataclass(frozen=True, slots=True)
class Request:
    """Raw record of one request, sent over one stream."""

    prompt_id: str
    workload_class: str
    scheduled_s: float  # when the Pace wanted it sent
    sent_s: float  # when it was sent
    first_byte_s: float | None
    chunk_s: Sequence[float]  # arrival of every event that carried text, of any channel
    ended_s: float
    prompt_tokens: int | None  # from usage only
    output_tokens: int | None  # from usage only
    finish_reason: str | None
    error: str | None  # what went wrong, in one line; None = success
    text: str = ""  # the content channel
    reasoning_text: str = ""  # reasoning / reasoning_content
    text_channels: tuple[str, ...] = ()  # keys of the delta that carried text, in order of first use
    engine_stats: Mapping[str, float] = field(default_factory=dict)  # e.g. llama.cpp timings

    @property
    def ttft_s(self) -> float | None:
        """From the scheduled time (no coordinated omission) to the first text."""
        return self.chunk_s[0] - self.scheduled_s if len(self.chunk_s) else None

    @property
    def tpot_s(self) -> float | None:
        """(last text - first text) / (output tokens - 1)."""
        if self.output_tokens is None or self.output_tokens < 2 or len(self.chunk_s) < 2:
            return None
        return (self.chunk_s[-1] - self.chunk_s[0]) / (self.output_tokens - 1)

    @property
    def end_to_end_s(self) -> float:
        return self.ended_s - self.scheduled_s


@dataclass(frozen=True, slots=True)
class SpecCounters:
    """Cumulative speculation counters of a server at one moment, summed over ranks."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_per_position: tuple[int, ...] = ()

    def since(self, before: "SpecCounters") -> "SpecCounters":
        """What was counted between `before` and this."""
        earlier = before.accepted_per_position + (0,) * len(self.accepted_per_position)
        return SpecCounters(
            self.drafts - before.drafts,
            self.draft_tokens - before.draft_tokens,
            self.accepted_tokens - before.accepted_tokens,
            tuple(n - e for n, e in zip(self.accepted_per_position, earlier, strict=False)),
        )

    def __add__(self, other: "SpecCounters") -> "SpecCounters":
        """What was counted in two windows together."""
        ours, theirs = self.accepted_per_position, other.accepted_per_position
        return SpecCounters(
            self.drafts + other.drafts,
            self.draft_tokens + other.draft_tokens,
            self.accepted_tokens + other.accepted_tokens,
            tuple(a + b for a, b in zip_longest(ours, theirs, fillvalue=0)),
        )


class AcceptanceState(StrEnum):
    MEASURED = "measured"
    UNKNOWN = "unknown"  # no counter, or too few drafts to state a rate
    NOT_SPECULATING = "not speculating"
    COUNTERS_DISAGREE = "counters disagree"  # two sources more than a point apart


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What became of the drafts in one window. Diagnosis only, never the objective."""

    state: AcceptanceState
    source: str = ""  # where the counts come from
    counters: SpecCounters | None = None
    rate: float | None = None  # accepted / proposed tokens, [0, 1]
    rate_range: tuple[float, float] | None = None  # when two sources disagree
    length: float | None = None  # emitted tokens / verify steps, bonus token included, >= 1
    per_position: tuple[float, ...] = ()  # share of drafts accepted at least up to position i
    note: str = ""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process with a compute context on a GPU."""

    pid: int
    memory_bytes: int | None
    ours: bool | None  # of a server of this run; None = cannot be known (none of the server's was seen)
    name: str = ""  # where the system shows it


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at one moment. None = the driver did not tell."""

    cell: str  # label of the Cell under load
    sampled_at: float
    uuid: str
    utilisation: float | None  # share of the driver's own last period in which a kernel ran, [0, 1]
    memory_bytes: int | None
    power_w: float | None
    sm_clock_hz: float | None
    memory_clock_hz: float | None
    temperature_c: float | None
    throttled: tuple[str, ...] | None  # clocks-event reasons by name; () = none


class EnergySource(StrEnum):
    COUNTER = "counter"  # the GPU's own, read at both ends of the window
    INTEGRATED_POWER = "integrated power"  # of the samples, where there is no counter
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GpuTelemetry:
    """One GPU during one window. A figure that the driver refused is None, and named in `unknown`."""

    uuid: str
    name: str
    samples: int = 0
    utilisation: float | None = None  # mean, [0, 1]
    memory_bytes: int | None = None  # peak
    shared_memory_bytes: int | None = None  # peak use of the memory it shares with the host, by /proc/meminfo
    power_w: float | None = None  # mean
    power_limit_w: float | None = None  # enforced at the end of the window
    default_power_limit_w: float | None = None
    sm_clock_hz: float | None = None  # mean
    memory_clock_hz: float | None = None  # mean
    temperature_c: float | None = None  # highest
    throttled: Mapping[str, float] = field(default_factory=dict)  # reason -> share of the samples
    energy_j: float | None = None
    energy_source: EnergySource = EnergySource.UNKNOWN
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    ecc_errors: int | None = None  # uncorrected, new in this window
    xids: tuple[int, ...] = ()  # errors that the driver reported in this window
    processes: tuple[GpuProcess, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)  # field -> the driver's name for its refusal
    lost: bool = False  # the GPU fell away in mid-window


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The host during one window. Cores are CPU seconds per second of wall time."""

    wall_s: float
    server_cores: float | None = None
    client_cores: float | None = None  # the thread that drives the load
    foreign_cores: float | None = None  # busy, but neither our server nor our client
    stolen_cores: float | None = None  # taken by the hypervisor
    cpu_pressure: float | None = None  # PSI "some": share of the window, [0, 1]
    memory_pressure: float | None = None
    server_memory_bytes: int | None = None  # peak resident set of the launch
    frequency_hz: float | None = None
    cores: int | None = None  # that server and client may use
    gpus: tuple[GpuTelemetry, ...] = ()  # those of the server
    gpu_mismatch: str = ""  # why `gpus` may be the wrong ones; "" = nothing says so


@dataclass(frozen=True, slots=True)
class Quantiles:
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """Summary of one arm in one Cell."""

    cell: Cell
    requests: int
    failed: int
    first_error: str | None
    output_tokens: int | None  # None if any request came without usage
    wall_s: float  # the steady window
    tokens_per_s: float | None  # output tokens / wall of the steady window
    mean_request_tokens_per_s: float | None  # mean of the per-request rates, for comparison
    ttft_s: Quantiles | None
    tpot_s: Quantiles | None
    chunk_gap_s: Quantiles | None  # raw gap between chunks: what a reader feels
    end_to_end_s: Quantiles | None
    concurrency: float  # mean requests in flight while the load was steady
    empty_share: float  # successful requests without content text
    truncated_share: float  # successful requests that ended at the token cap
    degenerate_share: float  # successful requests whose text loops or is garbage
    tokens_by_prompt: Mapping[str, int]  # output tokens of every successful request
    acceptance: Acceptance
    telemetry: Telemetry
    goodput_per_s: float | None = None  # requests that ended in the window within `goodput`, / wall
    within_limits_share: float | None = None  # of the requests that ended in the window, failed ones too
    prompt_tokens: float | None = None  # median of the requests, as the server counted them
    capacity_limited: str = ""  # how one saw that the server could not admit the load; "" = it did

    @property
    def energy_j(self) -> float | None:
        """Of the server's GPUs over the whole window; None = no GPU, or not known of every one."""
        energies = [gpu.energy_j for gpu in self.telemetry.gpus]
        known = [energy for energy in energies if energy is not None]
        if not energies or len(known) < len(energies) or self.telemetry.gpu_mismatch:
            return None
        return sum(known)

    @property
    def joules_per_token(self) -> float | None:
        """GPU energy per output token: both of the whole window, ramp and drain included."""
        tokens = sum(self.tokens_by_prompt.values())
        return self.energy_j / tokens if self.energy_j is not None and tokens and not self.failed else None

    @property
    def tokens_per_joule(self) -> float | None:
        """The inverse of `joules_per_token`."""
        joules = self.joules_per_token
        return 1 / joules if joules else None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no number, with the one line that shows it."""

    reason: Reason
    evidence: str


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """Greedy texts of two arm-runs compared, prompt by prompt."""

    compared: int
    identical: int
    first_divergence_chars: tuple[int, ...]  # one per differing prompt: length of the common prefix
    answer_chars: tuple[int, ...] = ()  # likewise: length of the longer answer

    @property
    def identical_share(self) -> float | None:
        return self.identical / self.compared if self.compared else None


@dataclass(frozen=True, slots=True)
class Score:
    """Answers to one prompt that match its reference."""

    right: int
    asked: int


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Right answers of a candidate and of the baseline, over the prompts that have a reference."""

    prompts: int
    right: int
    baseline_right: int
    lost: int  # right in the baseline alone
    gained: int  # right in the candidate alone
    p_value: float  # chance of so many lost if the candidate answered as well


@dataclass(frozen=True, slots=True)
class Variables:
    """The environment of one server: what it was given, what arrived, and what NCCL says of it."""

    given: Mapping[str, str | None]  # set for this server, secrets hidden; None = taken away
    seen: Mapping[str, str] | None = None  # those and all of NCCL's in its first process; None = not readable
    by_engine: Mapping[str, str] = field(default_factory=dict)  # NCCL's that the engine gave its workers
    nccl_version: str | None = None
    applied: tuple[str, ...] = ()  # NCCL itself says that it was set by the environment
    unconfirmed: tuple[str, ...] = ()  # NCCL was asked and says nothing of them
    overridden: Mapping[str, str] = field(default_factory=dict)  # to what NCCL uses in their place
    note: str = ""  # what could not be found out, and why


@dataclass(frozen=True, slots=True)
class ArmRun:
    """One launch of one arm: from start to stop, with what was measured, or why not."""

    point: Point
    argv: tuple[str, ...]
    start_s: float  # launch until ready and verified
    warm_up_s: float
    measured_s: float
    effective: Mapping[str, KnobValue | None]  # settings read back from the server
    measurements: tuple[Measurement, ...] = ()
    failure: Failure | None = None
    stopped_at_ratio: float | None = None  # hopeless: speed over the baseline's when it was stopped
    log: str = ""  # file name under logs/
    requests: str = ""  # file name under requests/, without its ending
    complete: bool = True  # False: ended before its last window because the others had ended
    rewrites: tuple[Rewrite, ...] = ()  # what the server made of the settings it was given
    in_effect: Point | None = None  # the Point that was measured, if the server rewrote the one asked for
    lossy: str = ""  # why its output is not the target model's; "" = nothing says so
    variables: Variables | None = None
    image: str = ""  # digest of the container image it ran in; "" = a process of the machine
    scores: Mapping[str, Score] = field(default_factory=dict)  # by class/prompt; only those with a reference
    shape: DraftShape | None = None  # what it drafts at most; None = no drafts, or not known
    on_set: int | None = None  # of the two sets of hardware of a duet, 0 or 1; None = there are none

    @property
    def stopped_early(self) -> bool:
        return self.stopped_at_ratio is not None

    def cell(self, cell: Cell) -> Measurement | None:
        return next((m for m in self.measurements if m.cell == cell), None)


class Phase(StrEnum):
    SEARCH = "search"
    CONFIRM = "confirm"


@dataclass(frozen=True, slots=True)
class Block:
    """One launch of each arm, adjacent in time, same prompts, random arm order: the unit of evidence."""

    number: int
    phase: Phase
    started_at: float
    ended_at: float
    prompt_set: str  # hash of the prompts used
    arms: tuple[ArmRun, ...]  # in the order they ran
    outputs: Mapping[str, OutputCheck] = field(default_factory=dict)  # Point key -> against baseline
    control: OutputCheck | None = None  # this baseline against an earlier baseline, same prompts
    invalid: Failure | None = None  # the whole Block is unusable and was rerun
    warnings: tuple[str, ...] = ()  # what to know about its load, e.g. replies without an answer
    compared_with: Point = BASELINE  # speculation off, with the settings found best for it
    node: str = ""  # of a cluster, on which all of it happened; "" = the machine of the run
    gpus: tuple[str, ...] = ()  # of that node, given to its servers; () = whatever they found
    schema: int = SCHEMA

    @property
    def baseline(self) -> ArmRun | None:
        return self.arm(self.compared_with)

    @property
    def candidates(self) -> tuple[ArmRun, ...]:
        return tuple(a for a in self.arms if a.point.key != self.compared_with.key)

    def arm(self, point: Point) -> ArmRun | None:
        return next((a for a in self.arms if a.point.key == point.key), None)


class TrialState(StrEnum):
    MEASURED = "measured"
    HOPELESS = "hopeless"  # stopped after a few prompts; log_speedup is over those
    FAILED = "failed"  # see failure


@dataclass(frozen=True, slots=True)
class Trial:
    """One Point measured against the Baseline, or its failure with the reason."""

    number: int
    point: Point
    source: str  # who proposed it, see sweeps.study
    state: TrialState
    log_speedup: float | None  # weighted mean over Cells of log(candidate / baseline)
    by_cell: Mapping[str, float]  # Cell label -> log speed-up
    blocks: tuple[int, ...]
    failure: Failure | None = None
    limits: Mapping[str, float] = field(default_factory=dict)  # name -> log(value / limit); > 0 = broken
    asked: Point | None = None  # what was asked for, if the server rewrote it into `point`
    lossy: str = ""  # see ArmRun.lossy; such a Trial is never the best
    anchors: tuple[int, ...] = ()  # Blocks whose baseline it was compared with; () = its own Block's
    limited: tuple[str, ...] = ()  # Cells, not in by_cell, that it cannot admit though the baseline can
    schema: int = SCHEMA

    @property
    def keeps_limits(self) -> bool:
        return all(log_ratio <= 0 for log_ratio in self.limits.values())

    @property
    def launched(self) -> Point:
        """The Point as its Block knows it."""
        return self.asked or self.point

    @property
    def label(self) -> str:
        """For people: what was measured, and what to know about it."""
        asked = f" (asked for {self.asked.label})" if self.asked is not None else ""
        return f"{self.point.label}{asked}{' LOSSY' if self.lossy else ''}"


class VerdictKind(StrEnum):
    BETTER = "BETTER"
    WORSE = "WORSE"
    SAME = "SAME"
    UNDECIDED = "UNDECIDED"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class Effect:
    """A speed-up as log ratio with its interval: log(candidate / baseline)."""

    log_ratio: float
    low: float
    high: float
    blocks: int

    @property
    def signs_are_certain(self) -> bool:
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the confirmation says about one Point against the Baseline, and what it holds for."""

    kind: VerdictKind
    point: Point
    effect: Effect | None
    by_class: Mapping[str, Effect]
    cells: tuple[str, ...]  # that counted, by label: those with a weight, admitted by both
    identical_share: float | None  # outputs identical to the baseline's
    control_identical_share: float | None  # baseline against baseline
    acceptance_length: float | None
    why: str  # one sentence
    warnings: tuple[str, ...] = ()
    by_cell: Mapping[str, Effect] = field(default_factory=dict)  # by Cell label
    outputs: OutputCheck | None = None  # its texts against the baseline's, over all Blocks
    control: OutputCheck | None = None  # the baseline's against its own
    accuracy: Accuracy | None = None
    limited: Mapping[str, str] = field(default_factory=dict)  # Cells left out -> what could not admit them
