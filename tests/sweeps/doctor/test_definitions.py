"""The first section of the doctor: what the figures mean, and whether there is a problem at all."""

from collections.abc import Sequence

import pytest

from analysis.wiring.expectation import expectation
from analysis.wiring.observed import Observed
from analysis.wiring.replies import Reply
from results.records import DraftShape, SpecCounters
from results.wiring import Cause, Section, Severity, Step
from sweeps.doctor.definitions import section
from tests.analysis.wiring.test_text_statistics import LOOP, NAN, PROSE

K5 = DraftShape(5, 5, 5)
PAIR = SpecCounters(733, 2199, 802, (403, 267, 132))  # the tiny pair, on both engines


def plain(lines: Sequence[str]) -> str:
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def many(counters: SpecCounters, times: int) -> SpecCounters:
    return sum([counters] * (times - 1), counters)


def causes(found: Section) -> list[tuple[Cause, Severity]]:
    return [(f.cause, f.severity) for f in found.findings]


def test_the_rate_of_the_story_is_what_its_head_gives() -> None:
    found = section(Observed(rate=0.47, shape=K5, expected=expectation(0.75)))
    assert (
        "47 % accepted of the proposed at k = 5 is what a head of 76 % conditional accuracy gives"
        in plain(found.seen)
    )
    assert causes(found) == [(Cause.DEFINITION, Severity.LIKELY)]
    assert "75 % is what was expected" in plain([found.findings[0].seen])
    assert plain(found.follows).startswith("no problem in this figure: 76 %")


def test_the_broken_rate_of_the_story_is_no_matter_of_definitions() -> None:
    found = section(Observed(rate=0.19, shape=K5, expected=expectation(0.75)))
    assert "is what a head of 49 % conditional accuracy gives" in plain(found.seen)
    assert causes(found) == []
    assert plain(found.follows).startswith("looks low: 49 % conditional accuracy, 75 % expected")


def test_counts_that_are_as_expected_though_the_rate_is_far_below() -> None:
    counters = SpecCounters(20_000, 100_000, 48_700)  # 0.487 at k = 5: a = 0.769
    found = section(Observed(counters=counters, temperature=0.0, expected=expectation(0.769)))
    assert causes(found) == [(Cause.DEFINITION, Severity.LIKELY)]
    assert found.follows[0].startswith("no problem in these figures")
    assert "not ruled out" in found.follows[0]


def test_everything_is_told_of_what_was_counted() -> None:
    found = section(Observed(counters=PAIR, temperature=0.0, expected=expectation(0.75)))
    assert found.step is Step.DEFINITIONS
    seen = plain(found.seen)
    assert "k = 3 draft tokens a round (SGLang's num_draft_tokens, which counts the root, is 4)" in seen
    assert (
        "accept length 2.09 with the bonus token, 1.09 without; before its #13212 SGLang printed 0.52" in seen
    )
    assert "conditional accuracy by position 0.55 0.66 0.49" in seen
    assert "full accuracy, accepted up to there 0.55 0.36 0.18" in seen
    assert "temperature 0" in found.checked
    assert plain(found.follows).startswith("acceptance is low: 57 % conditional accuracy, 75 % expected")
    assert "a hint, no more" in found.follows[1]
    assert causes(found) == [], "metrics alone name no cause"


@pytest.mark.parametrize(
    ("temperature", "words"),
    [(None, "the temperature is not known"), (0.8, "at temperature 0.8 less is accepted")],
)
def test_low_at_another_temperature_is_no_fault_yet(temperature: float | None, words: str) -> None:
    found = section(Observed(counters=PAIR, temperature=temperature, expected=expectation(0.75)))
    assert found.follows[1].startswith(words)


def test_a_handful_of_rounds_concludes_nothing() -> None:
    few = SpecCounters(40, 120, 0, (0, 0, 0))
    found = section(Observed(counters=few, expected=expectation(0.75)))
    assert found.follows == ("nothing is concluded: 40 rounds are too few to judge: 100 are needed",)
    by_reply = section(Observed([Reply(counters=many(few, 5))] * 3, expected=expectation(0.75)))
    assert by_reply.follows == ("nothing is concluded: 3 replies are too few to judge: 8 are needed",)


def test_what_is_near_is_undecided_with_the_rounds_that_would_decide() -> None:
    found = section(Observed(counters=PAIR, temperature=0.0, expected=expectation(0.63)))
    (line,) = found.follows
    assert line.startswith("undecided whether acceptance is low")
    assert "rounds" in line


def test_no_expectation_no_judgement() -> None:
    found = section(Observed(counters=many(PAIR, 10)))
    assert "no expectation given: nothing is judged to be low" in found.checked
    assert found.follows == ()


def test_lengths_one_bonus_token_apart() -> None:
    found = section(Observed(length=2.43, shape=K5, expected=expectation(3.43)))
    assert causes(found) == [(Cause.DEFINITION, Severity.LIKELY)]
    assert "one bonus token apart" in found.findings[0].seen
    assert causes(section(Observed(length=2.0, shape=K5, expected=expectation(3.43)))) == []


def test_a_length_that_this_k_cannot_give() -> None:
    found = section(Observed(counters=PAIR, expected=expectation(4.5)))
    assert causes(found) == [(Cause.DEFINITION, Severity.FATAL)]
    assert "at k = 3 the most is 4" in found.findings[0].seen


def test_a_rate_that_a_tree_cannot_have() -> None:
    tree = DraftShape(4, 15, 4, 4)
    assert "cannot be at k = 4" in plain(section(Observed(rate=0.5, shape=tree)).seen)
    seen = plain(section(Observed(rate=0.2, shape=tree)).seen)
    assert "the rate cannot exceed 27 %" in seen
    assert "is what a head of 89 % conditional accuracy gives" in seen


def test_settings_and_counts_one_step_apart() -> None:
    found = section(Observed(counters=PAIR, shape=DraftShape(4, 4, 4)))
    assert "the settings say 4 draft tokens, the counters 3 a round: the counters are believed" in found.seen


def test_drafts_cut_short_are_said() -> None:
    found = section(Observed(counters=SpecCounters(1000, 3300, 1500)))
    assert "drafts have 3.3 tokens on average, not one length: accuracies are approximate" in found.seen


def test_a_drafter_that_is_loaded_and_never_drafts() -> None:
    found = section(Observed(counters=SpecCounters(0, 0, 0), output_tokens=300, shape=DraftShape(8, 8, 8)))
    assert causes(found) == [(Cause.NOT_ATTACHED, Severity.FATAL)]
    short = section(Observed(counters=SpecCounters(0, 0, 0), output_tokens=30))
    assert causes(short) == []


def test_two_counters_that_disagree_conclude_nothing() -> None:
    observed = Observed(
        counters=SpecCounters(500, 1150, 1150),
        recount=SpecCounters(810, 2140, 1150),
        expected=expectation(0.9),
    )
    found = section(observed)
    assert causes(found) == [(Cause.DEFINITION, Severity.LIKELY)]
    assert "say 100.0%, the drafter's own counters 53.7%" in found.findings[0].seen
    assert found.follows[0].startswith("nothing is concluded")


def test_all_accepted_is_suspect_not_perfect() -> None:
    found = section(Observed(counters=SpecCounters(500, 1500, 1500, (500, 500, 500))))
    assert causes(found) == [(Cause.DEFINITION, Severity.INFO)]


def test_counters_that_cannot_be_conclude_nothing() -> None:
    found = section(
        Observed(counters=SpecCounters(500, 1500, 100, (400, 300, 200)), expected=expectation(0.7))
    )
    assert found.follows == ("nothing is concluded: 100 tokens accepted, 900 over all positions",)


def replies(*texts: tuple[str, SpecCounters]) -> list[Reply]:
    return [Reply(text, counters) for text, counters in texts]


LOOPING = (LOOP, SpecCounters(20, 80, 76, (20, 19, 19, 18)))
GOOD = (PROSE, SpecCounters(40, 160, 48, (24, 14, 7, 3)))


def test_loops_are_named_and_left_out() -> None:
    found = section(Observed(replies(*[LOOPING] * 3, *[GOOD] * 9)))
    assert causes(found) == [(Cause.LOOPING, Severity.INFO)]
    assert "3 of 12 texts loop" in found.seen
    assert found.follows[-1].endswith("the accept length is 2.20 (9 replies)")


def test_nothing_is_concluded_of_texts_that_mostly_loop() -> None:
    found = section(Observed(replies(*[LOOPING] * 8, *[GOOD] * 4), expected=expectation(0.7)))
    assert causes(found) == [(Cause.LOOPING, Severity.LIKELY)]
    assert found.follows[0] == "nothing is concluded: most replies loop or look random"


def test_garbage_with_perfect_acceptance() -> None:
    perfect = SpecCounters(25, 100, 100, (25, 25, 25, 25))
    found = section(Observed(replies(*[(NAN, perfect)] * 10)))
    assert (Cause.LOOPING, Severity.LIKELY) in causes(found)


def test_texts_alone() -> None:
    found = section(Observed([Reply(PROSE)] * 4))
    assert "none of 4 texts loops or looks random" in found.seen
    assert "no counts of drafts known" in found.checked
    assert "the number of draft tokens is not known: no figure can be converted" in found.seen


def test_a_shape_alone_gives_the_table() -> None:
    found = section(Observed(shape=K5))
    (accuracies,) = [line for line in found.seen if line.startswith("conditional accuracy")]
    (rates,) = [line for line in found.seen if line.startswith("accepted / proposed")]
    assert accuracies.split()[-3:] == ["0.70", "0.80", "0.90"]
    assert rates.split()[-3:] == ["0.39", "0.54", "0.74"]


def test_nothing_known_is_skipped_and_says_what_it_needs() -> None:
    found = section(Observed())
    assert found.skipped.startswith("needs the counters of a server")
    assert (found.checked, found.seen, found.follows, found.findings) == ((), (), (), ())
