"""The model recovers known costs, predicts what it did not see, and is silent where its form is wrong."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.costmodel.explain import explain, sentence
from analysis.costmodel.model import FEWEST_POINTS, MAX_ERROR, CostModel
from analysis.costmodel.steps import fit_step_cost
from results.records import DraftShape, Point, SpecCounters
from tests.analysis.costmodel.servers import MANY, ONE, SURVIVAL, chain, trees

SIZES = [(2, 4), (2, 8), (3, 8), (3, 16), (5, 8), (5, 16), (5, 32)]


def test_the_costs_of_a_server_are_recovered() -> None:
    cost = fit_step_cost(trees(SIZES))
    assert cost.host["EAGLE3"] == pytest.approx(0.1, abs=1e-6)
    assert cost.draft["EAGLE3"] == pytest.approx(0.08, abs=1e-6)
    assert cost.verify == pytest.approx(0.02, abs=1e-6)
    assert cost.separable


def test_the_prompts_time_is_no_cost_of_a_step() -> None:
    cost = fit_step_cost([chain(s, topk=4, draft_tokens=d, prompt_share=0.3) for s, d in SIZES])
    assert cost.verify == pytest.approx(0.02, abs=1e-6)


def test_drafting_and_verifying_of_chains_cannot_be_told_apart() -> None:
    assert not fit_step_cost([chain(s) for s in (1, 2, 3, 5, 8)]).separable


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.5), st.integers(0, 1000))
def test_no_cost_is_negative_whatever_the_noise(host: float, draft: float, verify: float, seed: int) -> None:
    rng = random.Random(seed)
    seen = [chain(s, host=host, draft=draft, verify=verify, noise=0.3, rng=rng) for s in (1, 2, 3, 5)]
    cost = fit_step_cost(seen)
    assert min(cost.verify, *cost.host.values(), *cost.draft.values()) >= 0


def test_a_depth_that_was_not_measured_is_predicted_from_the_positions_of_deeper_ones() -> None:
    model = CostModel([chain(s) for s in (1, 2, 3, 6, 8)])
    asked = chain(4)
    (told,) = model.predict([asked.point], [asked.shape])
    assert told is not None
    assert told.log_speedup == pytest.approx(asked.log_speedup, abs=0.01)
    assert told.by_cell == {ONE: pytest.approx(told.log_speedup)}


def test_beyond_the_deepest_the_last_rate_goes_on_and_the_doubt_grows() -> None:
    model = CostModel([chain(s) for s in (1, 2, 3, 4, 5)])
    inside, beyond = model.predict([chain(5).point, chain(8).point], [chain(5).shape, chain(8).shape])
    assert inside is not None
    assert beyond is not None
    assert beyond.sd > inside.sd
    rate = SURVIVAL[4] / SURVIVAL[3]
    length = 1 + sum(SURVIVAL[:5]) + SURVIVAL[4] * (rate + rate**2 + rate**3)
    cost = 1 + 0.1 + 0.08 * 8 + 0.02 * 8
    assert beyond.log_speedup == pytest.approx(math.log(length / cost), abs=0.05)


def test_totals_alone_tell_what_a_position_adds() -> None:
    """An engine that counts no positions: the differences between depths stand for them."""

    def without_positions(steps: int) -> SpecCounters:
        counts = chain(steps).counts
        return SpecCounters(counts.drafts, counts.draft_tokens, counts.accepted_tokens)

    seen = [replace(chain(s), counts=without_positions(s)) for s in (1, 2, 3, 5, 6, 8)]
    (told,) = CostModel(seen).predict([chain(4).point], [chain(4).shape])
    assert told is not None
    assert told.log_speedup == pytest.approx(chain(4).log_speedup, abs=0.03)


def test_it_speaks_under_noise_and_says_how_far_it_missed() -> None:
    rng = random.Random(3)
    model = CostModel([chain(s, noise=0.02, rng=rng) for s in (1, 2, 3, 4, 5, 6, 7, 8)])
    check = model.checks["EAGLE3"]
    assert check.speaks
    assert check.points == 8
    assert check.error is not None
    assert 0 < check.error < 0.06
    assert set(check.errors) == {chain(s).key for s in range(1, 9)}


def test_too_few_points_are_silent() -> None:
    model = CostModel([chain(s) for s in range(1, FEWEST_POINTS)])
    assert not model.speaks
    assert model.checks["EAGLE3"].error is None
    assert "5 are needed" in model.checks["EAGLE3"].why_silent
    assert model.predict([chain(6).point], [chain(6).shape]) == [None]


@pytest.mark.parametrize("seed", range(5))
def test_speeds_that_have_nothing_to_do_with_drafts_silence_it(seed: int) -> None:
    """A server whose speed jumps about: its form is wrong, and the held-out Points show it."""
    rng = random.Random(seed)
    seen = [replace(chain(s), log_speedup=rng.uniform(-1.0, 1.0)) for s in range(1, 9)]
    check = CostModel(seen).checks["EAGLE3"]
    assert check.error is not None
    assert check.error > MAX_ERROR
    assert not check.speaks
    assert CostModel(seen).predict([chain(4).point], [chain(4).shape]) == [None]


def test_points_that_are_all_alike_need_no_model() -> None:
    rng = random.Random(1)
    seen = [replace(chain(s), log_speedup=rng.gauss(0.2, 1e-4)) for s in range(1, 9)]
    check = CostModel(seen).checks["EAGLE3"]
    assert not check.speaks
    assert check.plain_error is not None
    assert check.error is not None
    assert check.error > check.plain_error


def test_an_impossible_acceptance_silences_it() -> None:
    seen = [chain(s) for s in range(1, 9)]
    seen[0] = replace(seen[0], steps=seen[0].steps / 10, log_speedup=seen[0].log_speedup + math.log(5.5))
    check = CostModel(seen).checks["EAGLE3"]
    assert not check.speaks


def test_one_method_does_not_speak_for_another() -> None:
    model = CostModel([chain(s) for s in range(1, 9)])
    assert model.predict([Point("NGRAM", {"num_steps": 3})], [DraftShape(3, 3, 0)]) == [None]
    assert model.predict([chain(3).point], [None]) == [None]


def test_verification_stops_being_free_at_the_load_where_it_does() -> None:
    at_one = trees(SIZES, verify=0.01)
    at_many = [chain(s, topk=4, draft_tokens=d, verify=0.2, cell=MANY) for s, d in SIZES]
    few, many = explain(CostModel([*at_one, *at_many]), chain(3, topk=4, draft_tokens=16).point)
    assert (few.streams, many.streams) == (1, 16)
    assert few.draft + few.verify + few.host == pytest.approx(1.0)
    assert few.draft == pytest.approx(0.24 / 1.5, abs=1e-3)
    assert many.verify_steps == pytest.approx(4.2, abs=1e-2)
    said = sentence([few, many])
    assert said.startswith("Draft 16%, verify 77%, host 7% of a step at 1 stream.")
    assert "At 16 streams verification stops being free: 4.2 plain steps, 1.2 at 1 stream." in said


def test_chains_are_not_split_into_draft_and_verify() -> None:
    model = CostModel([chain(s) for s in range(1, 9)])
    said = sentence(explain(model, chain(3).point))
    assert said.startswith("Draft and verify 93%, host 7%")


def test_a_silent_model_explains_nothing() -> None:
    model = CostModel([chain(s) for s in (1, 2)])
    assert explain(model, chain(1).point) == []
    assert sentence([]) == ""
