"""What follows from losses: the best, what is as good, what is undecided, why a server differs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis.wiring.replay import Loss
from analysis.wiring.trained import Trained, judge
from analysis.wiring.variants import causes
from results.wiring import Cause, D2t, Reading, Source

RIGHT = Reading((2, 4, 5))
SERVED = replace(RIGHT, boundaries=(3, 5, 6))
STEPPED = replace(RIGHT, step_position_shift=1)


def losses(mean: float, scatter: float = 0.0, sequences: int = 24, seed: int = 1) -> list[Loss]:
    """Common to all is how hard each sequence is; `scatter` is what each reading adds of its own."""
    hard, own = np.random.default_rng(0), np.random.default_rng(seed)
    common = hard.normal(0, 0.5, sequences)
    return [Loss(float((mean + c + own.normal(0, scatter)) * 100), 100, 60, 90) for c in common]


def trained(*tried: tuple[Reading, Sequence[Loss]], starts: Sequence[Reading] = (RIGHT,)) -> Trained:
    return judge(tried, starts)


def test_the_best_is_named_over_one_that_is_worse_on_every_sequence() -> None:
    found = trained((SERVED, losses(0.6, 0.02, seed=2)), (RIGHT, losses(0.5, 0.02)))
    assert (found.best, found.named, found.ties, found.more_sequences) == (RIGHT, True, (), 0)
    assert (
        found.z > 3 and found.loss == pytest.approx(0.5, abs=0.3) and found.agreement == pytest.approx(2 / 3)
    )
    assert found.differences(SERVED) == (Cause.LAYERS,)
    assert not found.clears(SERVED) and found.clears(RIGHT)


def test_two_that_scatter_are_a_tie_with_the_number_that_would_decide() -> None:
    found = trained((SERVED, losses(0.53, 0.2, seed=2)), (RIGHT, losses(0.5, 0.2)))
    assert not found.named and len(found.ties) == 1
    assert found.more_sequences is not None and found.more_sequences > 24
    assert found.differences(SERVED) == ()  # it may be right
    assert not found.clears(SERVED)


def test_fewer_than_eight_sequences_name_nothing() -> None:
    found = trained((SERVED, losses(0.9, 0.01, 7, seed=2)), (RIGHT, losses(0.5, 0.01, 7)))
    assert found.best == RIGHT and not found.named and found.differences(SERVED) == ()
    assert found.more_sequences == 1


def test_one_that_hardly_matters_does_not_keep_the_best_from_being_named() -> None:
    tried = (
        (STEPPED, losses(0.5, 1e-3, seed=3)),
        (RIGHT, losses(0.5, 1e-3)),
        (SERVED, losses(0.8, 0.01, seed=2)),
    )
    found = trained(*tried, starts=(SERVED, RIGHT))
    assert (found.best, found.named, found.harmless) == (RIGHT, True, (STEPPED,))
    assert found.clears(STEPPED) and found.differences(STEPPED) == ()
    assert found.differences(SERVED) == (Cause.LAYERS,)


def test_of_those_as_good_the_one_nearest_to_what_was_started_from_is_taken() -> None:
    tried = (RIGHT, losses(0.5, 1e-3)), (STEPPED, losses(0.5, 1e-3, seed=3))
    assert trained(*tried, starts=(STEPPED, RIGHT)).best == STEPPED
    assert trained(*tried, starts=(RIGHT, STEPPED)).best == RIGHT


def test_equal_losses_are_told_to_be_the_same() -> None:
    limited = replace(RIGHT, max_positions=10_000)
    found = trained((RIGHT, losses(0.5)), (limited, losses(0.5)), (SERVED, losses(0.7, 0.01)))
    assert found.best == RIGHT and found.same == (limited,) and found.named
    assert found.clears(limited)


def test_one_given_up_early_is_still_in_the_table_and_named_against() -> None:
    found = trained((RIGHT, losses(0.5, 0.01)), (SERVED, losses(0.9, 0.01, 8, seed=2)))
    worse = found.candidate(SERVED)
    assert worse is not None and worse.against_best.sequences == 8 and worse.against_best.decided
    assert found.differences(SERVED) == (Cause.LAYERS,)
    assert found.candidate(STEPPED) is None


def test_of_two_faults_that_which_ties_agree_on_is_named() -> None:
    """Rotation is undecided, the layers are not."""
    turned = replace(RIGHT, rope_theta=5e5)
    served = replace(SERVED, rope_theta=5e5)
    tried = (
        (RIGHT, losses(0.5, 0.2)),
        (turned, losses(0.52, 0.2, seed=3)),
        (served, losses(1.9, 0.01, seed=2)),
    )
    found = trained(*tried)
    assert len(found.ties) == 1 and not found.named
    assert found.differences(served) == (Cause.LAYERS,)


@pytest.mark.parametrize(
    ("served", "trained_as", "cause"),
    [
        ({"boundaries": (5, 4, 2)}, {}, Cause.ORDER),
        ({"boundaries": (0, 2, 4)}, {}, Cause.LAYERS),
        ({"boundaries": (9,), "uses_fc": False}, {}, Cause.ALGORITHM),
        ({"d2t": D2t.ABSENT}, {}, Cause.D2T_MISSING),
        ({"d2t": D2t.ABSENT}, {"d2t": D2t.FROM_T2D}, Cause.D2T_MISSING),
        ({}, {"d2t": D2t.IDS}, Cause.D2T_ABSOLUTE),
        ({}, {"d2t": D2t.FROM_T2D}, Cause.D2T),
        ({}, {"lm_head": Source.TARGET}, Cause.LM_HEAD),
        ({"embedding": Source.OWN}, {}, Cause.EMBEDDING),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, {}, Cause.ROPE),
        ({"max_positions": 64}, {}, Cause.CONTEXT),
        ({"hidden_lag": 1}, {}, Cause.TOKEN_SHIFT),
        ({"norm_output": True}, {}, Cause.FEEDBACK_NORM),
        ({"step_position_shift": 1}, {}, Cause.POSITIONS),
        ({"weight_bits": 8}, {}, Cause.QUANTISATION),
    ],
)
def test_each_difference_has_its_cause(
    served: dict[str, Any], trained_as: dict[str, Any], cause: Cause
) -> None:
    assert causes(replace(RIGHT, **served), replace(RIGHT, **trained_as)) == (cause,)


def test_no_difference_is_no_cause() -> None:
    assert causes(RIGHT, replace(RIGHT)) == ()
