"""What `tuner doctor` speaks of: which states a drafter reads, how, and what is wrong with that.

Boundaries of the residual stream of a target of n layers: b0 is the embedding's output, bj the output of
layer j - 1 and the input of layer j, bn the output of the last layer before the final norm. n + 1 stands
for N, after the final norm. Engines and trainers number layers each in their own way;
here are boundaries alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from results.records import KnobValue


def boundary_name(boundary: int, layers: int) -> str:
    """`b3`; `N` after the final norm of a target of so many layers."""
    return "N" if boundary == layers + 1 else f"b{boundary}"


def boundary_names(boundaries: Sequence[int], layers: int) -> str:
    """`b2, b4, b5`."""
    return ", ".join(boundary_name(b, layers) for b in boundaries)


class Step(StrEnum):
    """The steps of the doctor, in their order; any can be run alone."""

    DEFINITIONS = "definitions"
    STATE = "state"
    WIRING = "wiring"  # static: from the folders and the flags
    CAPTURE = "capture"
    SERVED = "served"  # which wiring the server uses
    TRAINED = "trained"  # which wiring the drafter was trained with
    CONCLUSION = "conclusion"


class Severity(StrEnum):
    FATAL = "FATAL"  # cannot work
    LIKELY = "LIKELY"  # differs from the likeliest hypothesis
    INFO = "INFO"


class Cause(StrEnum):
    """Why acceptance is low, or seems to be. What no measurement can tell apart has one name."""

    DEFINITION = "the figures measure different things"
    LOOPING = "the output loops or is random"
    NOT_ATTACHED = "the drafter is not used"
    ALGORITHM = "the algorithm is not the head's"
    LAYERS = "the drafter is given other layers than it was trained with"
    ORDER = "the layers are given in another order"
    FC_WIDTH = "the fusion layer has another width than what it is given"
    D2T_MISSING = "the map from the draft vocabulary is missing"
    D2T_ABSOLUTE = "the map from the draft vocabulary holds ids where offsets are read"
    D2T = "the map from the draft vocabulary is wrong"
    LM_HEAD = "the head that makes draft tokens is missing, random or not its own"
    EMBEDDING = "the embedding is not the one the drafter was trained with"
    NORM_BEFORE_FC = "the norm before the fusion layer is applied or left out wrongly"
    FC_NORM = "the norms of the states are applied or left out wrongly"
    NORM_BEFORE_RESIDUAL = "the residual is taken on the wrong side of a norm"
    RESIDUAL = "the residual is not added"
    FEEDBACK_NORM = "the state fed back is taken on the wrong side of the last norm"
    ROPE = "the rotation of positions is not the one the drafter was trained with"
    CONTEXT = "the drafter's positions end before the prompts do"
    POSITIONS = "the draft steps have the wrong positions"
    TOKEN_SHIFT = "the states stand beside the wrong tokens"
    TENSOR_PARALLEL = "the ranks' parts of a state are not put together"
    NAMES = "tensors have names that no loader maps"
    QUANTISATION = "the drafter is quantised as it should not be"
    VOCABULARY = "target and drafter have other vocabularies"
    PARALLELISM = "a kind of parallelism breaks what the drafter is given"
    VERIFIER = "the drafter was trained for another model"
    TRAINING = "the drafter itself predicts no better"


class D2t(StrEnum):
    """How the engine makes a target id of a draft id i."""

    OFFSETS = "offsets"  # i + d2t[i]
    ABSENT = "absent"  # i
    IDS = "ids"  # d2t[i]
    FROM_T2D = "t2d"  # the i-th token that t2d marks: how no engine reads it, but how d2t can be made anew


class Source(StrEnum):
    """Whose weights are used."""

    OWN = "own"
    TARGET = "target"
    RANDOM = "random"  # nothing is loaded into them


@dataclass(frozen=True, slots=True)
class Reading:
    """How a head is run: all that its weights leave open. An engine has one, a training had one."""

    boundaries: tuple[int, ...]  # of the target, in the order in which they stand side by side
    uses_fc: bool = True  # False: the states go in as they come
    d2t: D2t = D2t.OFFSETS
    lm_head: Source = Source.OWN
    embedding: Source = Source.TARGET
    norm_before_fc: bool = False  # one norm of all states side by side
    fc_norm: bool = False  # a norm of each state
    norm_before_residual: bool = False  # the residual is the normed state
    adds_residual: bool = True
    norm_output: bool = False  # the next step is given the state after the last norm
    rope_theta: float = 10_000.0
    rope_scaling: Mapping[str, Any] | None = None
    max_positions: int | None = None  # rotations of later positions are not defined
    token_shift: int = 1  # the state at p stands beside the token p + this
    hidden_lag: int = 0  # the state is that of so many positions before
    step_position_shift: int = 0  # of the second and later draft steps
    weight_bits: int | None = None  # weights rounded per tensor; None = as they are


@dataclass(frozen=True, slots=True)
class Fix:
    """The change to make: to the drafter's folder, or to how the server is started."""

    words: str  # for a person: what to change, exactly
    method: str = ""  # the speculative method to use instead
    args: Mapping[str, KnobValue | None] = field(
        default_factory=dict
    )  # flags without dashes; None = leave out
    config: Mapping[str, Any] = field(
        default_factory=dict
    )  # dotted keys of the drafter's config.json; None = remove
    tensors: tuple[str, ...] = ()  # edits of the checkpoint by name, see sweeps/doctor/mend.py


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is, or may be, wrong."""

    cause: Cause
    severity: Severity
    seen: str  # with figures; boundaries, never raw ids
    rule: (
        str  # what it goes against, and the source of that: a paper, a file of an engine's version, a report
    )
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """How a head may have been trained."""

    reading: Reading
    trainer: str  # "SpecForge", "speculators since 2026-03", ...
    because: str  # what speaks for it


@dataclass(frozen=True, slots=True)
class Section:
    """What one step of the doctor did."""

    step: Step
    checked: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    skipped: str = ""  # why it was not done, and what it needs


class Outcome(StrEnum):
    NAMED = "NAMED"  # one cause
    CLEARED = "CLEARED"  # the drafter is wired as it was trained; acceptance is what it can give
    UNDECIDED = "UNDECIDED"


@dataclass(frozen=True, slots=True)
class Conclusion:
    outcome: Outcome
    sentence: str
    causes: tuple[Cause, ...] = ()  # one if NAMED; those that are left if UNDECIDED
    evidence: tuple[str, ...] = ()
    fix: Fix | None = None
    accept_length: float | None = None  # as served
    accept_length_after: float | None = None  # predicted for the fix
    more_sequences: int | None = None  # that would decide, if UNDECIDED


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that the doctor has to say."""

    sections: tuple[Section, ...]
    conclusion: Conclusion | None = None
