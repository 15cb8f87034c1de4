"""What the figures of a run prove: another definition, a drafter that is not used, texts that distort."""

from collections.abc import Iterator

from analysis.acceptance import SUSPECT_RATE
from analysis.wiring.estimate import by_position
from analysis.wiring.expectation import MARGIN, Figure, Standing
from analysis.wiring.observed import Observed
from analysis.wiring.shapes import HINTS, shapes
from analysis.wiring.text_statistics import MANY, MOST
from analysis.words import count, percent
from results.records import AcceptanceState
from results.wiring import Cause, Finding, Severity

SAME_LENGTH = 0.05
RATE_RULE = "rate = (a + a^2 + ... + a^k) / k: the counters of SGLang (accepted / (verifies x k)) and vLLM"
BONUS_RULE = (
    "length = 1 + accepted / rounds with the bonus token, exactly 1 less without (SafeAILab/EAGLE#132)"
)
UNUSED_RULE = (
    "a drafter that is used drafts in every round; llama.cpp loads one and drafts nothing unless it is told "
    "--spec-type (ggml-org/llama.cpp#25345)"
)
TWO_COUNTERS_RULE = (
    "a server and its drafter count the same drafts; on hybrid targets llama.cpp leaves out the rounds that "
    "were accepted in part"
)
TEXT_RULE = (
    "a loop is easy to draft: 74.6 % on random prompts whose output looped, 48.5 % on chat, the same server "
    "(tokenspeed#1305); NaN logits look like perfect acceptance (NVIDIA/TensorRT-LLM#5146)"
)


def definition_findings(observed: Observed) -> Iterator[Finding]:
    yield from _of_counters(observed)
    yield from _of_definitions(observed)
    yield from _of_texts(observed)


def _of_counters(observed: Observed) -> Iterator[Finding]:
    acceptance = observed.acceptance
    if acceptance.state is AcceptanceState.NOT_SPECULATING:
        yield Finding(Cause.NOT_ATTACHED, Severity.FATAL, acceptance.note, UNUSED_RULE)
    elif acceptance.state is AcceptanceState.COUNTERS_DISAGREE:
        yield Finding(Cause.DEFINITION, Severity.LIKELY, acceptance.note, TWO_COUNTERS_RULE)
    elif acceptance.rate is not None and acceptance.rate >= SUSPECT_RATE and acceptance.note:
        yield Finding(Cause.DEFINITION, Severity.INFO, acceptance.note, TWO_COUNTERS_RULE)


def _of_definitions(observed: Observed) -> Iterator[Finding]:
    expected, shape = observed.expected, observed.drafted
    if expected is None or shape is None:
        return
    if expected.accuracy(shape) is None:
        seen = (
            f"a length of {expected.value:g} is expected; at k = {shape.depth} the most is {shape.depth + 1}"
        )
        yield Finding(Cause.DEFINITION, Severity.FATAL, seen, BONUS_RULE)
    elif expected.figure is Figure.ACCURACY:
        yield from _rate_beside_accuracy(observed, expected.value, shape.depth)
    elif observed.length is not None and abs(expected.value - observed.length - 1) <= SAME_LENGTH:
        seen = f"{observed.length:g} was read and {expected.value:g} is expected: one bonus token apart"
        yield Finding(Cause.DEFINITION, Severity.LIKELY, seen, BONUS_RULE)


def _rate_beside_accuracy(observed: Observed, expected: float, k: int) -> Iterator[Finding]:
    """A rate looks far too low and its accuracy is as expected: two figures, not one that fell."""
    counted, accuracy, judgement = observed.counted, observed.read_accuracy, observed.judgement
    rate = observed.rate
    is_as_expected = accuracy is not None and accuracy >= expected - MARGIN
    if judgement is not None and counted is not None and observed.accuracy is not None:
        rate, accuracy = counted.accepted_tokens / counted.draft_tokens, observed.accuracy.value
        is_as_expected = judgement.standing is Standing.AS_EXPECTED
    if rate is not None and is_as_expected and rate < expected - MARGIN:
        seen = (
            f"{percent(rate)} accepted of the proposed at k = {k} is what a head of {percent(accuracy)} "
            f"conditional accuracy gives, and {percent(expected)} is what was expected of it"
        )
        yield Finding(Cause.DEFINITION, Severity.LIKELY, seen, RATE_RULE)


def _of_texts(observed: Observed) -> Iterator[Finding]:
    texts = observed.texts
    if texts.share < MANY:
        return
    severity = Severity.LIKELY if texts.share >= MOST else Severity.INFO
    seen = f"{len(texts.looping)} loop and {len(texts.random)} look random of {count(texts.texts, 'text')}"
    yield Finding(Cause.LOOPING, severity, seen, TEXT_RULE)


def follows(observed: Observed) -> Iterator[str]:
    """Whether there is a problem at all, and what the form of the counts hints at."""
    yield from _standing(observed)
    yield from _hints(observed)
    yield from _without_distorting(observed)


def _standing(observed: Observed) -> Iterator[str]:
    accuracy, expected, judgement = observed.accuracy, observed.expected_accuracy, observed.judgement
    if accuracy is None:
        yield from _standing_of_a_figure(observed)
        return
    if observed.unusable:
        yield f"nothing is concluded: {observed.unusable}"
    if judgement is None or expected is None:
        return
    figures = f"{percent(accuracy.value)} conditional accuracy, {percent(expected)} expected"
    if judgement.standing is Standing.AS_EXPECTED:
        yield f"no problem in these figures: {figures}; a wrong wiring that costs less is not ruled out"
    elif judgement.standing is Standing.BELOW:
        yield f"acceptance is low: {figures}"
        yield from _caution(observed.temperature)
    else:
        rounds = observed.counted.drafts if observed.counted else 0
        more = f"about {judgement.more * rounds:.0f} rounds" if judgement.more else "at the edge: more rounds"
        yield f"undecided whether acceptance is low: {figures}; {more} of as many more replies would decide"


def _standing_of_a_figure(observed: Observed) -> Iterator[str]:
    accuracy, expected = observed.read_accuracy, observed.expected_accuracy
    if accuracy is None or expected is None:
        return
    what = "looks low" if accuracy < expected - MARGIN else "no problem in this figure"
    figures = f"{percent(accuracy)} conditional accuracy, {percent(expected)} expected"
    yield f"{what}: {figures}; one figure without counts proves neither"


def _caution(temperature: float | None) -> Iterator[str]:
    """An offline accuracy is one of greedy text."""
    if temperature is None:
        yield "the temperature is not known: an offline accuracy is one of temperature 0"
    elif temperature > 0:
        yield (
            f"at temperature {temperature:g} less is accepted than at 0, for which an offline accuracy "
            "holds: measure at 0 before anything else"
        )


def _hints(observed: Observed) -> Iterator[str]:
    counted, shape, judgement = observed.counted, observed.drafted, observed.judgement
    if counted is None or shape is None or observed.unusable:
        return
    found = shapes(
        counted,
        by_position(counted, observed.replies),
        observed.replies,
        expected=observed.expected_accuracy,
        is_below=judgement is not None and judgement.standing is Standing.BELOW,
        depth=shape.depth,
    )
    for shown in found:
        yield f"{shown}; a hint, no more, at: {HINTS[shown]}"


def _without_distorting(observed: Observed) -> Iterator[str]:
    clean = observed.undistorted
    if clean is None or clean.counted is None:
        return
    length = 1 + clean.counted.accepted_tokens / clean.counted.drafts
    left = count(len(clean.replies), "reply", "replies")
    yield f"without the replies that loop or look random the accept length is {length:.2f} ({left})"
