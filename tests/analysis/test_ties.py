"""Two Points that differ by less than the noise of a Block are called equal."""

from analysis.noise import BlockNoise
from analysis.ties import as_good
from results.reasons import Reason
from results.records import BASELINE, Failure, Point
from tests.records import trial

NOISE = BlockNoise(0.02, 20, "")
SHORT, LONG, OTHER = (Point("draft-simple", {"n_max": n, "p_min": 0.75}) for n in (32, 128, 8))


def test_a_dead_knob_makes_equals() -> None:
    """A drafter that stops at p_min never comes to n_max: 32 and 128 are one server, measured twice."""
    best, twin = trial(1, SHORT, -1.08), trial(2, LONG, -1.06)
    assert as_good(best, [best, twin], NOISE) == [twin]
    assert as_good(twin, [best, twin], NOISE) == [best]


def test_what_is_clearly_slower_is_no_tie() -> None:
    best, worse = trial(1, SHORT, 0.3), trial(2, OTHER, 0.2)
    assert as_good(best, [best, worse], NOISE) == []


def test_without_a_noise_only_equal_figures_tie() -> None:
    best, same, near = trial(1, SHORT, 0.3), trial(2, LONG, 0.3), trial(3, OTHER, 0.299)
    assert as_good(best, [best, same, near], None) == [same]


def test_baseline_failures_and_lossy_points_are_no_ties() -> None:
    best = trial(1, SHORT, 0.01)
    others = [
        trial(0, BASELINE, 0.0),
        trial(2, LONG, 0.01, failure=Failure(Reason.LIMIT_EXCEEDED, "")),
        trial(3, OTHER, 0.01, lossy="takes near misses"),
    ]
    assert as_good(best, [best, *others], NOISE) == []
