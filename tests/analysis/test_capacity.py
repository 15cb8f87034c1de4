"""The highest load within the limits is found, is not a lucky Block, and says what breaks above it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.capacity import Probe, highest_load, next_load, probe_of, sentence
from results.reasons import Reason
from results.records import BASELINE, Block, Failure, Phase, Quantiles
from tests.analysis.build import arm, measurement


def found(bears: float, low: float = 1, high: float = 64, *, whole: bool = True) -> list[Probe]:
    """Ask a server that bears loads up to `bears`."""
    probes: list[Probe] = []
    while (load := next_load(probes, low, high, whole=whole)) is not None:
        probes.append(Probe(load, "" if load <= bears else "too slow", 10 * load))
        assert len(probes) < 40
    return probes


@given(st.integers(1, 63))
def test_the_highest_whole_load_is_found_exactly(bears: int) -> None:
    said = highest_load(BASELINE, "closed", found(bears), settled=True)
    assert (said.kept, said.broken) == (bears, bears + 1)
    assert said.tokens_per_s == 10 * bears
    assert said.blocks <= 15


@given(st.floats(0.5, 60))
def test_a_rate_is_found_to_a_tenth(bears: float) -> None:
    said = highest_load(BASELINE, "poisson", found(bears, low=0.5, whole=False), settled=True)
    assert said.kept is not None and said.broken is not None
    assert said.kept <= bears < said.broken <= 1.1 * said.kept


def test_the_end_of_the_range_is_no_limit_of_the_server() -> None:
    said = highest_load(BASELINE, "closed", found(1000, high=48), settled=True)
    assert (said.kept, said.broken, said.why) == (48, None, "")
    assert sentence(said) == "The baseline: 48 in flight within the limits; more was not tried."


def test_a_server_that_does_not_bear_the_lowest_load() -> None:
    said = highest_load(BASELINE, "closed", found(0.5), settled=True)
    assert (said.kept, said.broken, said.blocks) == (None, 1, 1)
    assert sentence(said) == "The baseline: not even 1 in flight is within the limits (too slow)."


def test_one_lucky_block_is_not_the_highest_load() -> None:
    """At 5 it depends: whoever passes once must pass again."""
    probes = [Probe(1, ""), Probe(2, ""), Probe(4, ""), Probe(8, "slow"), Probe(6, "slow"), Probe(5, "")]
    assert next_load(probes, 1, 64, whole=True) == 5
    probes.append(Probe(5, "slow"))
    assert next_load(probes, 1, 64, whole=True) == 4
    probes.append(Probe(4, ""))
    assert next_load(probes, 1, 64, whole=True) is None
    assert highest_load(BASELINE, "closed", probes, settled=True).kept == 4


def test_under_noise_it_ends_and_errs_to_the_safe_side() -> None:
    draw, kept = random.Random(1), []
    for _ in range(200):
        probes: list[Probe] = []
        while (load := next_load(probes, 1, 64, whole=True)) is not None:
            latency = load / 20 * draw.gauss(1, 0.05)
            probes.append(Probe(load, "slow" if latency > 1 else ""))
        said = highest_load(BASELINE, "closed", probes, settled=True)
        kept.append(said.kept or 0)
    assert 17 <= sum(kept) / len(kept) <= 20


LATENCY = Quantiles(0.1, 0.2, 0.4)


def block_of(**fields: object) -> Block:
    run = arm(
        BASELINE, measurement(tokens_per_s=50, ttft_s=LATENCY), measurement(tokens_per_s=70, ttft_s=LATENCY)
    )
    return Block(0, Phase.CONFIRM, 0.0, 1.0, "x", (run,), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "broken"),
    [
        ({"ttft_p95_s": 0.2}, ""),
        (
            {"ttft_p95_s": 0.1, "ttft_p99_s": 0.1},
            "ttft_p95_s is 0.2 s, the limit 0.1 s, ttft_p99_s is 0.4 s, the limit 0.1 s",
        ),
        ({"tpot_p50_s": 0.1}, "tpot_p50_s was not measured, the limit 0.1 s"),
    ],
)
def test_a_block_says_every_limit_that_it_breaks(limits: dict[str, float], broken: str) -> None:
    probe = probe_of(block_of(), 4, limits)
    assert probe == Probe(4, broken, 60)


def test_a_server_that_fails_under_the_load_does_not_bear_it() -> None:
    crash = block_of(invalid=Failure(Reason.CRASH_UNDER_LOAD, "CUDA error"))
    assert probe_of(crash, 4, {}) == Probe(4, "CRASH_UNDER_LOAD: CUDA error")


def test_a_disturbed_block_says_nothing() -> None:
    assert probe_of(block_of(invalid=Failure(Reason.HOST_PRESSURE, "x")), 4, {}) is None
