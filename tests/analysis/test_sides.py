"""What a comparison says in one sentence, and its terms."""

import math
from dataclasses import replace

import pytest

from analysis.sides import sentence
from analysis.terms import definitions
from analysis.verdict import conclude
from results.records import BASELINE, Block, Effect, OutputCheck, Phase, Point, Verdict, VerdictKind
from tests.analysis.build import CHAT, arm, block, measurement

A, B = Point("none", name="A"), Point("eagle3", {"k": 3}, "B")


def verdict(kind: VerdictKind, log_ratio: float | None = None) -> Verdict:
    effect = None if log_ratio is None else Effect(log_ratio, log_ratio - 0.05, log_ratio + 0.05, 8)
    return Verdict(kind, B, effect, {}, (), None, None, None, "failed in Block 0: HANG, silence")


@pytest.mark.parametrize(
    ("kind", "log_ratio", "objective", "said"),
    [
        (VerdictKind.BETTER, math.log(1.123), "tokens_per_s", "B is 12.3 % faster than A (+6.8 % to +18.1 %"),
        (VerdictKind.WORSE, math.log(0.92), "tokens_per_s", "B is 8.0 % slower than A (-12.5 % to -3.3 %"),
        (VerdictKind.SAME, 0.0, "tokens_per_s", "B is as fast as A"),
        (VerdictKind.BETTER, math.log(1.25), "tpot_p50_s", "B is 25.0 % faster per token than A"),
        (VerdictKind.WORSE, math.log(0.5), "ttft_p95_s", "B is 50.0 % slower to the first token than A"),
        (VerdictKind.UNDECIDED, math.log(1.01), "tokens_per_s", "is faster: B is at 1.01x of A"),
        (VerdictKind.INVALID, None, "tokens_per_s", "of B against A: failed in Block 0: HANG, silence"),
    ],
)
def test_the_sentence(kind: VerdictKind, log_ratio: float | None, objective: str, said: str) -> None:
    assert said in sentence(verdict(kind, log_ratio), objective)


def compared(number: int, identical: int) -> Block:
    runs = [arm(A, measurement(CHAT, 100.0)), arm(B, measurement(CHAT, 130.0 + number))]
    outputs = {B.key: OutputCheck(20, identical, ())}
    control = OutputCheck(20, 20, ())
    return replace(
        block(number, phase=Phase.CONFIRM),
        arms=tuple(runs),
        compared_with=A,
        outputs=outputs,
        control=control,
    )


def test_a_verdict_names_the_side_it_is_against() -> None:
    blocks = [compared(n, identical=5) for n in range(4)]
    (found,) = conclude(blocks, [B])
    assert (found.kind, found.point) == (VerdictKind.BETTER, B)
    assert found.why.endswith("the whole interval is above A.")
    assert found.warnings[-1] == "outputs: 25% equal A's, 100% between two runs of A"
    (others,) = conclude(blocks, [B], same_model=False)  # then it is information
    assert not any("outputs" in warning for warning in others.warnings)
    assert others.identical_share == 0.25


def test_terms_of_a_search_are_not_those_of_a_comparison() -> None:
    of_search, of_comparison = definitions(), definitions(comparison=True)
    assert "A and B" in of_comparison.keys() - of_search.keys()
    assert "Search estimate" in of_search.keys() - of_comparison.keys()
    assert not [term for term, meaning in of_comparison.items() if "baseline" in meaning]
    assert BASELINE.name == ""
