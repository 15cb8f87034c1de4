"""Whether rows of a table look like random numbers: never for trained ones."""

import numpy as np
import pytest

from analysis.wiring.rules_maps import looks_absolute
from analysis.wiring.samples import likeness
from tests.drafters import DRAFT_VOCABULARY, VOCABULARY, marks, offsets, trained, untrained, used_tokens


@pytest.mark.parametrize("width", [32, 128, 1024])
@pytest.mark.parametrize("uniform", [False, True])
def test_the_start_of_a_module_looks_random(width: int, uniform: bool) -> None:
    for seed in range(10):
        seen = likeness(untrained(256, width, seed, uniform=uniform))
        assert seen is not None
        assert seen.looks_random


@pytest.mark.parametrize("width", [32, 128, 1024])
def test_trained_rows_do_not(width: int) -> None:
    for seed in range(10):
        seen = likeness(trained(256, width, seed))
        assert seen is not None
        assert not seen.looks_random


@pytest.mark.parametrize("what", ["common", "uneven", "alike"])
def test_one_trace_of_training_is_enough(what: str) -> None:
    random = np.random.default_rng(5)
    rows = random.normal(size=(256, 128))
    if what == "common":
        rows += 0.2 * random.normal(size=128)
    elif what == "uneven":
        rows *= random.uniform(0.7, 1.3, (256, 1))
    else:
        rows += 0.3 * random.normal(size=(256, 4)) @ random.normal(size=(4, 128))
    seen = likeness(rows.astype("f4"))
    assert seen is not None
    assert not seen.looks_random


def test_too_little_says_nothing() -> None:
    assert likeness(untrained(16, 128)) is None
    assert likeness(untrained(256, 16)) is None
    broken = untrained(256, 128)
    broken[3, 3] = np.nan
    assert likeness(broken) is None


def test_ids_and_offsets_are_told_apart() -> None:
    assert looks_absolute(used_tokens(), marks(), VOCABULARY)
    assert looks_absolute(used_tokens(), None, VOCABULARY)
    assert not looks_absolute(offsets(), marks(), VOCABULARY)
    assert not looks_absolute(offsets(), None, VOCABULARY)
    shuffled = np.random.default_rng(0).permutation(used_tokens())  # by frequency, not in order
    assert looks_absolute(shuffled, None, VOCABULARY)
    assert not looks_absolute(shuffled - np.arange(DRAFT_VOCABULARY), None, VOCABULARY)


def test_any_choice_of_tokens_as_offsets_is_no_list_of_ids() -> None:
    for seed in range(50):
        random = np.random.default_rng(seed)
        used = np.sort(random.permutation(2000)[: random.integers(400, 1900)])
        assert not looks_absolute(used - np.arange(len(used)), None, 2000)
        assert looks_absolute(used, None, 2000)
