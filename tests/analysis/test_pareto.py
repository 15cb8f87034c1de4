"""The front is what its definition says, and the figure says it without colour."""

import json
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import svg, tradeoff
from analysis.pareto import Choice, choices, front, latency_of
from analysis.report import as_json, html
from analysis.report_input import Comparison, ReportInput, Side
from results.reasons import Reason
from results.records import BASELINE, ArmRun, Block, Cell, Failure, Phase, Point, Quantiles, Trial, TrialState
from tests.analysis import samples
from tests.analysis.build import CHAT, CODE, FAST, SLOW, arm, measurement

few = st.sampled_from([1.0, 2.0, 3.0, 4.0])  # so that figures are often equal
some_choices = st.lists(
    st.builds(
        Choice,
        label=st.just("x"),
        tokens_per_s=few,
        latency_s=few,
        breaks=st.sampled_from(["", "", "a limit"]),
        trial=st.integers(0, 99),
    ),
    max_size=12,
)


def beats(a: Choice, b: Choice) -> bool:
    as_good = a.tokens_per_s >= b.tokens_per_s and a.latency_s <= b.latency_s
    return as_good and (a.tokens_per_s > b.tokens_per_s or a.latency_s < b.latency_s)


@given(some_choices)
def test_the_front_is_what_nothing_allowed_beats(found: list[Choice]) -> None:
    allowed = [c for c in found if not c.breaks]
    expected = [c for c in allowed if not any(beats(other, c) for other in allowed)]
    assert sorted(map(repr, front(found))) == sorted(map(repr, expected))


@given(some_choices)
def test_the_front_is_in_order_and_may_be_empty(found: list[Choice]) -> None:
    best = front(found)
    assert [c.latency_s for c in best] == sorted(c.latency_s for c in best)
    assert [c.tokens_per_s for c in best] == sorted(c.tokens_per_s for c in best)
    assert bool(best) is any(not c.breaks for c in found)


# From the records of a run


def run(point: Point, tokens_per_s: float, tpot_s: float, cell: Cell = CHAT) -> ArmRun:
    each = Quantiles(tpot_s, 2 * tpot_s, 3 * tpot_s)
    return arm(point, measurement(cell, tokens_per_s, tpot_s=each, ttft_s=each))


def block(number: int, phase: Phase, *arms: ArmRun) -> Block:
    return Block(number, phase, 0.0, 1.0, "x", arms)


def trial(number: int, point: Point) -> Trial:
    return Trial(number, point, "start", TrialState.MEASURED, 0.1, {}, (number,))


def report(**changes: object) -> ReportInput:
    """The machine is half as fast in the search as in the confirmation."""
    blocks = [
        block(0, Phase.SEARCH, run(BASELINE, 50, 0.02), run(FAST, 100, 0.01)),
        block(1, Phase.SEARCH, run(BASELINE, 50, 0.02), run(SLOW, 40, 0.016)),
        block(2, Phase.CONFIRM, run(BASELINE, 100, 0.01), run(FAST, 150, 0.008)),
        block(3, Phase.CONFIRM, run(BASELINE, 110, 0.01), run(FAST, 165, 0.008)),
        block(4, Phase.CONFIRM, run(BASELINE, 90, 0.01), run(FAST, 135, 0.008)),
    ]
    made = ReportInput("run", [trial(0, BASELINE), trial(1, FAST), trial(2, SLOW)], blocks)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_point_is_compared_through_the_baseline_of_its_own_blocks() -> None:
    baseline, fast, slow = choices(report())
    assert (baseline.tokens_per_s, baseline.latency_s, baseline.blocks) == pytest.approx((100, 0.01, 3))
    assert (fast.tokens_per_s, fast.latency_s) == pytest.approx((150, 0.008))  # not the 2x of the search
    assert (fast.confirmed, fast.blocks, fast.trial) == (True, 3, 1)
    assert (slow.tokens_per_s, slow.latency_s) == pytest.approx((80, 0.008))  # 40 / 50 x 100
    assert (slow.confirmed, slow.blocks) == (False, 1)
    assert [c.label for c in front([baseline, fast, slow])] == [FAST.label]


def test_before_the_confirmation_the_search_is_what_there_is() -> None:
    searched = report()
    searched = replace(searched, blocks=[b for b in searched.blocks if b.phase is Phase.SEARCH])
    baseline, fast, _ = choices(searched)
    assert (baseline.tokens_per_s, fast.tokens_per_s) == pytest.approx((50, 100))
    assert not baseline.confirmed and not fast.confirmed


def test_the_latency_is_the_first_that_is_limited() -> None:
    assert latency_of(report()) == "tpot_p50_s"
    limited = report(limits={"server_memory_bytes": 1e9, "ttft_p95_s": 0.018, "tpot_p50_s": 1.0})
    assert latency_of(limited) == "ttft_p95_s"
    assert choices(limited)[0].latency_s == pytest.approx(0.02)


def test_who_breaks_a_limit_is_told_and_on_no_front() -> None:
    baseline, fast, slow = choices(report(limits={"ttft_p95_s": 0.018}))
    assert baseline.breaks == "ttft_p95_s is 0.02 s, the limit 0.018 s"
    assert fast.breaks == ""
    assert slow.breaks == "ttft_p95_s is 0.032 s, the limit 0.018 s"  # as it was measured
    assert front([baseline, fast, slow]) == [fast]


def test_over_several_cells_the_geometric_mean() -> None:
    def two(point: Point, *speeds: float) -> ArmRun:
        cells = zip((CHAT, CODE), speeds, strict=True)
        return arm(point, *(run(point, speed, 1 / speed, cell).measurements[0] for cell, speed in cells))

    blocks = [block(0, Phase.SEARCH, two(BASELINE, 100, 25), two(FAST, 200, 50))]
    baseline, fast = choices(replace(report(), blocks=blocks))
    assert (baseline.tokens_per_s, baseline.latency_s) == pytest.approx((50, 0.02))
    assert (fast.tokens_per_s, fast.latency_s) == pytest.approx((100, 0.01))


@pytest.mark.parametrize(
    "changes",
    [
        {"failure": Failure(Reason.HANG, "silence")},
        {"stopped_at_ratio": 0.4},
        {"measurements": ()},
    ],
)
def test_what_was_not_measured_in_full_is_no_choice(changes: dict[str, object]) -> None:
    spoiled = replace(run(SLOW, 40, 0.016), **changes)  # type: ignore[arg-type]
    blocks = [*report().blocks[2:], block(1, Phase.SEARCH, run(BASELINE, 50, 0.02), spoiled)]
    assert [c.label for c in choices(replace(report(), blocks=blocks))] == [BASELINE.label, FAST.label]


def test_a_lossy_point_is_no_choice() -> None:
    lossy = [replace(t, lossy="accepts anything") if t.point == FAST else t for t in report().trials]
    assert [c.label for c in choices(replace(report(), trials=lossy))] == [BASELINE.label, SLOW.label]


def test_where_throughput_is_no_choice_there_is_no_front() -> None:
    open_loop = Cell("chat", "poisson(2/s)")
    blocks = [block(0, Phase.SEARCH, run(BASELINE, 50, 0.02, open_loop), run(FAST, 50, 0.01, open_loop))]
    assert choices(replace(report(), blocks=blocks)) == []
    assert choices(ReportInput("run")) == []
    sides = (Side("A", "a", replace(BASELINE, name="A")), Side("B", "b", replace(FAST, name="B")))
    assert choices(report(comparison=Comparison(sides))) == []


# As it is drawn


def test_the_picture_tells_by_shape_and_word() -> None:
    drawn = tradeoff.figure(samples.limited())
    assert drawn is not None
    labels = {key.label: key.glyph for key in drawn.keys}
    assert labels["breaks a limit"] == "✕"
    assert labels["keeps the limits, confirmed"] == "●"
    assert labels["keeps the limits, search estimate"] == "○"
    assert len(set(labels.values())) == len(labels)
    assert re.search(
        r"3 of 11 configurations are on the front of chunk gap p95, 2 of them by a search", drawn.caption
    )
    assert drawn.caption.endswith("1 of 11 breaks a limit and is on no front.")
    assert drawn.caption in re.sub(r"&#x27;", "'", drawn.svg)
    assert drawn.svg.startswith(f'<svg viewBox="0 0 {svg.WIDTH} ')
    assert not re.search(r'[:"] ?#[0-9a-fA-F]{3,8}\b', re.sub(r'href="#[^"]*"', "", drawn.svg))
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawn.svg)
    assert "baseline" in texts and "#6" in texts


def test_a_baseline_that_breaks_a_limit_says_so_in_the_picture() -> None:
    drawn = tradeoff.figure(report(limits={"ttft_p95_s": 0.018}))
    assert drawn is not None
    assert "baseline, breaks a limit" in drawn.svg
    nobody = tradeoff.figure(report(limits={"ttft_p95_s": 1e-6}))
    assert nobody is not None
    assert nobody.caption == "None of 3 configurations keeps the limits."


def test_two_choices_need_no_picture() -> None:
    assert tradeoff.figure(replace(report(), trials=report().trials[:2])) is None
    assert len(tradeoff.table(replace(report(), trials=report().trials[:2])).rows) == 2
    assert tradeoff.table(replace(report(), trials=report().trials[:1])).rows == ()


def test_the_table_has_the_front_first() -> None:
    found = tradeoff.table(report(limits={"ttft_p95_s": 0.018}))
    assert found.columns[3:6] == ("TTFT p95", "On the front", "Keeps the limits")
    assert [[e.text for e in row] for row in found.rows] == [
        ["#1", FAST.label, "150.0", "16 ms", "yes", "yes", "3 Blocks of the confirmation"],
        [
            "baseline",
            "none",
            "100.0",
            "20 ms",
            "no",
            "no: ttft_p95_s is 0.02 s, the limit 0.018 s",
            "3 Blocks of the confirmation",
        ],
        [
            "#2",
            SLOW.label,
            "80.0",
            "16 ms",
            "no",
            "no: ttft_p95_s is 0.032 s, the limit 0.018 s",
            "1 Block of the search",
        ],
    ]


def test_programs_get_the_choices() -> None:
    found = json.loads(as_json(report()))["front"]
    assert [(c["label"], c["on_front"], c["latency"]) for c in found] == [
        (BASELINE.label, False, "tpot_p50_s"),
        (FAST.label, True, "tpot_p50_s"),
        (SLOW.label, False, "tpot_p50_s"),
    ]
    assert all(math.isfinite(c["tokens_per_s"]) for c in found)


def test_the_page_has_its_section() -> None:
    page = html(samples.limited())
    assert '<section id="front"' in page and 'href="#front"' in page and 'href="#limits"' in page
