"""When a GPU counts as warm: by the halves of the last seconds, for each GPU on its own."""

import pytest

from analysis.warmth import still_changing
from results.records import GpuSample


def sample(at: float, temperature_c: float | None, clock_hz: float | None, uuid: str = "a") -> GpuSample:
    return GpuSample("warm-up", at, uuid, 1.0, 0, 300.0, clock_hz, None, temperature_c, ())


def course(
    seconds: float, degrees_per_s: float = 0.0, clock_share_per_s: float = 0.0, uuid: str = "a"
) -> list[GpuSample]:
    """Ten samples a second; temperatures in whole degrees, as drivers tell them."""
    times = [i / 10 for i in range(round(seconds * 10) + 1)]
    return [
        sample(t, float(int(60 + degrees_per_s * t)), 2e9 * (1 + clock_share_per_s * t), uuid) for t in times
    ]


@pytest.mark.parametrize(
    ("samples", "changing"),
    [
        (course(6), ""),
        (course(6, degrees_per_s=1.0), "temperature"),
        (course(6, degrees_per_s=-1.0), "temperature"),
        (course(20, degrees_per_s=0.02), ""),
        (course(6, clock_share_per_s=-0.02), "clock"),
        (course(6, clock_share_per_s=0.001), ""),
        (course(3), "seen for too short a time"),
        ([], ""),
    ],
)
def test_flat_is_flat_over_the_last_seconds(samples: list[GpuSample], changing: str) -> None:
    assert still_changing(samples) == changing


def test_only_the_last_seconds_count() -> None:
    heating = course(20, degrees_per_s=1.0)
    flat = [sample(20 + s.sampled_at, 80.0, s.sm_clock_hz) for s in course(6)]
    assert still_changing([*heating, *flat]) == ""


def test_every_gpu_has_to_be_flat() -> None:
    both = sorted([*course(6), *course(6, 1.0, uuid="b")], key=lambda s: s.sampled_at)
    assert still_changing(both) == "temperature"


def test_what_the_driver_does_not_tell_cannot_change() -> None:
    assert still_changing([sample(i / 10, None, None) for i in range(80)]) == ""
