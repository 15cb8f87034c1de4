"""What a trace of a running server says: where the time of a decode step goes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from results.records import SCHEMA, Cell, Point


class Work(StrEnum):
    """What a moment of a step was spent on."""

    ATTENTION = "attention"
    MATMUL = "matrix products"
    MOE = "experts (MoE)"
    ALL_REDUCE = "all-reduce"  # and every other exchange between ranks; only what hides behind nothing
    SAMPLING = "sampling"
    COPIES = "memory copies"
    OTHER = "other"
    HOST = "host gaps"  # a GPU without any kernel; on a CPU, Python between the operations


class Stage(StrEnum):
    """Which part of a step a moment belongs to."""

    DRAFT = "draft"
    TARGET = "target"  # the model itself: one token, or the verification of a draft
    SAMPLING = "sampling"
    OTHER = "other"  # in no part that the engine marks
    HOST = "host gaps"


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """Time of the decode steps of one rank. `work_s` and `stages_s` each sum to `wall_s`."""

    device: str  # "gpu" or "cpu"
    steps: int  # decode steps that another one follows; 0 = none is marked, and the whole trace is summed
    decodes: int  # all that decode alone
    prefills: int  # all others
    wall_s: float
    work_s: Mapping[str, float]  # by Work
    stages_s: Mapping[str, float]  # by Stage
    hidden_s: float = 0.0  # exchange between ranks while the GPU computed
    others_s: Mapping[str, float] = field(default_factory=dict)  # the largest of `other`, by name

    @property
    def step_s(self) -> float | None:
        """Mean time of a step; None if none is marked."""
        return self.wall_s / self.steps if self.steps else None

    def share(self, part: Work | Stage) -> float:
        """Of the wall time, by kind of work or by stage."""
        seconds = self.stages_s if isinstance(part, Stage) else self.work_s
        return seconds.get(part.value, 0.0) / self.wall_s if self.wall_s else 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """One server traced for a moment, outside any measurement."""

    arm: str  # "baseline", or what the other one is: "winner", "best", "point"
    point: Point
    cell: Cell
    started_at: float
    ended_at: float
    trace: TraceSummary  # of the first rank
    tokens_per_step: float | None  # output tokens for each decode step, over all requests in flight
    traces: tuple[str, ...] = ()  # files of the run folder, by rank
    all_reduce_shares: tuple[float, ...] = ()  # exposed, of each rank, if there are several
    slowdown: float | None = None  # time of a token with the profiler over that without it
    step_times_s: Mapping[str, float] = field(default_factory=dict)  # batch size -> median, unprofiled
    schema: int = SCHEMA
