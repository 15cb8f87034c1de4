"""Nodes of a cluster run: levels by place, which differ, and speed-ups that depend on the place."""

import json
import math
import random
from dataclasses import replace

import pytest

from analysis import findings, hardware, nodes, places
from analysis.anchor import place_of
from analysis.cells import cells
from analysis.interaction import depends, speedups
from analysis.loadmap import load_map
from analysis.nodes_section import as_records, by_place, figure, per_cell
from analysis.noise import block_noise
from analysis.pareto import choices
from analysis.report import as_json, html, markdown
from analysis.verdict import conclude
from results.records import Block, Phase, Quantiles, Telemetry
from tests.analysis import samples
from tests.analysis.clusters import NODES, PLACES, POINT, SLOW, block_at, blocks, report, sample

MARGIN = math.log(1.02)


def test_every_place_has_a_row_with_its_level_and_the_slow_node_differs() -> None:
    table = by_place(sample())
    assert [(row[0].text, row[1].text) for row in table.rows] == [
        (node, ", ".join(gpus)) for node, gpus in sorted(PLACES)
    ]
    told = {row[0].text: row[-1].text for row in table.rows}
    assert told[SLOW].endswith("differs")
    assert not any(told[node].endswith("differs") for node in NODES if node != SLOW)
    levels = {row[0].text: row[4].order for row in table.rows}
    assert levels[SLOW] == pytest.approx(0.92 * math.sqrt(92 * 110), rel=0.02)
    first = next(row for row in table.rows if (row[0].text, row[1].text) == (PLACES[0][0], "0, 1"))
    assert first[2].text == "5, 1 thrown away"
    assert first[3].text == "25 min, 0.83 GPU hours"


def test_the_slow_node_is_told_in_a_sentence_and_no_other_is() -> None:
    told = nodes.cautions(sample())
    assert len(told) == 2 and all(sentence.startswith(SLOW) for sentence in told)
    assert "8." in told[0] and "slower" in told[0]
    assert nodes.cautions(report(blocks(slow=0.0))) == []


def test_for_a_latency_lower_is_better() -> None:
    def slowed(block: Block) -> Block:
        arms = [
            replace(
                a,
                measurements=tuple(
                    replace(m, tpot_s=Quantiles(*[1 / (m.tokens_per_s or 1)] * 3)) for m in a.measurements
                ),
            )
            for a in block.arms
        ]
        return replace(block, arms=tuple(arms))

    found = replace(sample(), blocks=[slowed(b) for b in blocks()], objective="tpot_p50_s")
    assert all(SLOW in sentence and "slower" in sentence for sentence in nodes.cautions(found))
    assert len(nodes.cautions(found)) == 2
    assert "ms" in by_place(found).rows[0][4].text


def test_too_few_launches_are_said_to_tell_nothing() -> None:
    three = [block_at(i, (node, ()), [(POINT, 0.1)]) for i, node in enumerate(NODES)]
    found = report(three)
    assert nodes.cautions(found) == []
    assert "too few launches" in by_place(found).note
    assert by_place(found).rows[0][-1].text == ""
    assert "Whether the speed-up depends on the place is not known" in html(found)


def test_a_run_of_one_machine_says_nothing_of_nodes() -> None:
    alone = samples.better()
    assert by_place(alone).rows == () and figure(alone) is None and nodes.cautions(alone) == []
    assert 'id="nodes"' not in html(alone)
    assert "Node" not in markdown(alone)
    assert json.loads(as_json(alone))["nodes"] == []
    assert "not averaged" not in markdown(alone)


def test_the_report_has_them_in_every_form() -> None:
    found = sample()
    page, text = html(found), markdown(found)
    for shown in (page, text):
        assert "Speed-ups are ratios within a Block" in shown and "differs" in shown
    assert 'href="#nodes"' in page and "figure-nodes" in page
    told = json.loads(as_json(found))["nodes"]
    assert {(r["node"], tuple(r["gpus"])) for r in told} == set(PLACES)
    slow = [r for r in told if r["node"] == SLOW]
    assert all(r["baseline_against_others"]["differs"] for r in slow)
    assert as_records(found)[0]["gpu_hours"] == pytest.approx(2 * 5 * 300 / 3600)
    assert len(per_cell(found).rows) == 2


def test_a_speedup_that_depends_on_the_node_is_in_the_sentence_of_its_verdict() -> None:
    measured = [b for b in blocks(gains={SLOW: -0.03}) if b.phase is Phase.CONFIRM]
    verdict = conclude(measured, [POINT])[0]
    assert "on alba" in verdict.why and "0.96x on cima" in verdict.why
    assert any("hides it" in warning for warning in verdict.warnings)


def test_a_node_without_a_confirming_block_is_named_among_what_is_not_said() -> None:
    assert not any("confirmation" in sentence for sentence in findings.missing(report(blocks())))
    fewer = [b for b in blocks() if b.node != SLOW or b.phase is not Phase.CONFIRM]
    assert f"No Block of the confirmation is from {SLOW}:" in findings.missing(report(fewer))[-1]
    searched = [b for b in blocks() if b.phase is not Phase.CONFIRM]
    assert not any("from" in sentence for sentence in findings.missing(report(searched)))


def test_a_speedup_that_is_the_same_everywhere_has_a_plain_verdict() -> None:
    measured = [b for b in blocks() if b.phase is Phase.CONFIRM]
    verdict = conclude(measured, [POINT])[0]
    assert "alba" not in verdict.why
    assert not any("nodes:" in warning for warning in verdict.warnings)


def test_alike_speedups_are_seldom_said_to_depend_on_the_place() -> None:
    chance = random.Random(5)
    pairs = [[(PLACES[i % 3], chance.gauss(0.1, 0.02)) for i in range(8)] for _ in range(200)]
    assert sum(bool(depends(p, MARGIN)) for p in pairs) <= 0.08 * 200
    assert depends([(PLACES[0], 0.1)], MARGIN) == ""


def test_sets_of_gpus_are_named_where_one_of_a_node_is_odd() -> None:
    pairs = [(place, -0.2 if place == PLACES[0] else 0.1) for place in PLACES for _ in range(3)]
    pairs = [(place, log + 0.001 * i) for i, (place, log) in enumerate(pairs)]
    assert "0.8" in depends(pairs, MARGIN) and "(GPU 0, 1)" in depends(pairs, MARGIN)


def test_a_few_blocks_have_the_interval_that_the_noise_of_all_gives() -> None:
    once, twice = speedups([(PLACES[0], 0.1), (PLACES[1], 0.1), (PLACES[1], 0.2)])
    assert once.effect is not None and twice.effect is not None
    assert twice.effect.log_ratio == pytest.approx(0.15)
    assert once.effect.high - once.effect.low > twice.effect.high - twice.effect.low
    assert [s.effect for s in speedups([(PLACES[0], 0.1), (PLACES[1], 0.1)])] == [None, None]
    chance = random.Random(6)
    alike = speedups([(place, chance.gauss(0.1, 0.01)) for place in PLACES for _ in range(2)])
    widths = [s.effect.high - s.effect.low for s in alike if s.effect is not None]
    assert len(widths) == 6 and max(widths) < 4 * min(widths)


# --- absolute figures


def uneven() -> list[Block]:
    """Three Blocks at the slow place, two at a place that is twice as fast."""
    slow = [block_at(i, ("slow", ("0",)), [(POINT, 0.1)], noise=0) for i in range(3)]
    fast = [block_at(10 + i, ("fast", ("0",)), [(POINT, 0.1)], level=math.log(2), noise=0) for i in range(2)]
    return [*fast, *slow]


def test_figures_of_a_cell_are_of_the_place_with_most_blocks() -> None:
    theirs, ours = findings.windows_of_both(POINT, uneven())
    assert {round(m.tokens_per_s or 0, -1) for m in theirs} == {90, 110}
    assert len(theirs) == len(ours) == 6
    table = cells(report(uneven()))
    assert "slow (GPU 0) alone, which measured 3 of 5 Blocks" in table.note
    drawn = load_map(report(uneven()))
    assert drawn is not None and drawn.cells[0].baseline.tokens_per_s == pytest.approx(92, rel=0.02)


def test_the_front_has_the_level_of_one_place() -> None:
    measured = [
        replace(
            b,
            arms=tuple(
                replace(
                    a,
                    measurements=tuple(
                        replace(m, tpot_s=Quantiles(0.01, 0.01, 0.01)) for m in a.measurements
                    ),
                )
                for a in b.arms
            ),
        )
        for b in uneven()
    ]
    baseline = choices(report(measured))[0]
    assert baseline.tokens_per_s == pytest.approx(math.sqrt(92 * 110), rel=0.02)


def test_hardware_is_that_of_one_place() -> None:
    def seen(block: Block, cores: float) -> Block:
        told = Telemetry(2.0, server_cores=cores)
        arms = [
            replace(a, measurements=tuple(replace(m, telemetry=told) for m in a.measurements))
            for a in block.arms
        ]
        return replace(block, arms=tuple(arms))

    measured = [seen(b, 1.0 if b.node == "slow" else 9.0) for b in uneven()]
    found = report(measured)
    assert hardware.telemetry(POINT, found).server_cores == pytest.approx(1.0)
    assert "slow (GPU 0) alone" in hardware.host(found).note


def test_the_noise_of_the_search_is_between_launches_on_one_place() -> None:
    measured = [
        block_at(i, PLACES[i % 2], [(POINT, 0.1)], Phase.SEARCH, level=1.0 * (i % 2)) for i in range(16)
    ]
    noise = block_noise(measured)
    assert noise is not None and noise.sd < 0.05


def test_places_are_named_for_people() -> None:
    assert places.label(("a", ())) == "a"
    assert places.label(("", ("0",))) == "this machine (GPU 0)"
    assert places.gpus_named(("GPU-8f3c2a1b-1234", "1")) == "GPU-8f3c2a1b, 1"
    assert places.only_of([]) == ""
    assert places.busiest([]) == ("", ())
    assert place_of(blocks()[0]) == PLACES[0]


def test_a_limit_that_one_node_alone_breaks_is_a_warning() -> None:
    def timed(block: Block, ttft_s: float) -> Block:
        arms = [
            replace(
                a, measurements=tuple(replace(m, ttft_s=Quantiles(*[ttft_s] * 3)) for m in a.measurements)
            )
            for a in block.arms
        ]
        return replace(block, arms=tuple(arms))

    measured = [timed(b, 0.6 if b.node == SLOW else 0.4) for b in blocks() if b.phase is Phase.CONFIRM]
    verdict = conclude(measured, [POINT], limits={"ttft_p95_s": 0.5})[0]
    (told,) = (w for w in verdict.warnings if w.startswith("limits:"))
    assert "on cima (GPU 0, 1)" in told and "ttft_p95_s is 0.6 s, the limit 0.5 s" in told
    assert "alba" not in told
    kept = conclude(measured, [POINT], limits={"ttft_p95_s": 0.7})[0]
    assert not any(w.startswith("limits:") for w in kept.warnings)
