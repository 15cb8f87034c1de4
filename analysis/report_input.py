"""Everything a report is drawn from: plain records, no files and no clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analysis.excerpt import Excerpt
from analysis.timeline import Timeline
from results.profile import Profile
from results.records import EQUAL_WEIGHTS, Block, Point, Trial, Verdict, Weights


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two configurations of a comparison."""

    name: str  # "A" or "B"
    given: str  # the file or the URL that describes it
    point: Point
    attached: bool = False  # somebody else runs it
    unchecked: tuple[str, ...] = ()  # sentences: what of it cannot be checked


@dataclass(frozen=True, slots=True)
class Comparison:
    """B measured against A; or A alone."""

    sides: tuple[Side, ...]
    differences: tuple[tuple[str, str, str], ...] = ()  # (setting, in A, in B), as asked for
    notes: tuple[str, ...] = ()  # what to know of the two together


@dataclass(frozen=True, slots=True)
class HighestLoad:
    """What one configuration bears."""

    point: Point
    kind: str  # closed: requests in flight; poisson: requests per second
    kept: float | None  # the highest load within the limits, None = not even the lowest
    broken: float | None  # the lowest load tried that is not, None = the end of the range was reached
    why: str  # what broke there
    tokens_per_s: float | None  # at `kept`
    blocks: int
    settled: bool  # nothing more to try


@dataclass(frozen=True, slots=True)
class Difference:
    """Two answers to one prompt around the place where they part, a few hundred characters of each."""

    prompt: str
    label: str  # of the configuration
    at_chars: int
    baseline: str
    candidate: str


@dataclass(frozen=True, slots=True)
class ReportInput:
    """One run as it stands, finished or not. Every field but the name may be empty."""

    name: str
    trials: Sequence[Trial] = ()
    blocks: Sequence[Block] = ()
    verdicts: Sequence[Verdict] = ()  # of the confirmed finalists
    winner: Verdict | None = None
    headline: str = ""  # one sentence
    banner: str | None = None  # what to beware of first, e.g. signs that differ between classes
    command: str = ""  # exact command line of what to run: the winner, or the baseline if nothing beats it
    objective: str = "tokens_per_s"  # what speed-ups are ratios of, see analysis.block.OBJECTIVES
    limits: Mapping[str, float] = field(default_factory=dict)  # name -> upper bound, see analysis.limits
    goodput: Mapping[str, float] = field(default_factory=dict)  # limits of a single request, analysis.goodput
    baseline_breaks: str = ""  # the limits that the baseline itself breaks, in words
    weights: Weights = EQUAL_WEIGHTS  # of the Cells in a speed-up over all of them
    same_margin: float = 0.02  # share of the baseline within which a configuration is the SAME
    environment: Mapping[str, object] = field(default_factory=dict)  # nested fingerprint
    sweep_yaml: str = ""  # as resolved, secrets removed
    notes: Sequence[str] = ()  # what was said before the run, e.g. what was left out of the space
    calibration: Mapping[str, object] = field(default_factory=dict)  # figure name -> value
    elapsed_s: float = 0.0  # wall time in which any driver was at work
    phases_s: Mapping[str, float] = field(default_factory=dict)  # phase -> seconds, of all Lanes together
    finished: bool = False  # nothing more would be measured, whatever came of it
    highest_loads: Sequence[HighestLoad] = ()
    profiles: Sequence[Profile] = ()  # traces of servers, in the order they were taken
    greedy: bool = True  # the same prompt should get the same text again
    difference: Difference | None = None  # one pair of answers to read
    comparison: Comparison | None = None  # of two configurations, in place of a search
    folder: str = ""  # where the run is, as its reader calls it
    timeline: Timeline | None = None  # of one Block of the subject
    excerpts: Mapping[str, Excerpt] = field(
        default_factory=dict
    )  # name of a log -> what it says of a failure

    @property
    def reference(self) -> str:
        """What everything is compared with."""
        return "A" if self.comparison else "the baseline"
