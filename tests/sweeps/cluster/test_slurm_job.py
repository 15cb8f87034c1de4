"""A job by itself, as a real process of submitit's local executor: what it answers, and when it ends."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from results.environment import Environment
from results.records import BASELINE, Phase, Point
from sweeps.cluster.delivery import Delivery
from sweeps.cluster.shared_files import beating, is_there, put, take
from sweeps.cluster.slurm_job import ASKED, FOUND, ORDER, SEAT, Seat, serve
from sweeps.cluster.worker import Order, order_of
from tests.sweeps.test_run import plan
from tests.waiting import wait_for

submitit = pytest.importorskip("submitit")
LEASE_S = 4.0
SLOW = {"FAKE_START_S": "200"}
ROOT = Path(__file__).parents[3]


@contextmanager
def job(tmp_path: Path, order: Order) -> Iterator[tuple[Any, Path]]:
    """A job that has been told what it is for, and its folder."""
    place = tmp_path / "job"
    place.mkdir()
    put(place / ORDER, order)
    executor = submitit.LocalExecutor(tmp_path / "submitit")
    executor.update_parameters(timeout_min=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        handed_in = executor.submit(serve, place, tmp_path / "lease", LEASE_S)
    try:
        yield handed_in, place
    finally:
        handed_in.cancel()
        wait_for(handed_in.done)


def order(**changes: object) -> Order:
    return order_of(plan(**changes))


def answer(path: Path) -> Any:
    found = None

    def is_there() -> bool:
        nonlocal found
        found = take(path)
        return found is not None

    wait_for(is_there)
    return found


def asked(number: int) -> dict[str, object]:
    points = (Point("fake-ngram", {"n": 4, "m": 8}),)
    return {
        "number": number,
        "points": points,
        "phase": Phase.SEARCH,
        "baseline": BASELINE,
        "alone": False,
    }


def in_mid_block(place: Path) -> None:
    """Ask for a Block whose servers take minutes to start, and wait until the job is at it."""
    answer(place / SEAT)
    put(place / ASKED, asked(1))
    wait_for(lambda: not (place / ASKED).exists())


def test_a_job_measures_block_after_block_until_its_folder_is_gone(tmp_path: Path) -> None:
    with beating(tmp_path / "lease", LEASE_S), job(tmp_path, order()) as (handed_in, place):
        seat = answer(place / SEAT)
        assert isinstance(seat, Seat) and isinstance(seat.host, Environment)
        assert not (place / ORDER).exists()  # it may hold secrets
        for number in (3, 4):
            put(place / ASKED, asked(number))
            delivery = answer(place / FOUND)
            assert isinstance(delivery, Delivery)
            assert delivery.block.number == number and delivery.block.baseline is not None
            assert {Path(name).parent.name for name in delivery.files} >= {"requests", "logs"}
        shutil.rmtree(place)
        wait_for(handed_in.done)
        assert handed_in.result() is None


def test_a_job_that_cannot_measure_says_why(tmp_path: Path) -> None:
    other = replace(order(), engine="another 2")
    with beating(tmp_path / "lease", LEASE_S), job(tmp_path, other) as (_, place):
        assert "the machine of the driver another 2" in answer(place / SEAT).host


def test_a_job_that_nobody_waits_for_ends_at_once(tmp_path: Path) -> None:
    with job(tmp_path, order()) as (handed_in, place):
        shutil.rmtree(place)
        wait_for(handed_in.done)


def test_without_its_driver_a_job_ends_in_mid_block(tmp_path: Path) -> None:
    with job(tmp_path, order(env=SLOW)) as (handed_in, place):
        with beating(tmp_path / "lease", LEASE_S):
            in_mid_block(place)
        wait_for(handed_in.done)
    assert not (place / FOUND).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_job_that_slurm_ends_does_so_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    with beating(tmp_path / "lease", LEASE_S), job(tmp_path, order(env=SLOW)) as (handed_in, place):
        in_mid_block(place)
        (process,) = psutil.Process(int(handed_in.job_id)).children()
        process.send_signal(number)
        wait_for(handed_in.done)
        assert not handed_in.paths.result_pickle.exists()  # it did not come to an end by itself
        said = handed_in.stderr()
        # Python reports and passes over what is raised while it deletes an object; the deadline ends it then.
        assert "Traceback" not in said or "Exception ignored in" in said, said


def test_nothing_is_taken_twice_or_from_a_folder_that_is_gone(tmp_path: Path) -> None:
    put(tmp_path / "asked", {"number": 1})
    assert take(tmp_path / "asked") == {"number": 1}
    assert take(tmp_path / "asked") is None
    assert take(tmp_path / "gone" / "asked") is None
    assert is_there(tmp_path) and not is_there(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        put(tmp_path / "gone" / "asked", 1)
