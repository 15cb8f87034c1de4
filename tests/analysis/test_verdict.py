import math
from dataclasses import replace

import pytest

from analysis.verdict import AnswerKind, answer, conclude, decide, next_look, still_open
from analysis.words import signed_percent
from results.reasons import Reason
from results.records import (
    Acceptance,
    AcceptanceState,
    Block,
    Cell,
    Effect,
    Failure,
    OutputCheck,
    Phase,
    Point,
    SpecCounters,
    Verdict,
    VerdictKind,
    Weights,
)
from tests.analysis.build import CHAT, CODE, FAST, SLOW, arm, block

WOBBLE = (0.001, -0.001, 0.0015, -0.0015) * 5


def around(mean: float, blocks: int, scale: float = 1.0) -> list[float]:
    return [mean + scale * w for w in WOBBLE[:blocks]]


@pytest.mark.parametrize(
    ("mean", "scale", "expected"),
    [
        (0.05, 1.0, VerdictKind.BETTER),
        (-0.05, 1.0, VerdictKind.WORSE),
        (0.0, 1.0, VerdictKind.SAME),
        (0.05, 50.0, VerdictKind.UNDECIDED),
        (0.019, 1.0, VerdictKind.BETTER),  # above 0 comes before "within two percent"
    ],
)
def test_kinds(mean: float, scale: float, expected: VerdictKind) -> None:
    kind, effect = decide(around(mean, 4, scale))
    assert kind is expected
    assert effect is not None
    assert effect.log_ratio == pytest.approx(mean)
    assert effect.low < mean < effect.high


def test_the_margin_of_same_is_two_percent_unless_told() -> None:
    assert decide(around(0.0, 4, 5.0))[0] is VerdictKind.UNDECIDED
    assert decide(around(0.0, 4, 5.0), same_margin=0.1)[0] is VerdictKind.SAME


def test_no_difference_at_all_is_the_same() -> None:
    assert decide([0.0] * 4)[0] is VerdictKind.SAME


def test_nothing_is_decided_between_looks() -> None:
    assert decide(around(0.05, 3)) == (VerdictKind.UNDECIDED, None)
    noisy = around(0.05, 4, 50.0) + around(0.05, 3)
    kind, effect = decide(noisy)
    assert (kind, effect and effect.blocks) == (VerdictKind.UNDECIDED, 4)


def test_a_decision_consumes_no_later_blocks() -> None:
    first = decide(around(0.05, 4))
    assert decide(around(0.05, 4) + [-0.5] * 16) == first


def test_a_later_look_may_decide() -> None:
    kind, effect = decide(around(0.02, 20, 10.0))
    assert kind is VerdictKind.BETTER
    assert effect is not None and effect.blocks in (8, 12, 20)


def test_more_finalists_widen_the_interval() -> None:
    one, three = decide(around(0.05, 4))[1], decide(around(0.05, 4), finalists=3)[1]
    assert one is not None and three is not None
    assert three.low < one.low < one.high < three.high


def test_next_look() -> None:
    assert [next_look(n) for n in (0, 3, 4, 8, 19, 20)] == [4, 4, 8, 12, 20, None]
    assert next_look(4, (4, 6)) == 6


def confirmed(fast: float = 0.06, slow: float = -0.04, blocks: int = 4) -> list[Block]:
    return [
        block(n, (FAST, {CHAT: fast + w, CODE: fast + w}), (SLOW, {CHAT: slow - w, CODE: slow - w}))
        for n, w in enumerate(WOBBLE[:blocks])
    ]


def test_each_finalist_is_compared_with_the_baseline_of_its_blocks() -> None:
    fast, slow = conclude(confirmed(), [FAST, SLOW])
    assert (fast.kind, slow.kind) == (VerdictKind.BETTER, VerdictKind.WORSE)
    assert fast.effect is not None and fast.effect.log_ratio == pytest.approx(0.06)
    assert fast.cells == (CHAT.label, CODE.label)
    assert "+6.2 %" in fast.why and "4 Blocks" in fast.why


def test_only_usable_confirmation_blocks_count() -> None:
    bad = [
        replace(confirmed(-0.9)[0], phase=Phase.SEARCH),
        replace(confirmed(-0.9)[0], invalid=Failure(Reason.HOST_PRESSURE, "x")),
        replace(confirmed(-0.9)[0], arms=confirmed(-0.9)[0].arms[1:]),
    ]
    assert conclude([*bad, *confirmed()], [FAST])[0] == conclude(confirmed(), [FAST])[0]


def test_a_finalist_dropped_from_later_blocks_keeps_its_verdict_and_its_share_of_alpha() -> None:
    later = [replace(b, arms=b.arms[:2]) for b in confirmed(blocks=8)[4:]]
    before, after = conclude(confirmed(), [FAST, SLOW]), conclude(confirmed() + later, [FAST, SLOW])
    assert after == before


def test_a_finalist_that_failed_once_is_invalid() -> None:
    blocks = confirmed()
    crash = Failure(Reason.CRASH_UNDER_LOAD, "CUDA error")
    baseline, fast, slow = blocks[2].arms
    blocks[2] = replace(blocks[2], arms=(baseline, replace(fast, failure=crash), slow))
    found = conclude(blocks, [FAST, SLOW])
    assert [v.kind for v in found] == [VerdictKind.INVALID, VerdictKind.WORSE]
    assert found[0].effect is None
    assert "Block 2" in found[0].why and "CUDA error" in found[0].why


def test_a_block_that_lacks_a_cell_gives_no_number() -> None:
    blocks = confirmed()
    baseline, fast, slow = blocks[1].arms
    blocks[1] = replace(blocks[1], arms=(baseline, arm(FAST, *fast.measurements[:1]), slow))
    assert conclude(blocks, [FAST])[0].kind is VerdictKind.INVALID


def test_before_the_first_look_there_is_no_effect() -> None:
    (found,) = conclude(confirmed(blocks=3), [FAST])
    assert (found.kind, found.effect) == (VerdictKind.UNDECIDED, None)
    (nothing,) = conclude([], [FAST])
    assert (nothing.kind, nothing.by_class) == (VerdictKind.UNDECIDED, {})


def test_another_objective_is_judged_on_its_own_figures() -> None:
    (found,) = conclude(confirmed(), [FAST], objective="mean_request_tokens_per_s")
    assert found.kind is VerdictKind.BETTER
    assert conclude(confirmed(), [FAST], objective="ttft_p50_s")[0].kind is VerdictKind.INVALID


def mixed_signs(blocks: int = 4) -> list[Block]:
    return [block(n, (FAST, {CODE: 0.12 + w, CHAT: -0.03 + 20 * w})) for n, w in enumerate(WOBBLE[:blocks])]


def test_a_total_does_not_hide_the_signs_of_its_classes() -> None:
    verdicts = conclude(mixed_signs(), [FAST], same_margin=0.0)
    found = answer([replace(verdicts[0], kind=VerdictKind.BETTER)])
    assert {s.workload_class: s.settled for s in found.signs_differ} == {"code": True, "chat": False}
    assert "code +12.7 % (settled)" in found.banner
    assert "chat -3.0 % (not settled)" in found.banner


def test_no_banner_when_all_classes_agree() -> None:
    found = answer(conclude(confirmed(), [FAST]))
    assert (found.signs_differ, found.banner) == ((), "")


def test_cells_of_one_class_are_pooled_within_the_block() -> None:
    other = replace(CODE, pace="closed(4)")
    blocks = [block(n, (FAST, {CODE: 0.1 + w, other: 0.3 + w})) for n, w in enumerate(WOBBLE[:4])]
    assert conclude(blocks, [FAST])[0].by_class["code"].log_ratio == pytest.approx(0.2)


def test_cells_of_one_class_that_differ_in_sign_are_said_once() -> None:
    busy = replace(CHAT, pace="closed(4)")
    blocks = [
        block(n, (FAST, {CODE: 0.1 + w, CHAT: 0.1 + w, busy: -0.05 + w})) for n, w in enumerate(WOBBLE[:4])
    ]
    found = answer(conclude(blocks, [FAST]))
    assert found.signs_differ == ()
    assert found.banner == (
        "Within chat the sign depends on the Cell: it gains, but not at closed(4) -4.9 % (settled)."
    )


def test_the_cells_of_a_class_with_one_sign_are_in_the_line_of_the_classes() -> None:
    others = [replace(c, pace="closed(4)") for c in (CODE, CHAT)]
    logs = {CODE: 0.2, others[0]: 0.1, CHAT: -0.1, others[1]: -0.2}
    blocks = [block(n, (FAST, {c: d + w for c, d in logs.items()})) for n, w in enumerate(WOBBLE[:4])]
    banner = answer(conclude(blocks, [FAST])).banner
    assert banner.startswith("The sign depends on the workload class: code ")
    assert len(banner.splitlines()) == 1


def test_of_many_cells_the_rarer_sign_is_named_the_furthest_first() -> None:
    paces = {f"closed({n})": 0.3 - 0.05 * n for n in range(1, 16)}  # 5 gain, one is at 0, 9 lose
    cells = {replace(CHAT, pace=pace): log for pace, log in paces.items()}
    blocks = [block(n, (FAST, {c: d + w for c, d in cells.items()})) for n, w in enumerate(WOBBLE[:4])]
    banner = answer(conclude(blocks, [FAST])).banner
    assert "it loses, but not at closed(1) +28.4 % (settled), closed(2) " in banner
    assert banner.endswith(" and 1 more.") or banner.endswith(" and 2 more.")


def with_outputs(ours: int, control: int | None) -> Verdict:
    check = OutputCheck(25, ours, ())
    against = None if control is None else OutputCheck(25, control, ())
    blocks = [replace(b, outputs={FAST.key: check}, control=against) for b in confirmed()]
    return conclude(blocks, [FAST])[0]


def test_divergence_is_flagged_only_beyond_that_of_two_baselines() -> None:
    same = with_outputs(24, 24)
    assert (same.identical_share, same.control_identical_share) == (0.96, 0.96)
    assert same.warnings == ()
    assert with_outputs(25, 25).warnings == ()
    assert with_outputs(23, 24).warnings == ()  # within the noise of 100 comparisons
    assert "80% equal the baseline's, 96%" in with_outputs(20, 24).warnings[0]
    assert "96% equal the baseline's, 100%" in with_outputs(24, 25).warnings[0]
    unknown = with_outputs(5, None)
    assert (unknown.warnings, unknown.control_identical_share) == ((), None)


def test_acceptance_is_reported_beside_the_verdict_never_judged() -> None:
    counters = SpecCounters(100, 800, 60)
    poor = Acceptance(AcceptanceState.COUNTERS_DISAGREE, counters=counters, note="suspect")
    blocks = []
    for b in confirmed():
        tokens = {"p1": 260}  # 200 verify steps emitted them
        fast = tuple(replace(m, acceptance=poor, tokens_by_prompt=tokens) for m in b.arms[1].measurements)
        blocks.append(replace(b, arms=(b.arms[0], replace(b.arms[1], measurements=fast))))
    (found,) = conclude(blocks, [FAST])
    assert found.kind is VerdictKind.BETTER
    assert found.acceptance_length == pytest.approx(1.3)
    assert found.warnings == ("acceptance: suspect",)


def test_warnings_of_the_blocks_used_are_told_once() -> None:
    blocks = [replace(b, warnings=("mixed workload",)) for b in confirmed()]
    (found,) = conclude([replace(blocks[0], warnings=("another", "mixed workload")), *blocks[1:]], [FAST])
    assert found.warnings == ("another", "mixed workload")
    (found,) = conclude([*confirmed(), replace(blocks[0], warnings=("too late",))], [FAST])
    assert found.warnings == ()


def verdict(kind: VerdictKind, low: float, high: float, name: str = "m") -> Verdict:
    effect = Effect((low + high) / 2, low, high, 8)
    return Verdict(kind, Point(name), effect, {}, (), None, None, None, "why.")


def test_the_winner_is_the_better_one_with_the_largest_estimate() -> None:
    verdicts = [
        verdict(VerdictKind.UNDECIDED, -0.1, 0.9, "wild"),
        verdict(VerdictKind.BETTER, 0.01, 0.05, "good"),
        verdict(VerdictKind.BETTER, 0.04, 0.08, "best"),
    ]
    found = answer(verdicts)
    assert (found.kind, found.winner, found.best) == (AnswerKind.WINNER, verdicts[2], verdicts[0])
    assert found.sentence == "best beats the baseline: why."


INVALID = replace(verdict(VerdictKind.INVALID, 0, 0), effect=None)
WORSE = verdict(VerdictKind.WORSE, -0.2, -0.1, "worse")
SAME = verdict(VerdictKind.SAME, -0.01, 0.01, "same")
OPEN = verdict(VerdictKind.UNDECIDED, -0.01, 0.05, "open")


@pytest.mark.parametrize(
    ("verdicts", "kind", "best"),
    [
        ([WORSE, SAME, INVALID], AnswerKind.NONE_BETTER, SAME),
        ([WORSE, OPEN], AnswerKind.UNDECIDED, OPEN),
        ([INVALID, INVALID], AnswerKind.INVALID, None),
        ([], AnswerKind.INVALID, None),
    ],
)
def test_answers_without_a_winner(verdicts: list[Verdict], kind: AnswerKind, best: Verdict | None) -> None:
    found = answer(verdicts)
    assert (found.kind, found.winner, found.best) == (kind, None, best)
    assert best is None or best.point.label in found.sentence


def test_no_configuration_beats_the_baseline_is_said_in_words() -> None:
    assert answer([WORSE]).sentence.startswith("No configuration beats the baseline.")


def test_finalists_stay_open_while_undecided_and_ahead_of_every_winner() -> None:
    leader = verdict(VerdictKind.BETTER, 0.06, 0.10, "leader")
    behind = verdict(VerdictKind.UNDECIDED, -0.01, 0.15, "behind")
    ahead = verdict(VerdictKind.UNDECIDED, -0.01, 0.25, "ahead")
    unseen = replace(ahead, effect=None, point=Point("unseen"))
    assert still_open([leader, behind, ahead, unseen, WORSE, SAME]) == [ahead.point, unseen.point]
    assert still_open([behind, WORSE]) == [behind.point]  # nobody has won yet
    below = verdict(VerdictKind.UNDECIDED, -0.09, 0.05, "below")
    assert still_open([behind, below]) == [behind.point]  # below the baseline while another is above
    assert still_open([below, WORSE]) == [below.point]
    assert still_open([INVALID]) == []


def test_percent() -> None:
    assert signed_percent(math.log(1.059)) == "+5.9 %"
    assert signed_percent(math.log(0.5)) == "-50.0 %"


def test_measurements_of_both_arms_may_come_in_any_order() -> None:
    blocks = []
    for n, w in enumerate(WOBBLE[:4]):
        b = block(n, (FAST, {CHAT: 0.1 + w, CODE: 0.3 + w}))
        blocks.append(
            replace(b, arms=(replace(b.arms[1], measurements=b.arms[1].measurements[::-1]), b.arms[0]))
        )
    (found,) = conclude(blocks, [FAST])
    assert found.effect is not None and found.effect.log_ratio == pytest.approx(0.2)


def test_cells_count_by_their_weights() -> None:
    split = [block(n, (FAST, {CHAT: -0.06 + w, CODE: 0.30 + w})) for n, w in enumerate(WOBBLE[:4])]
    even = conclude(split, [FAST])[0]
    assert even.effect is not None and even.effect.log_ratio == pytest.approx(0.12)
    weighted = conclude(split, [FAST], weights=Weights(classes={"chat": 3}))[0]
    assert weighted.effect is not None and weighted.effect.log_ratio == pytest.approx((3 * -0.06 + 0.30) / 4)
    assert weighted.cells == (CHAT.label, CODE.label)
    alone = conclude(split, [FAST], weights=Weights(classes={"code": 0}))[0]
    assert alone.kind is VerdictKind.WORSE
    assert alone.cells == (CHAT.label,)  # measured, and nothing is claimed of the other
    assert {c: e.log_ratio for c, e in alone.by_cell.items()} == pytest.approx(
        {CHAT.label: -0.06, CODE.label: 0.30}
    )


def test_the_weight_of_a_cell_is_the_product_of_its_parts() -> None:
    weights = Weights({"chat": 3}, {"closed(1)": 0.5}, {0: 2, 1024: 4})
    assert weights.of(CHAT) == 3
    assert weights.of(Cell("chat", "closed(1)", 1024)) == 6
    assert weights.of(Cell("code", "closed(8)", 512)) == 1


def test_a_class_is_the_mean_of_its_cells_by_their_weights() -> None:
    busy = Cell("chat", "closed(8)")
    split = [block(n, (FAST, {CHAT: 0.3 + w, busy: -0.1 + w})) for n, w in enumerate(WOBBLE[:4])]
    for paces, expected in [({}, 0.1), ({"closed(8)": 3.0}, 0.0), ({"closed(1)": 0.0}, -0.1)]:
        found = conclude(split, [FAST], weights=Weights(paces=paces))[0]
        assert found.by_class["chat"].log_ratio == pytest.approx(expected)
    alone = conclude(split, [FAST], weights=Weights(classes={"chat": 2.0}))[0]
    assert alone.by_class["chat"].log_ratio == pytest.approx(0.1)
