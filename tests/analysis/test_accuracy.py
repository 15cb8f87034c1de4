import math
from itertools import product

import pytest

from analysis.accuracy import (
    Match,
    Reference,
    accuracy,
    chance_of_losing,
    is_right,
    is_worse,
    last_number,
    scores,
)
from analysis.verdict import conclude
from results.records import BASELINE, Score, VerdictKind
from tests.analysis.build import CHAT, FAST, arm, block, measurement, request


@pytest.mark.parametrize(
    ("match", "accepted", "answer", "right"),
    [
        ("exact", "Paris", "Paris", True),
        ("exact", "Paris", "  Paris\n", True),
        ("exact", "a  b", "a\nb", True),
        ("exact", "Paris", "Paris.", False),
        ("exact", "Paris", "paris", False),
        ("exact", "Paris", "<think>Rome? No.</think>\nParis", True),
        ("exact", "东京", "东京", True),
        ("contains", "Paris", "It is Paris, of course.", True),
        ("contains", "New York", "in New\n York", True),
        ("contains", "Paris", "It is Rome.", False),
        ("contains", "Paris", "<think>Paris?</think> Rome", False),
        ("number", "42", "6 * 7 = 42.", True),
        ("number", "42", "42 apples, no: 43", False),
        ("number", "1234.5", "That makes $1,234.50", True),
        ("number", "-3", "x = -3", True),
        ("number", "3", "so 10-7=3", True),
        ("number", "#### 72", "The total is 72", True),
        ("number", "7", "none", False),
        ("number", "7", "", False),
    ],
)
def test_what_is_right(match: Match, accepted: str, answer: str, right: bool) -> None:
    assert is_right(answer, Reference((accepted,), match)) is right
    assert (
        is_right(answer, Reference(("not this", accepted) if match != "number" else ("99", accepted), match))
        is right
    )


def test_the_last_number_of_a_text() -> None:
    assert last_number("1 2 3.") == 3
    assert last_number("v1.2b") is None or last_number("v1.2b") != 12


def test_scores_count_every_time_a_prompt_was_asked() -> None:
    references = {"chat/a": Reference(("yes",)), "chat/b": Reference(("no",))}
    asked = [
        request("a", text="yes"),
        request("a", text="no"),
        request("b", text="maybe"),
        request("c", text="yes"),
        request("b", text="no", error="cut"),
    ]
    assert scores(asked, references) == {"chat/a": Score(1, 2), "chat/b": Score(0, 1)}


def told(right: str) -> dict[str, Score]:
    """One prompt a letter: 1 = right, 0 = wrong, h = half of the times."""
    counts = {"1": Score(1, 1), "0": Score(0, 1), "h": Score(1, 2)}
    return {f"p{i}": counts[c] for i, c in enumerate(right)}


def arms(baseline: str, candidate: str) -> tuple[object, object]:
    return arm(BASELINE, scores=told(baseline)), arm(FAST, scores=told(candidate))


def test_arms_are_compared_prompt_by_prompt() -> None:
    found = accuracy([arms("11110h", "110110")])  # type: ignore[list-item]
    assert found is not None
    assert (found.prompts, found.right, found.baseline_right, found.lost, found.gained) == (6, 4, 4, 1, 1)
    assert accuracy([(arm(BASELINE), arm(FAST))]) is None


def test_repeats_are_no_further_evidence() -> None:
    once = accuracy([arms("1111", "0000")])  # type: ignore[list-item]
    often = accuracy([arms("1111", "0000")] * 20)  # type: ignore[list-item]
    assert once == often
    assert not is_worse(often)


def test_the_majority_of_blocks_decides_about_a_prompt() -> None:
    found = accuracy([arms("1", "0"), arms("1", "1"), arms("1", "1")])  # type: ignore[list-item]
    assert found is not None and found.lost == 0


@pytest.mark.parametrize(("lost", "gained"), [*product(range(9), range(5))])
def test_the_test_is_exact(lost: int, gained: int) -> None:
    changed = lost + gained
    ways = sum(1 for signs in product((0, 1), repeat=changed) if sum(signs) >= lost) if changed else 1
    assert chance_of_losing(lost, gained) == pytest.approx(ways / 2**changed)


def test_thousands_of_prompts_are_no_trouble() -> None:
    assert chance_of_losing(3000, 1) < 1e-300
    assert chance_of_losing(2000, 2000) == pytest.approx(0.5, abs=0.02)


def blocks(baseline: str, candidate: str) -> list[object]:
    m = measurement(CHAT)
    fast = measurement(CHAT, 130.0)
    return [
        block(
            n,
            arms=(arm(BASELINE, m, scores=told(baseline)), arm(FAST, fast, scores=told(candidate))),
        )
        for n in range(4)
    ]


@pytest.mark.parametrize(
    ("lost", "kind"), [(0, VerdictKind.BETTER), (6, VerdictKind.BETTER), (7, VerdictKind.INVALID)]
)
def test_a_confirmed_point_with_fewer_right_answers_is_invalid(lost: int, kind: VerdictKind) -> None:
    right = "1" * 20
    (verdict,) = conclude(blocks(right, "0" * lost + right[lost:]), [FAST])  # type: ignore[arg-type]
    assert verdict.kind is kind
    assert verdict.accuracy is not None and verdict.accuracy.lost == lost
    assert bool([w for w in verdict.warnings if w.startswith("accuracy")]) is (lost == 6)
    if kind is VerdictKind.INVALID:
        assert verdict.why.startswith("INVALID_OUTPUT: 13 of 20 answers right, the baseline's 20 of 20")


def test_another_model_may_be_less_accurate() -> None:
    (verdict,) = conclude(blocks("1" * 20, "0" * 20), [FAST], same_model=False)  # type: ignore[arg-type]
    assert verdict.kind is VerdictKind.BETTER
    assert any(w.startswith("accuracy: 0 of 20") for w in verdict.warnings)


def test_the_false_alarm_rate_is_kept() -> None:
    """Two equally good arms that change their mind on 20 prompts: all ways to do so, weighed."""
    alarms = sum(math.comb(20, k) for k in range(21) if chance_of_losing(k, 20 - k) <= 0.01)
    assert 0 < alarms / 2**20 <= 0.01
