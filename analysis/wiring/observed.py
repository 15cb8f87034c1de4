"""A run's figures as the doctor is given them, and what follows from them by arithmetic alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from analysis.acceptance import MIN_DRAFTS, from_counters, reconcile
from analysis.wiring.definitions import accuracy_of_length, accuracy_of_rate, counted_shape, highest_rate
from analysis.wiring.estimate import MIN_REPLIES, Estimate, share_of_depth
from analysis.wiring.expectation import Expectation, Judgement, judge
from analysis.wiring.replies import Reply, counts_by_reply
from analysis.wiring.text_statistics import MOST, TextStatistics, text_statistics
from results.records import Acceptance, AcceptanceState, DraftShape, SpecCounters


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known of a run. Whatever is missing is said, and what needs it is left out."""

    replies: Sequence[Reply] = ()
    counters: SpecCounters | None = None  # of all of it, where the replies do not tell theirs
    recount: SpecCounters | None = None  # the same drafts, counted by another source
    output_tokens: int | None = None  # of all that the counters cover
    shape: DraftShape | None = None  # as the settings say
    temperature: float | None = None
    rate: float | None = None  # accepted / proposed, as somebody read it, where no counts are known
    length: float | None = None  # likewise
    expected: Expectation | None = None

    @property
    def counted(self) -> SpecCounters | None:
        """All counts: of the replies, which are of this run alone, before those of the server."""
        told = counts_by_reply(self.replies)
        return sum(told[1:], told[0]) if told else self.counters

    @property
    def drafted(self) -> DraftShape | None:
        """The shape that the counts tell, else the one that the settings do."""
        counted = counted_shape(self.counted) if self.counted is not None else None
        if counted is None or (self.shape is not None and not self.is_other_than_set):
            return self.shape
        return counted

    @property
    def is_other_than_set(self) -> bool:
        """Whether the counts tell of more or fewer draft tokens in a round than the settings."""
        counted = counted_shape(self.counted) if self.counted is not None else None
        if counted is None or self.shape is None:
            return False
        return counted.draft_tokens != self.shape.draft_tokens

    @property
    def acceptance(self) -> Acceptance:
        """As everywhere in this tool: only if it is MEASURED is anything concluded from it."""
        counted = self.counted
        found = from_counters(counted, self.output_tokens, method_is_none=False, source="the counters")
        return reconcile(found, self.recount, "the drafter's own counters")

    @property
    def unusable(self) -> str:
        """Why nothing is concluded from these counts; "" if nothing speaks against it."""
        told, counted = len(counts_by_reply(self.replies)), self.counted
        if counted is not None and counted.drafts < MIN_DRAFTS:
            return f"{counted.drafts} rounds are too few to judge: {MIN_DRAFTS} are needed"
        if 0 < told < MIN_REPLIES:
            return f"{told} replies are too few to judge: {MIN_REPLIES} are needed"
        if self.texts.share >= MOST:
            return "most replies loop or look random"
        state = self.acceptance.state
        return "" if state is AcceptanceState.MEASURED else self.acceptance.note

    @property
    def accuracy(self) -> Estimate | None:
        """The flat conditional accuracy that gives what was counted; None without counts or a shape."""
        counted, shape = self.counted, self.drafted
        if counted is None or counted.drafts <= 0 or shape is None:
            return None
        depth = shape.depth
        return share_of_depth(counted, self.replies, depth).through(lambda s: accuracy_of_rate(s, depth))

    @property
    def read_accuracy(self) -> float | None:
        """The same of a rate or length without counts; None if there is none, or none of this shape."""
        shape = self.drafted
        if shape is None:
            return None
        highest = highest_rate(shape)
        if self.rate is not None and 0 <= self.rate <= highest:
            return accuracy_of_rate(self.rate / highest, shape.depth)
        if self.length is not None and 1 <= self.length <= shape.depth + 1:
            return accuracy_of_length(self.length, shape.depth)
        return None

    @property
    def expected_accuracy(self) -> float | None:
        shape = self.drafted
        return self.expected.accuracy(shape) if self.expected is not None and shape is not None else None

    @property
    def judgement(self) -> Judgement | None:
        """None where nothing is expected, or too little was counted to tell."""
        accuracy, expected = self.accuracy, self.expected_accuracy
        if accuracy is None or expected is None or self.unusable:
            return None
        return judge(accuracy, expected)

    @property
    def texts(self) -> TextStatistics:
        """Of the replies that have a text, in their order."""
        return text_statistics([r.text for r in self.replies if r.text])

    @property
    def undistorted(self) -> "Observed | None":
        """The same without the replies that loop or are random; None if the counts are not told by reply."""
        with_text = [r for r in self.replies if r.text]
        distorting = [with_text[i] for i in self.texts.distorting]
        kept = [r for r in self.replies if not any(r is d for d in distorting)]
        if not distorting or not counts_by_reply(kept):
            return None
        return replace(self, replies=kept, output_tokens=None)
