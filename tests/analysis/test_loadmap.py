"""The load map: every state of a Cell, the one configuration for all, and what it loses."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.loadmap import CellAnswer, LoadMap, State, load_map, pace_order
from analysis.report_input import Comparison, ReportInput, Side
from analysis.verdict import answer, conclude
from results.reasons import Reason
from results.records import BASELINE, Cell, Failure, Phase, Point, VerdictKind, Weights
from tests.analysis.build import arm, block, measurement
from tests.analysis.maps import COPY, GUESS, LONG, WAITED, cells, confirmed, searched

ONE, FOUR = Cell("chat", "closed(1)"), Cell("chat", "closed(4)")


def drawn(report: ReportInput) -> LoadMap:
    found = load_map(report)
    assert found is not None
    return found


def at(report: ReportInput, cell: Cell = ONE) -> CellAnswer:
    return next(a for a in drawn(report).cells if a.cell == cell)


@pytest.mark.parametrize(
    ("logs", "state", "best", "shown"),
    [
        ((0.3, 0.1), State.FASTER, COPY, COPY),
        ((0.1, 0.3), State.FASTER, LONG, LONG),
        ((-0.3, -0.1), State.SLOWER, None, LONG),
        ((0.0, -0.1), State.SAME, None, COPY),
        ((0.0, 0.1), State.FASTER, LONG, LONG),
    ],
)
def test_the_state_of_a_cell_is_that_of_the_best_finalist(
    logs: tuple[float, float], state: State, best: Point | None, shown: Point
) -> None:
    found = at(confirmed([(COPY, {ONE: logs[0], FOUR: 0.2}), (LONG, {ONE: logs[1], FOUR: 0.1})]))
    assert (found.state, found.best) == (state, best)
    assert found.shown is not None and found.shown.point == shown
    assert found.shown.effect is not None


def test_what_an_interval_does_not_settle_is_not_decided() -> None:
    found = at(confirmed([(COPY, {ONE: 0.05, FOUR: 0.2})], wide=[ONE]))
    assert (found.state, found.best) == (State.UNDECIDED, None)


def test_a_certain_gain_comes_before_a_larger_uncertain_one() -> None:
    """The larger estimate is of a finalist whose interval reaches below the baseline."""
    report = confirmed([(COPY, {ONE: 0.1, FOUR: 0.1}), (LONG, {ONE: 0.2, FOUR: 0.1})], wide=[])
    wide = replace(report.verdicts[1].by_cell[ONE.label], low=-0.1)
    shaky = replace(report.verdicts[1], by_cell={**report.verdicts[1].by_cell, ONE.label: wide})
    found = at(replace(report, verdicts=(report.verdicts[0], shaky)))
    assert (found.state, found.best) == (State.FASTER, COPY)


def test_search_estimates_are_no_winners_and_give_way_to_the_confirmation() -> None:
    logs = [(COPY, {ONE: 0.3, FOUR: -0.1}), (GUESS, {ONE: 0.1, FOUR: -0.2})]
    before = searched(logs)
    assert (at(before).state, at(before).best) == (State.SEARCHED, COPY)
    assert (at(before, FOUR).state, at(before, FOUR).best) == (State.SEARCHED, None)
    assert not drawn(before).confirmed
    after = confirmed([(COPY, {ONE: 0.2, FOUR: 0.2})], trials=[*logs, (LONG, {ONE: 0.9, FOUR: 0.9})])
    assert at(after).best == COPY
    assert drawn(after).confirmed


def test_an_invalid_finalist_and_a_lossy_or_failed_trial_are_nowhere() -> None:
    report = confirmed([(COPY, {ONE: 0.2, FOUR: 0.2}), (LONG, {ONE: 0.5, FOUR: 0.5})])
    spoiled = replace(report.verdicts[1], kind=VerdictKind.INVALID)
    assert at(replace(report, verdicts=(report.verdicts[0], spoiled))).best == COPY
    before = searched([(COPY, {ONE: 0.2, FOUR: 0.2}), (LONG, {ONE: 0.5, FOUR: 0.5})])
    for change in (
        {"lossy": "accept threshold 0.5"},
        {"failure": Failure(Reason.LIMIT_EXCEEDED, "ttft_p95_s is 2 s")},
    ):
        last = replace(before.trials[-1], **change)
        assert at(replace(before, trials=[*before.trials[:-1], last])).best == COPY


def test_nothing_is_decided_before_the_first_look() -> None:
    """Intervals over two Blocks exist, and looking at them is what the looks forbid."""
    report = confirmed([(COPY, {ONE: 0.2, FOUR: 0.2})])
    early = [replace(v, effect=None, kind=VerdictKind.UNDECIDED) for v in report.verdicts]
    assert at(replace(report, verdicts=early, winner=None)).state is State.SEARCHED


def test_one_cell_and_a_comparison_have_no_map() -> None:
    assert load_map(confirmed([(COPY, {ONE: 0.2})])) is None
    sides = (Side("A", "a.yaml", BASELINE), Side("B", "b.yaml", COPY))
    report = confirmed([(COPY, {ONE: 0.2, FOUR: 0.2})])
    assert load_map(replace(report, comparison=Comparison(sides))) is None
    assert load_map(ReportInput(name="nothing yet")) is None


def test_cells_are_ordered_by_class_length_and_load() -> None:
    grid = cells(paces=("poisson(2/s)", "closed(16)", "closed(2)", "poisson(0.5/s)"), contexts=(1024, None))
    found = [a.cell for a in drawn(searched([(COPY, dict.fromkeys(grid, 0.1))])).cells]
    paces = ["closed(2)", "closed(16)", "poisson(0.5/s)", "poisson(2/s)"]
    assert found == [
        Cell(c, pace, length) for c in ("code_edit", "chat") for length in (None, 1024) for pace in paces
    ]


def test_a_replay_has_no_order() -> None:
    assert pace_order("replay(trace.csv)") is None
    assert pace_order("closed(4)") == ("closed", 4.0)
    assert pace_order("poisson(2.5/s)") == ("poisson", 2.5)


def test_absolute_figures_and_prompt_lengths_stand_beside_the_ratio() -> None:
    found = at(confirmed([(COPY, {ONE: math.log(1.5), FOUR: 0.0})]))
    assert found.baseline.tokens_per_s == pytest.approx(80)
    assert found.figures.tokens_per_s == pytest.approx(120, rel=0.01)
    assert found.figures.tpot_s == pytest.approx(1 / 120, rel=0.01)
    assert found.prompt_tokens == 67


def test_the_one_for_all_is_the_winner_and_its_loss_is_that_against_the_best() -> None:
    report = confirmed([(COPY, {ONE: 0.3, FOUR: -0.2}), (LONG, {ONE: 0.5, FOUR: -0.6})])
    assert drawn(report).compromise == COPY == (report.winner.point if report.winner else None)
    assert at(report).loss == pytest.approx(0.2, abs=1e-6)
    assert at(report, FOUR).loss == pytest.approx(0.2, abs=1e-6)  # off is better there
    assert drawn(report).gain == pytest.approx(0.2, abs=1e-6)


def test_where_the_one_for_all_seems_faster_than_the_certain_best_it_loses_nothing() -> None:
    report = confirmed([(COPY, {ONE: 0.3, FOUR: 0.3}), (LONG, {ONE: 0.1, FOUR: 0.1})])
    first, second = report.verdicts
    shaky = replace(first, by_cell={**first.by_cell, ONE.label: replace(first.by_cell[ONE.label], low=-0.1)})
    found = at(replace(report, verdicts=(shaky, second), winner=shaky))
    assert (found.best, found.loss) == (LONG, 0.0)
    assert found.compromise == pytest.approx(0.3, abs=1e-6)


def test_a_search_estimate_is_not_compared_with_a_confirmed_figure() -> None:
    report = confirmed([(COPY, {ONE: 0.3, FOUR: 0.3})])
    (verdict,) = report.verdicts
    part = replace(verdict, by_cell={ONE.label: verdict.by_cell[ONE.label]})
    found = at(replace(report, verdicts=(part,), winner=part), FOUR)
    assert (found.state, found.compromise, found.loss) == (State.SEARCHED, None, None)


def test_without_a_winner_the_one_for_all_is_off() -> None:
    report = confirmed([(COPY, {ONE: 0.3, FOUR: -0.5})])
    found = drawn(report)
    assert (report.winner, found.compromise, found.confirmed) == (None, None, True)
    assert (at(report).compromise, at(report, FOUR).compromise) == (0.0, 0.0)
    assert at(report).loss == pytest.approx(0.3, abs=1e-6)
    assert at(report, FOUR).loss == 0.0


def test_a_cell_of_weight_0_is_in_the_map_and_not_in_the_gain() -> None:
    logs = [(COPY, {ONE: 0.3, FOUR: -0.4})]
    report = confirmed(logs, weights=Weights(paces={"closed(4)": 0}))
    assert report.winner is not None and report.winner.effect is not None
    assert report.winner.effect.log_ratio == pytest.approx(0.3, abs=1e-6)
    assert at(report, FOUR).state is State.SLOWER
    assert (at(report, FOUR).weight, drawn(report).gain) == (0.0, 0.0)
    assert at(report, FOUR).loss == pytest.approx(0.4, abs=1e-6)
    heavy = confirmed(logs, weights=Weights(paces={"closed(1)": 3}))
    assert drawn(heavy).gain == pytest.approx(0.1, abs=1e-6)


LOGS = st.floats(-0.8, 0.8).map(lambda x: round(x, 3))


@given(st.lists(st.tuples(LOGS, LOGS, LOGS, LOGS), min_size=1, max_size=3), st.booleans())
def test_no_loss_is_below_0_and_the_one_for_all_is_what_the_answer_says(
    figures: Sequence[tuple[float, ...]], confirm: bool
) -> None:
    grid = cells(contexts=(None,))
    points = (COPY, LONG, GUESS)
    logs = [(p, dict(zip(grid, row, strict=True))) for p, row in zip(points, figures, strict=False)]
    report = confirmed(logs) if confirm else searched(logs)
    found = drawn(report)
    for a in found.cells:
        assert a.loss is not None and a.loss >= 0
        known = [row[grid.index(a.cell)] for row in figures]
        assert a.compromise is not None
        best = a.compromise + a.loss
        assert best >= 0 or a.compromise >= best  # off is always there
        if a.state is State.FASTER:
            assert best == pytest.approx(max(known), abs=0.02)
    if confirm:
        winner = answer(report.verdicts).winner
        assert found.compromise == (winner.point if winner else None)
        if winner and winner.effect:
            mean = sum(a.compromise or 0.0 for a in found.cells) / len(found.cells)
            assert mean == pytest.approx(winner.effect.log_ratio, abs=1e-9)


# Cells that a server cannot admit


@pytest.mark.parametrize("who", [BASELINE, COPY])
def test_a_cell_that_one_arm_cannot_admit_counts_for_neither(who: Point) -> None:
    report = confirmed([(COPY, {ONE: 0.3, FOUR: -0.5})], limited=[(who, FOUR)])
    (verdict,) = report.verdicts
    assert verdict.kind is VerdictKind.BETTER
    assert verdict.effect is not None and verdict.effect.log_ratio == pytest.approx(0.3, abs=1e-6)
    assert verdict.cells == (ONE.label,) and [*verdict.by_cell] == [ONE.label]
    name = "the baseline" if who is BASELINE else COPY.label
    assert verdict.limited == {FOUR.label: f"{name}: {WAITED}"}
    assert verdict.warnings == (
        f"capacity: left out, as the load could not be admitted: {FOUR.label} ({name}: {WAITED})",
    )
    found = at(report, FOUR)
    assert (found.state, found.shown, found.loss) == (State.LIMITED, None, None)
    assert found.limited == f"{name}: {WAITED}"
    assert drawn(report).gain == 0.0


def test_a_class_with_every_cell_limited_is_left_out() -> None:
    code = Cell("code_edit", "closed(4)")
    report = confirmed([(COPY, {ONE: 0.3, code: -0.5})], limited=[(COPY, code)])
    assert [*report.verdicts[0].by_class] == ["chat"]


def test_a_cell_limited_in_one_block_is_left_out_of_all() -> None:
    logs = {ONE: 0.3, FOUR: -0.5}
    blocks = [block(n, (COPY, {c: d + n / 1000 for c, d in logs.items()})) for n in range(4)]
    baseline, copy = blocks[2].arms
    full = tuple(replace(m, capacity_limited=WAITED) if m.cell == FOUR else m for m in baseline.measurements)
    blocks[2] = replace(blocks[2], arms=(replace(baseline, measurements=full), copy))
    (verdict,) = conclude(blocks, [COPY], looks=(4,))
    assert verdict.effect is not None and verdict.effect.log_ratio == pytest.approx(0.3015)
    assert [*verdict.limited] == [FOUR.label]


def test_with_every_cell_limited_there_is_no_verdict() -> None:
    report = confirmed([(COPY, {ONE: 0.3, FOUR: 0.3})], limited=[(COPY, ONE), (BASELINE, FOUR)])
    (verdict,) = report.verdicts
    assert verdict.kind is VerdictKind.INVALID
    assert verdict.why.startswith("no Cell is left that both arms can admit: ")
    assert f"{FOUR.label} (the baseline: {WAITED})" in verdict.why


def test_only_what_counts_is_left_out_is_no_number_either() -> None:
    weights = Weights(paces={"closed(4)": 0})
    report = confirmed([(COPY, {ONE: 0.3, FOUR: 0.3})], limited=[(COPY, ONE)], weights=weights)
    assert report.verdicts[0].kind is VerdictKind.INVALID


def test_one_that_admits_every_cell_wins_over_a_faster_one_that_does_not() -> None:
    """Its mean lacks the Cell that is hardest to gain in."""
    logs = [(COPY, {ONE: 0.3, FOUR: 0.05}), (LONG, {ONE: 0.4, FOUR: 0.1})]
    report = confirmed(logs, limited=[(LONG, FOUR)])
    kinds = [v.kind for v in report.verdicts]
    assert kinds == [VerdictKind.BETTER, VerdictKind.BETTER]
    assert report.winner is not None and report.winner.point == COPY
    assert at(report, FOUR).best == COPY
    assert at(report).best == LONG


def test_a_limited_cell_of_the_search_has_no_figures() -> None:
    chat = [measurement(ONE, 90.0), measurement(FOUR, 300.0, capacity_limited=WAITED)]
    search = block(1, arms=(arm(BASELINE, *chat), arm(COPY, *chat)), phase=Phase.SEARCH)
    found = at(ReportInput(name="x", blocks=[search]), FOUR)
    assert (found.state, found.baseline.tokens_per_s) == (State.LIMITED, None)
