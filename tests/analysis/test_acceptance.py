import pytest

from analysis.acceptance import (
    SlotCounts,
    failed_slots,
    from_counters,
    honest_length,
    reconcile,
    tokens_per_draft,
)
from results.records import Acceptance, AcceptanceState, SpecCounters


def test_rate_length_and_positions_of_a_measured_window() -> None:
    # 733 verify steps that emit 802 accepted tokens beside their bonus
    found = from_counters(SpecCounters(733, 2199, 802, (403, 267, 132)), 1535, method_is_none=False)
    assert found.state is AcceptanceState.MEASURED
    assert found.rate == pytest.approx(802 / 2199)
    assert found.length == pytest.approx(2.094, abs=5e-4)
    assert found.per_position == pytest.approx((403 / 733, 267 / 733, 132 / 733))
    assert found.note == ""


def test_length_counts_the_steps_that_drafted_nothing() -> None:
    # 384 tokens in 236 steps of which 86 drafted: the engine's own figure would be 1 + 148 / 86
    counters = SpecCounters(86, 344, 148)
    assert honest_length(counters, 384) == pytest.approx(384 / 236)


def test_length_stays_within_one_and_k_plus_one() -> None:
    everything = SpecCounters(130, 520, 520)  # K = 4; 10 accepted tokens lay beyond the end of replies
    assert honest_length(everything, 640) == pytest.approx(640 / 130)
    nothing = SpecCounters(300, 900, 0)
    assert honest_length(nothing, 300) == 1.0
    assert honest_length(nothing, 200) is None  # counted more than the window emitted
    assert honest_length(everything, None) is None


def test_a_length_that_cannot_be_known_is_said() -> None:
    found = from_counters(SpecCounters(300, 900, 90), None, method_is_none=False)
    assert found.length is None
    assert found.rate == pytest.approx(0.1)
    assert "no length" in found.note


def test_missing_counters_are_unknown_not_zero() -> None:
    found = from_counters(None, 1000, method_is_none=False)
    assert (found.state, found.rate, found.length) == (AcceptanceState.UNKNOWN, None, None)


@pytest.mark.parametrize(("drafts", "measured"), [(99, False), (100, True)])
def test_no_rate_from_fewer_than_a_hundred_drafts(drafts: int, measured: bool) -> None:
    found = from_counters(SpecCounters(drafts, 3 * drafts, drafts), 2 * drafts, method_is_none=False)
    assert (found.rate is not None) == measured
    assert found.state is (AcceptanceState.MEASURED if measured else AcceptanceState.UNKNOWN)


@pytest.mark.parametrize(
    "counters",
    [
        SpecCounters(-5, 300, 10),
        SpecCounters(200, 400, 10, (5, -1)),
        SpecCounters(200, 400, 401),
        SpecCounters(200, 600, 210, (120, 60, 20)),  # the positions miss ten
        SpecCounters(200, 600, 210, (60, 120, 30)),  # rising
        SpecCounters(200, 600, 210, (210,)),  # more first tokens than drafts
    ],
)
def test_impossible_counts_are_unknown(counters: SpecCounters) -> None:
    found = from_counters(counters, 1000, method_is_none=False)
    assert (found.state, found.rate) == (AcceptanceState.UNKNOWN, None)
    assert found.note


def test_a_short_window_without_drafts_proves_nothing() -> None:
    assert from_counters(SpecCounters(0, 0, 0), 99, method_is_none=False).state is AcceptanceState.UNKNOWN
    long = from_counters(SpecCounters(0, 0, 0), 100, method_is_none=False)
    assert long.state is AcceptanceState.NOT_SPECULATING


def test_the_baseline_is_off_and_a_drafting_one_is_told() -> None:
    assert from_counters(None, 500, method_is_none=True).state is AcceptanceState.NOT_SPECULATING
    drafting = from_counters(SpecCounters(200, 600, 100), 500, method_is_none=True)
    assert drafting.state is AcceptanceState.UNKNOWN
    assert "600 tokens were drafted" in drafting.note


def test_almost_everything_accepted_is_suspect_unless_one_token_is_drafted() -> None:
    many = from_counters(SpecCounters(200, 800, 797), 1000, method_is_none=False)
    assert "suspect" in many.note
    one = from_counters(SpecCounters(200, 200, 200), 400, method_is_none=False)
    assert one.note == ""


COUNTED = from_counters(SpecCounters(200, 1000, 500), 700, method_is_none=False, source="metrics")


def test_two_sources_within_a_point_are_one() -> None:
    assert reconcile(COUNTED, SpecCounters(200, 1000, 509), "log") is COUNTED


def test_two_sources_apart_give_a_range_and_no_rate() -> None:
    found = reconcile(COUNTED, SpecCounters(200, 1000, 511), "log")
    assert found.state is AcceptanceState.COUNTERS_DISAGREE
    assert (found.rate, found.length) == (None, None)
    assert found.rate_range == pytest.approx((0.500, 0.511))
    assert "metrics" in found.note and "log" in found.note


def test_a_source_without_counts_has_no_say() -> None:
    missing = from_counters(None, 700, method_is_none=False)
    assert reconcile(missing, SpecCounters(200, 1000, 500), "log") is missing
    assert reconcile(COUNTED, None, "log") is COUNTED
    assert reconcile(COUNTED, SpecCounters(0, 0, 0), "log") is COUNTED


def test_drafts_that_one_source_saw_are_not_nothing() -> None:
    idle = from_counters(SpecCounters(0, 0, 0), 700, method_is_none=False, source="metrics")
    assert reconcile(idle, None, "log").state is AcceptanceState.NOT_SPECULATING
    found = reconcile(idle, SpecCounters(0, 1000, 500), "log")
    assert (found.state, found.note) == (AcceptanceState.UNKNOWN, "metrics saw no draft, log did")


def test_a_source_that_is_wrong_over_the_whole_run_is_not_trusted_in_a_window() -> None:
    whole = SpecCounters(0, 2000, 2000)
    found = reconcile(COUNTED, SpecCounters(800, 4000, 2000), "drafter", ours=whole)
    assert found.state is AcceptanceState.COUNTERS_DISAGREE
    assert found.rate_range == pytest.approx((0.5, 1.0))
    assert reconcile(COUNTED, whole, "drafter", ours=whole) is COUNTED
    idle = from_counters(SpecCounters(0, 0, 0), 700, method_is_none=False)
    assert reconcile(idle, whole, "drafter", ours=whole) is idle  # other windows drafted


@pytest.mark.parametrize(
    ("accepted", "generated", "fails"),
    [(0, 7, False), (0, 8, True), (0, 0, False), (1, 100, False), (1, 101, True)],
)
def test_slots_are_judged_one_by_one(accepted: int, generated: int, fails: bool) -> None:
    slots = [SlotCounts(0, 600, 800), SlotCounts(3, accepted, generated)]
    assert failed_slots(slots) == ((3,) if fails else ())


@pytest.mark.parametrize(("generated", "fails"), [(16, False), (127, False), (128, True)])
def test_a_few_long_drafts_are_no_evidence(generated: int, fails: bool) -> None:
    assert failed_slots([SlotCounts(0, 0, generated)], 16.0) == ((0,) if fails else ())


def test_length_of_a_draft() -> None:
    assert tokens_per_draft([]) == tokens_per_draft([Acceptance(AcceptanceState.UNKNOWN)]) == 1.0
    idle = from_counters(SpecCounters(0, 0, 0), 700, method_is_none=False)
    assert tokens_per_draft([idle]) == 1.0
    assert tokens_per_draft([idle, COUNTED, COUNTED]) == 5.0
