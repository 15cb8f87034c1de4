"""A server that ran out of memory at its start bounds what is tried later."""

import pytest

from results.reasons import Reason
from results.records import Failure, KnobValue, Point, Trial, TrialState
from sweeps.memory import does_not_fit
from tests.knobs_engine import knobs_engine

FULL = "CUDA out of memory. Tried to allocate 2.00 GiB. set --share to a smaller value"
STARVED = "Not enough memory. Please try to increase --share."


def failed(point: Point, evidence: str = FULL, reason: Reason = Reason.START_OOM) -> Trial:
    failure = Failure(reason, evidence)
    return Trial(1, point, "start", TrialState.FAILED, None, {}, (0,), failure)


def tree(**knobs: KnobValue) -> Point:
    return Point("tree", {"steps": 3, "topk": 4, **knobs})


@pytest.mark.parametrize(
    ("point", "other", "evidence", "expected"),
    [
        (tree(draft=16), tree(draft=8), FULL, True),
        (tree(draft=4), tree(draft=8), FULL, False),
        (tree(draft=8, **{"--batch": 32}), tree(draft=8, **{"--batch": 16}), FULL, True),
        (tree(draft=4, **{"--batch": 32}), tree(draft=8, **{"--batch": 16}), FULL, False),  # more and less
        (tree(draft=8, **{"--share": 0.9}), tree(draft=8, **{"--share": 0.8}), FULL, True),
        (tree(draft=8, **{"--share": 0.7}), tree(draft=8, **{"--share": 0.8}), FULL, False),
        # The cache did not get enough: a smaller share is worse, a larger one may do.
        (tree(draft=8, **{"--share": 0.7}), tree(draft=8, **{"--share": 0.8}), STARVED, True),
        (tree(draft=8, **{"--share": 0.9}), tree(draft=8, **{"--share": 0.8}), STARVED, False),
        (tree(draft=8, NCCL_PROTO="LL"), tree(draft=8), FULL, True),
        (tree(draft=8, OMP_NUM_THREADS="4"), tree(draft=8), FULL, False),
        (tree(draft=8, **{"--batch": 8}), tree(draft=8), FULL, False),  # against a default nobody knows
        (Point("tree", {"steps": 2, "topk": 4, "draft": 16}), tree(draft=8), FULL, False),
        (Point("lookup", {"n": 4}), tree(draft=8), FULL, False),
    ],
)
def test_what_needs_as_much_or_more_does_not_fit(
    point: Point, other: Point, evidence: str, expected: bool
) -> None:
    assert does_not_fit(point, failed(other, evidence), knobs_engine(), {}) is expected


def test_fixed_arguments_count_where_the_point_names_none() -> None:
    point, other = tree(draft=8, **{"--batch": 32}), tree(draft=8)
    assert does_not_fit(point, failed(other), knobs_engine(), {"batch": 16})
    assert not does_not_fit(point, failed(other), knobs_engine(), {"batch": 64})


def test_only_memory_at_the_start_is_a_bound() -> None:
    crash = failed(tree(draft=8), reason=Reason.CRASH_UNDER_LOAD)
    assert not does_not_fit(tree(draft=16), crash, knobs_engine(), {})
