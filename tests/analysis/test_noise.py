"""The noise of one Block, against figures worked out by hand and against simulated runs."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from analysis.noise import BlockNoise, block_noise, search_intervals, trial_effect
from results.reasons import Reason
from results.records import BASELINE, Block, Failure, Phase, Quantiles, Trial, TrialState
from tests.analysis.build import CHAT, CODE, FAST, SLOW, arm, block, measurement

FAILURE = Failure(Reason.HANG, "no token for 60 s")
TRIAL = Trial(1, FAST, "sampler", TrialState.MEASURED, 0.1, {}, (0,))


def confirmed(logs: Sequence[float], first: int = 0) -> list[Block]:
    return [block(first + i, (FAST, {CHAT: log})) for i, log in enumerate(logs)]


def searched(baseline_logs: Sequence[float]) -> list[Block]:
    """Search Blocks whose baselines reach 100 tokens/s times e to these."""
    return [
        block(
            i,
            phase=Phase.SEARCH,
            arms=(
                arm(BASELINE, measurement(CHAT, 100 * math.exp(log))),
                arm(FAST, measurement(CHAT, 130 + 10 * (i % 3))),  # differs by configuration, not by noise
            ),
        )
        for i, log in enumerate(baseline_logs)
    ]


def known(blocks: Sequence[Block], objective: str = "tokens_per_s") -> tuple[float, int]:
    noise = block_noise(blocks, objective)
    assert noise is not None
    return noise.sd, noise.degrees


def test_the_confirmation_is_pooled_within_each_finalist() -> None:
    """Squares around 0.11: 1, 1, 4 and 4 e-4; around -0.5: 0. Sum 1e-3 over 3 + 3 degrees."""
    fast, slow = (0.10, 0.12, 0.09, 0.13), (-0.5, -0.5, -0.5, -0.5)
    pairs = enumerate(zip(fast, slow, strict=True))
    blocks = [block(i, (FAST, {CHAT: f}), (SLOW, {CHAT: s})) for i, (f, s) in pairs]
    assert known(blocks) == pytest.approx((math.sqrt(1e-3 / 6), 6))


def test_the_figure_of_a_block_is_the_mean_over_its_cells() -> None:
    logs = (0.1, 0.2, 0.1, 0.2)
    blocks = [block(i, (FAST, {CHAT: log, CODE: 0.3 - log})) for i, log in enumerate(logs)]
    assert known(blocks) == pytest.approx((0.0, 3), abs=1e-12)


def test_another_baseline_is_no_noise() -> None:
    """A confirmation that began anew against a stronger one: squares 1, 1, 4 and 4 e-4 in each part."""
    logs = (0.10, 0.12, 0.09, 0.13)
    stronger = [
        replace(block(4 + i, (FAST, {CHAT: log - 0.5})), compared_with=SLOW) for i, log in enumerate(logs)
    ]
    again = [replace(b, arms=(replace(b.arms[0], point=SLOW), b.arms[1])) for b in stronger]
    assert known([*confirmed(logs), *again]) == pytest.approx((math.sqrt(2e-3 / 6), 6))


def test_a_short_confirmation_leaves_it_to_the_search() -> None:
    """Baselines that go up and down by 0.02: sd 0.02; five differences count as three degrees."""
    search = searched((0.0, 0.02, 0.0, 0.02, 0.0, 0.02))
    assert known([*search, *confirmed((0.1, 0.2, 0.3), first=9)]) == pytest.approx((0.02, 3))
    assert known([*search, *confirmed((0.1, 0.1, 0.1, 0.1), first=9)])[0] == pytest.approx(0.0, abs=1e-12)


def test_too_few_blocks_tell_no_noise() -> None:
    assert block_noise([]) is None
    assert block_noise(confirmed((0.1, 0.2, 0.3))) is None
    assert block_noise(searched((0.0, 0.02, 0.0, 0.02, 0.0))) is None


def test_blocks_count_in_order_of_time() -> None:
    rising = searched((0.0, 0.01, 0.02, 0.03, 0.04, 0.05))
    shuffled = [rising[i] for i in (3, 0, 5, 1, 4, 2)]
    assert known(shuffled) == pytest.approx((0.01, 3))


def test_what_was_spoiled_is_no_noise() -> None:
    """An invalid Block is left out whole; a failed baseline too; a failed candidate only by itself."""
    good = searched((0.0, 0.02, 0.0, 0.02, 0.0, 0.02))
    wild, broken = searched((9.0, 9.0))
    invalid = replace(wild, number=7, invalid=FAILURE)
    baseline, candidate = broken.arms
    failed_baseline = replace(broken, number=8, arms=(replace(baseline, failure=FAILURE), candidate))
    assert known([*good, invalid, failed_baseline]) == known(good)
    failed_candidate = [replace(b, arms=(b.arms[0], replace(b.arms[1], failure=FAILURE))) for b in good]
    assert known(failed_candidate) == known(good)
    lost = confirmed((0.1, 0.2, 0.1, 0.2))
    half = [replace(b, arms=(b.arms[0], replace(b.arms[1], failure=FAILURE))) for b in lost[:2]]
    assert block_noise([*half, *lost[2:]]) is None


def test_the_noise_is_that_of_the_objective() -> None:
    def with_ttft(number: int, p95: float) -> Block:
        before, after = (measurement(CHAT, ttft_s=Quantiles(1.0, p, 1.0)) for p in (1.0, p95))
        return block(number, arms=(arm(BASELINE, before), arm(FAST, after)))

    blocks = [with_ttft(i, math.exp(log)) for i, log in enumerate((0.1, 0.3, 0.1, 0.3))]
    assert known(blocks)[0] == pytest.approx(0.0)
    assert known(blocks, "ttft_p95_s") == pytest.approx((0.2 / math.sqrt(3), 3))


def test_the_interval_of_a_trial_is_students() -> None:
    """The 97.5 % quantile of t with 3 degrees of freedom is 3.1824."""
    effect = trial_effect(TRIAL, BlockNoise(0.02, 3, "x"))
    assert effect is not None
    assert (effect.log_ratio, effect.blocks) == (0.1, 1)
    assert (effect.low, effect.high) == pytest.approx((0.1 - 0.063649, 0.1 + 0.063649), abs=1e-5)


@pytest.mark.parametrize(
    "trial",
    [
        replace(TRIAL, state=TrialState.HOPELESS),
        replace(TRIAL, log_speedup=None),
        replace(TRIAL, log_speedup=math.nan),
        replace(TRIAL, point=BASELINE, log_speedup=0.0, blocks=()),
    ],
)
def test_no_interval_where_the_noise_of_the_number_is_not_known(trial: Trial) -> None:
    assert trial_effect(trial, BlockNoise(0.02, 3, "x")) is None
    assert trial_effect(TRIAL, None) is None


@pytest.mark.parametrize("launches", [6, 20])
def test_intervals_cover_the_truth_as_often_as_they_say(launches: int) -> None:
    """Launches vary by 1 %; the noise is read from the baselines of so many search Blocks."""
    draw, hits, runs = random.Random(launches), 0, 800
    for _ in range(runs):
        noise = block_noise(searched([draw.gauss(0, 0.01) for _ in range(launches)]))
        seen = 0.2 + draw.gauss(0, 0.01) - draw.gauss(0, 0.01)
        effect = trial_effect(replace(TRIAL, log_speedup=seen), noise)
        assert effect is not None
        hits += effect.low <= 0.2 <= effect.high
    assert 0.93 <= hits / runs <= 0.975


def test_the_words_say_how_large_the_noise_is_and_where_it_is_known_from() -> None:
    assert "the baseline changes from one Block of the search to the next (2\N{NO-BREAK SPACE}%)" in (
        search_intervals(block_noise(searched((0.0, 0.02) * 4)))
    )
    assert "one finalist varies between Blocks of the confirmation" in (
        search_intervals(block_noise(confirmed((0.1, 0.2, 0.1, 0.2))))
    )
    assert search_intervals(None).startswith("without intervals")
