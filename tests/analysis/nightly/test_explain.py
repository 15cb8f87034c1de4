"""A night's explanation: each group of causes, what changed, and what is not claimed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from analysis.nightly.changed import comparable, last_good
from analysis.nightly.explain import explain
from analysis.nightly.judgement import Judged, Judgement, State
from analysis.words import REMEDIES
from results.nights import BASELINE, LENGTH, SPEED_UP, Night, NightKind, NightVerdict, series_of
from results.reasons import Reason
from results.records import Failure
from tests.analysis.nightly import nights
from tests.analysis.nightly.nights import CHAT, CODE, MATH, history, judged, judgement, moved, night


def said(name: str, past: list[Night] | None = None) -> str:
    return "\n".join(explain(history() if past is None else past, nights.SAMPLES[name]()))


def regression(values: Mapping[str, float], *down: str, **changed: Any) -> Judgement:
    return judgement(night(values=values, verdict=NightVerdict.REGRESSION, **changed), down)


class TestGroup:
    """Which causes the series point to; always the first sentence, for nothing is more telling."""

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("drafter", "Likely the drafter or the sampling"),
            ("cost", "Likely the cost of drafting and verifying: acceptance holds"),
            ("machine", "Likely the machine: the baseline is slower and the speed-up holds"),
            ("faster-baseline", "Nothing is lost: the engine got faster without speculation"),
        ],
    )
    def test_it_is_named_first(self, name: str, words: str) -> None:
        assert said(name).startswith(words)
        others = {"Likely the drafter", "Likely the cost", "Likely the machine", "Nothing is lost"}
        assert sum(other in said(name) for other in others) == 1

    def test_positions_alone_point_to_the_drafter(self) -> None:
        found = explain(history(), regression(moved(acceptance_at_1=0.4), "acceptance_at_1"))
        assert found[0] == "Likely the drafter or the sampling: fewer drafts are accepted."

    def test_later_positions_only_are_the_later_steps_of_the_drafter(self) -> None:
        assert "holds before position 3, so it is the later steps of the drafter" in said("drafter")

    def test_a_baseline_that_fell_too_is_not_blamed_on_the_drafter(self) -> None:
        fallen = moved(acceptance_length=2.0, baseline_tokens_per_s=300.0)
        found = explain(history(), regression(fallen, LENGTH, BASELINE))
        assert "The baseline is slower too, which a drafter does not explain." in found[0]

    def test_both_arms_slower_and_the_ratio_as_well(self) -> None:
        fallen = moved(speed_up=1.1, baseline_tokens_per_s=300.0)
        assert explain(history(), regression(fallen, SPEED_UP, BASELINE))[0].startswith(
            "Likely the machine, and the cost of speculation"
        )

    def test_a_baseline_that_fell_alone_is_not_the_machine(self) -> None:
        """The ratio rose as much as the baseline fell: the pinned configuration is where it was."""
        fallen = moved(speed_up=1.21 * 400 / 340, baseline_tokens_per_s=340.0)
        found = explain(history(), regression(fallen, BASELINE))
        assert found[0].startswith("The engine got slower without speculation: the pinned")

    def test_a_baseline_that_rose_a_little_does_not_excuse_a_large_loss(self) -> None:
        fallen = moved(speed_up=1.0, baseline_tokens_per_s=412.0)
        assert "Likely the cost" in explain(history(), regression(fallen, SPEED_UP))[0]

    def test_a_baseline_within_its_usual_range_excuses_nothing(self) -> None:
        past = [night(ago, moved(baseline_tokens_per_s=380.0 + 10 * (ago % 5))) for ago in range(20, 0, -1)]
        fallen = moved(speed_up=1.16, baseline_tokens_per_s=418.0)
        assert "Nothing is lost" not in explain(past, regression(fallen, SPEED_UP))[0]
        assert "Nothing is lost" in explain(history(), regression(fallen, SPEED_UP))[0]

    def test_in_a_single_cell_its_own_baseline_counts(self) -> None:
        ratio, base = series_of(SPEED_UP, CHAT), series_of(BASELINE, CHAT)
        past = [replace(n, values={**n.values, base: 100.0 + n.began_at % 2}) for n in history()]
        tonight = night(values={ratio: 1.0, base: 112.0}, verdict=NightVerdict.REGRESSION)
        down = judged(ratio, 1.0, State.REGRESSION)
        up = Judged(base, State.PASS, 112.0, nights=20, expected=100.0, lowest=95.0)
        found = explain(past, Judgement(tonight, (down, up)))
        assert found[0].startswith(
            "Nothing is lost: the engine got faster without speculation (100.0 tokens/s ->"
        )

    def test_acceptance_that_is_not_judged_is_not_called_steady(self) -> None:
        down = judged(SPEED_UP, 1.0, State.REGRESSION)
        early = judged(LENGTH, 2.7, State.INSUFFICIENT, nights=2)
        found = explain(history(), Judgement(night(verdict=NightVerdict.REGRESSION), (down, early)))
        assert "acceptance is not judged" in found[0]


class TestWhatMoved:
    def test_positions_by_where_they_begin(self) -> None:
        assert "Acceptance fell from position 3 on: 0.610 -> 0.220 (-39.0 points)." in said("drafter")

    @pytest.mark.parametrize(
        ("down", "words"),
        [
            ((1, 2, 3, 4), "Acceptance fell at every position: 0.820 -> 0.100"),
            ((2,), "Acceptance fell at position 2: 0.700 -> 0.100"),
            ((1, 3), "Acceptance fell at positions 1 and 3: 0.820 -> 0.100"),
            ((4,), "Acceptance fell at position 4: 0.520 -> 0.100"),
        ],
    )
    def test_positions_in_words(self, down: tuple[int, ...], words: str) -> None:
        names = [f"acceptance_at_{n}" for n in down]
        found = explain(history(), regression(moved(**dict.fromkeys(names, 0.1)), *names))
        assert words in "\n".join(found)

    def test_positions_are_counted_not_spelled(self) -> None:
        """Position 10 comes after position 9, not after position 1."""
        names = [f"acceptance_at_{n}" for n in range(1, 11)]
        down = {n: nights.judged("acceptance_at_1", 0.1, State.REGRESSION) for n in names[8:]}
        held = {n: nights.judged("acceptance_at_1", 0.8) for n in names[:8]}
        series = tuple(replace(j, series=n) for n, j in {**down, **held}.items())
        found = explain(history(), Judgement(night(verdict=NightVerdict.REGRESSION), series))
        assert any(s.startswith("Acceptance fell from position 9 on") for s in found)

    def test_positions_of_a_cell_where_they_hold_over_all(self) -> None:
        name = series_of("acceptance_at_1", MATH)
        down = replace(judged("acceptance_at_1", 0.3, State.REGRESSION), series=name)
        tonight = night(verdict=NightVerdict.REGRESSION)
        found = explain(history(), Judgement(tonight, (*judgement(night()).series, down)))
        assert f"Acceptance in {MATH} fell at position 1: 0.820 -> 0.300 (-52.0 points)." in found

    def test_cells_worst_first_and_how_many_hold(self) -> None:
        line = next(s for s in said("drafter").splitlines() if s.startswith("By Cell"))
        assert line == (
            f"By Cell, the speed-up fell in {CODE} 1.340x -> 1.150x (-14.2 %) and {CHAT} 1.100x -> 0.970x "
            "(-11.8 %); 1 other Cell holds."
        )

    def test_every_cell(self) -> None:
        names = [series_of(SPEED_UP, cell) for cell in nights.CELLS]
        found = explain(history(), regression(moved(**dict.fromkeys(names, 0.9)), *names))
        assert any(s.startswith("By Cell") and s.endswith(", in every Cell.") for s in found)

    def test_of_many_cells_the_worst_are_named(self) -> None:
        line = next(s for s in said("many").splitlines() if s.startswith("By Cell"))
        assert line.count("->") == 3
        assert line.endswith("and 9 more Cells; 28 other Cells hold.")
        assert "There are 5 more warnings in the table." in said("many")

    def test_the_rerun_is_told(self) -> None:
        assert "Speed-up fell: 1.210x -> 1.100x (-9.1 %), 1.104x in the rerun." in said("cost")

    def test_a_leak_is_not_called_a_fall(self) -> None:
        text = said("leak")
        assert "Speed-up is lost slowly: 2.4 % below the first 14 nights of the segment." in text
        assert "Speed-up fell" not in text

    def test_what_recovered_is_noise(self) -> None:
        text = "Speed-up was below its bound at first (1.150x, lowest 1.174x) and not in the rerun (1.205x)"
        assert f"{text}: taken as noise." in said("recovered")

    def test_what_recovered_is_not_told_twice(self) -> None:
        once = replace(judged(SPEED_UP, 1.15, warning="below its bound at first"), again=1.2, breached=True)
        assert len(explain(history(), judgement(night(), (), once))) == 1

    @pytest.mark.parametrize("again", [None, 1.16])
    def test_what_was_not_in_again_is_not_called_noise(self, again: float | None) -> None:
        """Not measured again, or out twice but no more than chance may do among all series."""
        once = replace(judged(SPEED_UP, 1.15, warning="out"), again=again, breached=True)
        assert explain(history(), judgement(night(), (), once)) == ("Speed-up: out.",)


class TestWhatChanged:
    def test_everything_that_did_and_nothing_else(self) -> None:
        now = {**nights.VERSIONS, "engine": "sglang 0.5.23"}
        tonight = {
            "versions": now,
            "segment": {**nights.SEGMENT, "power limit": "600 W"},
            "effective": {**nights.EFFECTIVE, "winner n_max": "3"},
        }
        found = explain(history(), regression(moved(speed_up=1.0), SPEED_UP, **tonight))
        assert (
            "Changed since the last good night (2026-11-29 02:10 UTC): "
            "engine sglang 0.5.22 -> sglang 0.5.23; power limit 700 W -> 600 W; "
            "setting winner n_max (not set) -> 3."
        ) in found

    @pytest.mark.parametrize(
        "name", ["engine", "driver", "clocks", "power limit", "image digest", "kernel", "tuner", "anything"]
    )
    @pytest.mark.parametrize("part", ["versions", "segment"])
    def test_each_of_them(self, name: str, part: str) -> None:
        there: dict[str, Any] = dict(getattr(night(), part))
        old: dict[str, Any] = {part: {**there, name: "a 1"}}
        new: dict[str, Any] = {part: {**there, name: "a 2"}}
        past, tonight = history(**old), regression(moved(speed_up=1.0), SPEED_UP, **new)
        assert any(f"{name} a 1 -> a 2" in s for s in explain(past, tonight))

    def test_nothing_is_said_too(self) -> None:
        same = "Nothing that is recorded changed since the last good night (2026-11-29 02:10 UTC)"
        assert any(s.startswith(same) for s in explain(history(), nights.cost()))

    def test_the_last_good_night_is_one_that_passed(self) -> None:
        """A bad night between them had the new engine already: it is compared with the one before."""
        old, bad = history()[:-1], night(1, moved(speed_up=1.0), verdict=NightVerdict.REGRESSION)
        bad = replace(bad, versions={**nights.VERSIONS, "engine": "sglang 0.5.23"})
        assert "(2026-11-28 02:10 UTC): engine sglang 0.5.22 -> sglang 0.5.23" in said("drafter", [*old, bad])

    def test_without_a_night_that_passed_the_last_measured(self) -> None:
        first = night(2, verdict=NightVerdict.INSUFFICIENT)
        broken = night(1, {}, verdict=NightVerdict.INVALID)
        assert last_good([first, broken], night()) == first
        assert "since the last measured night (2026-11-28" in said("cost", [first, broken])

    def test_none_at_all(self) -> None:
        assert "There is no earlier night of this pin on this machine" in said("cost", [])

    @pytest.mark.parametrize(
        "other", [{"pin": "another"}, {"machine": "another"}, {"kind": NightKind.AA}, {"began_at": 2e9}]
    )
    def test_nights_of_others_and_later_ones_do_not_count(self, other: dict[str, object]) -> None:
        assert "There is no earlier night" in said("cost", [night(1, None, **other)])

    def test_tonight_in_its_own_history_does_not_count(self) -> None:
        tonight = nights.cost()
        assert "There is no earlier night" in "\n".join(explain([tonight.night], tonight))

    def test_the_order_of_the_history_does_not_matter(self) -> None:
        assert said("drafter", history()[::-1]) == said("drafter")

    def test_hashes_are_short_but_never_equal(self) -> None:
        assert "image lmsysorg/sglang@sha256:abababababab -> lmsysorg/sglang@sha256:cdcdcdcdcdcd." in said(
            "drafter"
        )
        alike = [{"image": "sha256:" + "a" * 40 + end} for end in ("b", "c")]
        past = history(versions=alike[0])
        found = explain(past, regression(moved(speed_up=1.0), SPEED_UP, versions=alike[1]))
        assert any("b' -> 'sha256:" in s for s in found)

    def test_a_leak_is_compared_with_the_first_night_of_its_segment(self) -> None:
        past = history()
        past[0] = replace(past[0], versions={**nights.VERSIONS, "engine": "sglang 0.5.21"})
        assert "since the first night like it (2026-11-10 02:10 UTC): engine sglang 0.5.21" in said(
            "leak", past
        )

    def test_so_many_changes_are_cut(self) -> None:
        versions = {f"package {n}": "2" for n in range(30)}
        found = explain(history(), regression(moved(speed_up=1.0), SPEED_UP, versions=versions))
        line = next(s for s in found if s.startswith("Changed"))
        assert line.count("->") == 8
        assert line.endswith("and 25 more.")

    def test_what_stands_in_both_parts_is_said_once(self) -> None:
        both = {"versions": {"engine": "b"}, "segment": {"engine": "b"}}
        past = history(versions={"engine": "a"}, segment={"engine": "a"})
        found = explain(past, regression(moved(speed_up=1.0), SPEED_UP, **both))
        assert any(s.endswith("UTC): engine a -> b.") for s in found)


class TestFaults:
    @pytest.mark.parametrize(
        ("name", "words", "reason"),
        [
            ("not-speculating", "Nothing was drafted", Reason.NOT_SPECULATING),
            ("broken-drafter", "Almost no draft was accepted", Reason.BROKEN_DRAFTER),
            ("invalid-output", "Garbage, loops or empty answers", Reason.INVALID_OUTPUT),
        ],
    )
    def test_the_fault_of_the_winner_in_plain_words(self, name: str, words: str, reason: Reason) -> None:
        found = said(name).splitlines()
        assert found[0].startswith(f"The pinned configuration is at fault: {words}")
        assert found[2] == REMEDIES[reason]

    def test_invalid_says_why_and_what_to_do(self) -> None:
        found = explain(history(), nights.invalid())
        assert found == (
            "Not measured: Another load was on the machine (HOST_PRESSURE).",
            'It shows in: "other processes used 3.4 of 8 cores during 41 % of the window".',
            "Stop the other load and run the same command again.",
        )

    @pytest.mark.parametrize("reason", Reason)
    def test_every_reason_can_be_said(self, reason: Reason) -> None:
        broken = replace(nights.invalid().night, failure=Failure(reason, ""))
        assert explain([], Judgement(broken, ()))[-1] == REMEDIES[reason]

    def test_without_a_reason(self) -> None:
        broken = replace(nights.invalid().night, failure=None)
        assert explain([], Judgement(broken, ())) == ("Not measured, and no reason was recorded.",)

    def test_a_rerun_that_could_not_be_measured(self) -> None:
        out = replace(judged(SPEED_UP, 1.0, warning="below its bound and not measured again"), breached=True)
        found = explain(history(), Judgement(nights.invalid().night, (out,)))
        assert found[-1] == "Speed-up: below its bound and not measured again."

    def test_a_long_line_of_a_log_is_cut_and_cleaned(self) -> None:
        broken = nights.fault(Reason.INVALID_OUTPUT, "\x1b[31mred\n" + "x" * 5000)
        evidence = explain([], broken)[1]
        assert len(evidence) < 200
        assert "\x1b" not in evidence
        assert "\n" not in evidence


class TestDrift:
    def test_each_setting_old_and_new_what_came_with_it_and_what_to_do(self) -> None:
        assert explain(history(), nights.drifted()) == (
            "Winner speculative_num_steps 5 -> 3.",
            "Winner p_min (not set) -> 0.0.",
            "It came with: engine sglang 0.5.22 -> sglang 0.5.23.",
            "To keep the old value, name it in the sweep's args; to keep the new one, pin again.",
        )

    def test_the_second_night_of_a_drift_still_names_the_old_setting(self) -> None:
        first = replace(nights.drifted().night, id="first", began_at=nights.TONIGHT_AT - nights.DAY_S)
        assert "Winner speculative_num_steps 5 -> 3." in said("drifted", [*history()[:-1], first])

    def test_a_night_with_a_fault_has_settings_in_part_and_does_not_count(self) -> None:
        broken = replace(nights.invalid().night, id="broken", began_at=nights.TONIGHT_AT - 10, effective={})
        assert said("drifted", [*history(), broken]) == said("drifted")

    def test_defaults_that_another_build_changed(self) -> None:
        """llama.cpp: the same arguments, n_max 16 -> 3 and p_min 0.75 -> 0.0 from one build to the next."""
        old = history(effective={"winner n_max": "16", "winner p_min": "0.75"})
        now = replace(nights.drifted().night, effective={"winner n_max": "3", "winner p_min": "0.0"})
        found = explain(old, Judgement(now, ()))
        assert found[:2] == ("Winner n_max 16 -> 3.", "Winner p_min 0.75 -> 0.0.")


class TestInsufficient:
    def test_how_many_of_how_many_and_warnings_first(self) -> None:
        found = explain(history(5), nights.young())
        assert found[0] == "Speed-up: 12 % below the median of 5 nights."
        assert found[1].startswith("A judgement needs 14 nights and has 5;")

    def test_what_began_the_segment(self) -> None:
        old = [night(ago, segment={**nights.SEGMENT, "driver": "570.1"}) for ago in range(9, 5, -1)]
        text = "Nights count since 2026-11-25 02:10 UTC, when this changed: driver 570.1 -> 580.95.05."
        assert text in explain([*old, *history(5)], nights.young())

    def test_the_first_night_of_all(self) -> None:
        assert "This is the first night of this pin on this machine." in explain([], nights.young(0))

    def test_an_accepted_shift(self) -> None:
        found = explain(history(20), nights.young(2))
        assert "There are 20 nights like this one; those before an accepted shift do not count." in found


class TestTold:
    def test_a_start_beyond_all_nights_and_by_a_fifth(self) -> None:
        line = "Winner's start time: 131.0 s, beyond all of 20 nights (median 74.0 s, +77.0 %)."
        assert line in said("recovered")

    @pytest.mark.parametrize(
        ("series", "usual", "clear", "unclear"),
        [
            ("winner_start_s", 74.0, 90.0, 87.0),
            ("baseline_memory_bytes", 70.1 * 2**30, 74.0 * 2**30, 72.0 * 2**30),
            ("identical_share", 0.95, 0.89, 0.91),
            ("winner_tokens_per_s", 484.0, 465.0, 472.0),
        ],
    )
    def test_how_much_is_clear(self, series: str, usual: float, clear: float, unclear: float) -> None:
        def found(value: float) -> int:
            tonight = judgement(night(values=moved(**{series: value})))
            return sum("beyond all of" in s for s in explain(history(), tonight))

        assert (found(usual), found(unclear), found(clear)) == (0, 0, 1)

    def test_a_value_that_was_seen_before_is_not_clear(self) -> None:
        past = history()
        past[3] = night(50, moved(winner_start_s=200.0))
        assert "start time" not in said("recovered", past)

    def test_five_nights_are_needed(self) -> None:
        assert "start time" not in said("recovered", history(4))
        assert "start time" in said("recovered", history(5))


def test_only_good_nights_of_the_same_segment_are_comparable() -> None:
    good = night(5)
    others = [
        night(4, verdict=NightVerdict.REGRESSION),
        night(3, {}),
        night(2, segment={"driver": "other"}),
        night(1, verdict=NightVerdict.CONFIG_DRIFT),
    ]
    assert comparable([*others, good], night()) == [good]


def test_a_good_night_after_an_upgrade_says_what_changed() -> None:
    tonight = judgement(night(versions={**nights.VERSIONS, "engine": "sglang 0.5.23"}))
    assert explain(history(), tonight) == (
        "Changed since the last good night (2026-11-29 02:10 UTC): engine sglang 0.5.22 -> sglang 0.5.23.",
    )


def test_a_good_night_without_news_says_nothing() -> None:
    assert explain(history(), judgement(night())) == ()


def test_an_alarm_of_the_baseline_against_itself_is_false() -> None:
    found = explain(history(kind=NightKind.AA), nights.false_alarm())
    assert "this alarm is false" in found[0]
    assert not any("Likely" in s for s in found)


def test_what_the_night_says_already_comes_last_and_once() -> None:
    tonight = replace(nights.cost(), night=replace(nights.cost().night, said=("A Cell was not measured.",)))
    found = explain(history(), tonight)
    assert found[:-1] == explain(history(), nights.cost())
    assert found[-1] == "A Cell was not measured."
    again = replace(tonight, night=replace(tonight.night, said=found))
    assert explain(history(), again) == found


@pytest.mark.parametrize("name", nights.SAMPLES)
def test_sentences_are_sentences(name: str) -> None:
    for sentence in explain(history(), nights.SAMPLES[name]()):
        assert sentence == sentence.strip()
        assert sentence[0].isupper() or not sentence[0].isalpha()
        assert sentence.endswith(".")
        assert "\n" not in sentence
